"""Module archives built from a source directory: the same files give the same bytes on every machine.

Entries are sorted by name, dated 1980-01-01, of mode 0644 (0755 where the owner may execute), packed by
deflate at its default level, without extra fields. The bytes depend on nothing else but the version of zlib.

Files that are packed, and their names in the archive:

- `module.yaml` (or `module.json`) at the root;
- packages (directories with `__init__.py`) and single modules (`*.py`) at the root or below `src/`, which is
  left out of their names; a package is packed whole, with all files in it;
- `vendor/` and `frontend/` whole;
- the files that the manifest's `extensions` name.

Never: names that begin with a dot, `__pycache__`, `*.pyc`, `*.pyo` and `node_modules`, wherever they are; at
the root and in `src/` also `tests`, `test`, `dist`, `build`, `docs`, `setup.py`, `conftest.py`, `noxfile.py`
and `test_*.py`. A link or a special file among what is taken is refused, as is a path twice.
"""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.file_paths import check_path
from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected
from corral.modules.archive.archive_reader import MANIFEST_NAMES, inspect_archive
from corral.modules.archive.source_checks import check_sources
from corral.modules.manifest.manifest_reader import read_manifest

OUTPUT: Final = "dist"
SUFFIX: Final = ".cmod"
BUILD_MAX: Final = 1024**3
"""Bytes of a module that is built: what hosts accept unless they are configured otherwise."""
_OLDEST: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_BLOCK: Final = 256 * 1024


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that passed the checks of a host, as far as they can be made without one."""

    path: Path
    sha256: str
    size: int
    manifest: Manifest
    files: tuple[str, ...]


def build_module(source: Path, out: Path | None = None) -> Built:
    """Build the module in `source` as `out`, or as `dist/ID-VERSION.cmod` below it. What was there before
    is replaced once the new one has passed the checks that a host makes, not sooner. Blocking.

    Raises MANIFEST_INVALID, PATH_REFUSED, FILE_UNREADABLE, ARCHIVE_INVALID and ARCHIVE_TOO_LARGE."""
    try:
        name, manifest = _manifest(source)
        files = packed_files(source, name, manifest)
        target = out or source / OUTPUT / f"{manifest.id}-{manifest.version}{SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        check_sources(manifest, files.keys(), lambda path: files[path].read_bytes())
        return _built(files, target)
    except OSError as error:
        where = error.filename2 or error.filename or source
        raise Rejected(
            Code.FILE_UNREADABLE,
            f"the module cannot be built: {where}: {error.strerror}",
            hint="check that it is there, and that you may read and write it",
        ) from error


def _manifest(source: Path) -> tuple[str, Manifest]:
    found = [name for name in MANIFEST_NAMES if (source / name).is_file()]
    if len(found) != 1:
        why = "two manifests, module.yaml and module.json" if found else "no module.yaml"
        raise Rejected(
            Code.MANIFEST_INVALID,
            f"{source} has {why}",
            hint="remove one of them" if found else "`corral module new` makes a module to begin with",
        )
    try:
        text = (source / found[0]).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(Code.MANIFEST_INVALID, f"{found[0]} is not UTF-8: {error.reason}") from None
    return found[0], read_manifest(text, name=found[0])


def _built(files: Mapping[str, Path], target: Path) -> Built:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for entry, path in files.items():
                    _pack(archive, entry, path)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
        facts = inspect_archive(part, max_bytes=BUILD_MAX)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return Built(
        path=target, sha256=facts.sha256, size=facts.size, manifest=facts.manifest, files=tuple(files)
    )


def _pack(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        info = zipfile.ZipInfo(name, _OLDEST)
        info.create_system = _UNIX
        info.compress_type = zipfile.ZIP_DEFLATED
        mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        info.external_attr = (stat.S_IFREG | mode) << 16
        info.file_size = status.st_size
        with archive.open(info, "w") as entry:
            while block := file.read(_BLOCK):
                entry.write(block)


SOURCES: Final = "src"
WHOLE: Final = ("vendor", "frontend")
_NEVER: Final = frozenset({"__pycache__", "node_modules"})
_COMPILED: Final = (".pyc", ".pyo")
NOT_PACKED: Final = frozenset(
    {"tests", "test", "dist", "build", "docs", "setup.py", "conftest.py", "noxfile.py", *WHOLE}
)
"""At the root and in `src/`: what is left out, or taken by another rule."""


def packed_files(source: Path, manifest_name: str, manifest: Manifest) -> dict[str, Path]:
    """Files by their name in the archive, sorted by it."""
    found: dict[str, Path] = {}
    for name, path in _taken(source, manifest_name, manifest):
        if found.setdefault(name, path) != path:
            other = found[name].relative_to(source)
            raise refused(path, f"'{other}' has the same name in the archive")
    return dict(sorted(found.items()))


def refused(path: Path, why: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"the module cannot be built: {path}: {why}",
        hint="remove it, or move it elsewhere",
    )


def _taken(source: Path, manifest_name: str, manifest: Manifest) -> Iterator[tuple[str, Path]]:
    yield _file(source, source / manifest_name)
    for root in (source, source / SOURCES):
        if root.is_dir():
            for path in _members(root):
                yield from _top_level(root, path)
    for name in WHOLE:
        if os.path.lexists(source / name):
            yield from _whole(source, source / name)
    for extension in manifest.extensions:
        for variant in extension.variants:
            if os.path.lexists(source / variant.file):
                yield _file(source, source / variant.file)


def _top_level(root: Path, path: Path) -> Iterator[tuple[str, Path]]:
    if path.name in NOT_PACKED:
        return
    if path.suffix == ".py" and not path.name.startswith("test_") and not path.is_dir():
        yield _file(root, path)
    elif (path / "__init__.py").is_file():
        yield from _whole(root, path)


def _whole(root: Path, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_symlink() or not path.is_dir():
        yield _file(root, path)
        return
    for inner in _members(path):
        yield from _whole(root, inner)


def _members(directory: Path) -> list[Path]:
    return [
        path
        for path in sorted(directory.iterdir())
        if not path.name.startswith(".") and path.name not in _NEVER and path.suffix not in _COMPILED
    ]


def _file(root: Path, path: Path) -> tuple[str, Path]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise refused(path, "it is a symbolic link; put the file itself there")
    if not stat.S_ISREG(mode):
        raise refused(path, "it is neither a file nor a directory")
    return check_path(path.relative_to(root).as_posix()), path
