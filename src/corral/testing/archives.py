"""Archives of small trees, as an operator's tools would pack them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import AsyncIterator, Mapping


def tar_gz(
    files: Mapping[str, bytes], *, modes: Mapping[str, int] | None = None, form: str = "w:gz"
) -> bytes:
    """A tar of these files in this order; a name that ends with `/` is a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=form) as archive:  # type: ignore[call-overload]  # a mode it knows
        for name, content in files.items():
            info = tarfile.TarInfo(name.rstrip("/") if name.strip("/") else name)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
                info.mode = 0o755
            else:
                info.size = len(content)
                info.mode = (modes or {}).get(name, 0o644)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files: Mapping[str, bytes], *, modes: Mapping[str, int] | None = None) -> bytes:
    """The same as a zip with deflate."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o40755 if name.endswith("/") else (modes or {}).get(name, 0o644)) << 16
            archive.writestr(info, content)
    return out.getvalue()


async def in_chunks(data: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    """Bytes as they arrive over a connection."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
