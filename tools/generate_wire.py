"""Generate `corral.wire.v1` from `proto/` and the contract hash from the descriptors.

`python tools/generate_wire.py` writes; `--check` compares and fails when the committed
code or the contract hash is older than the sources.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.resources
import pathlib
import re
import sys
import tempfile

from google.protobuf import descriptor_pb2
from grpc_tools import protoc  # type: ignore[import-untyped]  # has no stubs

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
OUT = ROOT / "src" / "corral" / "wire" / "v1"
CONTRACT = PROTO / "contracts.sha256"
HEADER = '"""Generated from proto/corral/v1 by tools/generate_wire.py; do not edit."""\n'


def generate(target: pathlib.Path) -> dict[str, bytes]:
    """Run protoc into `target` and return the files of `corral.wire.v1` by name."""
    sources = sorted(PROTO.glob("corral/v1/*.proto"))
    builtin = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{builtin}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        *(str(path.relative_to(PROTO)) for path in sources),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused the sources; see above")
    files = {"__init__.py": HEADER.encode()}
    for path in sorted((target / "corral" / "v1").iterdir()):
        if path.name.endswith("_pb2_grpc.py") and "Stub" not in path.read_text():
            continue
        files[path.name] = rewrite_imports(path.read_text()).encode()
    return files


def rewrite_imports(text: str) -> str:
    """The generated code believes it lives in `corral.v1`; it lives in `corral.wire.v1`."""
    return re.sub(r"^from corral\.v1 import", "from corral.wire.v1 import", text, flags=re.M)


def contract_hash() -> str:
    """A digest over names, numbers and types alone: comments and file layout do not count."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "descriptors"
        sources = sorted(str(p.relative_to(PROTO)) for p in PROTO.glob("corral/v1/*.proto"))
        if protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={path}", *sources]) != 0:
            raise SystemExit("protoc refused the sources; see above")
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    lines: list[str] = []
    for file in descriptors.file:
        for message in file.message_type:
            lines += message_lines(message, file.package)
        for enum in file.enum_type:
            lines += [f"{file.package}.{enum.name} {v.name} {v.number}" for v in enum.value]
        for service in file.service:
            for rpc in service.method:
                streams = f"{rpc.client_streaming} {rpc.server_streaming}"
                lines.append(f"{service.name}.{rpc.name} {rpc.input_type} {rpc.output_type} {streams}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def message_lines(message: descriptor_pb2.DescriptorProto, scope: str) -> list[str]:
    name = f"{scope}.{message.name}"
    lines = [f"{name} {f.name} {f.number} {f.type} {f.label} {f.type_name}" for f in message.field]
    for nested in message.nested_type:
        lines += message_lines(nested, name)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(pathlib.Path(scratch))
    digest = contract_hash() + "\n"
    if not check:
        OUT.mkdir(parents=True, exist_ok=True)
        for stale in OUT.iterdir():
            if stale.is_file() and stale.name not in files:
                stale.unlink()
        for name, content in files.items():
            (OUT / name).write_bytes(content)
        CONTRACT.write_text(digest)
        return 0
    present = {p.name: p.read_bytes() for p in OUT.iterdir() if p.is_file()}
    stale_files = sorted(n for n in files.keys() | present.keys() if files.get(n) != present.get(n))
    if stale_files:
        print(f"generated code is stale: {', '.join(stale_files)}; run `make wire`", file=sys.stderr)
    if CONTRACT.read_text() != digest:
        print(f"the wire contract changed: {CONTRACT.name} is stale; run `make wire`", file=sys.stderr)
        return 1
    return 1 if stale_files else 0


if __name__ == "__main__":
    raise SystemExit(main())
