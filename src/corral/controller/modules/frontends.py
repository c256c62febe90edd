"""Frontends: pages that modules bring for the dashboard, files below `frontend/` of their archives."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Final, Protocol

import msgspec

from corral.domain.file_paths import check_path
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, Rejected
from corral.system.threads import to_end

FILE_BYTES: Final = 32 * 1024 * 1024
_UNKNOWN: Final = "application/octet-stream"
_KNOWN: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


class FrontendFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file below `frontend/` of a module's archive; `etag` is a hash of its content."""

    content: bytes
    content_type: str
    etag: str


class Unpacked(Protocol):
    async def unpacked(self, sha256: str) -> Path: ...


class Frontends:
    """Reads pages of installed modules. An archive is verified at its first request, not at each one."""

    def __init__(self, archives: Unpacked) -> None:
        self._archives = archives
        self._roots: dict[str, tuple[str, Path]] = {}

    async def read(self, record: PackageRecord, path: str) -> FrontendFile:
        """The file; an empty path is the entry. NOT_FOUND."""
        frontend = record.manifest.frontend
        if frontend is None:
            raise Rejected(Code.NOT_FOUND, f"module '{record.id}' has no page")
        name = path or frontend.entry.removeprefix("frontend/")
        try:
            check_path(name)
        except Rejected:
            raise missing(record.id, name) from None
        root = await self._root(record)
        found = await to_end(_read, root / "frontend", name)
        if found is None:
            raise missing(record.id, name)
        return found

    async def _root(self, record: PackageRecord) -> Path:
        known = self._roots.get(record.id)
        if known is None or known[0] != record.sha256:
            known = record.sha256, await self._archives.unpacked(record.sha256)
            self._roots[record.id] = known
        return known[1]

    def forget(self, id: str) -> None:
        self._roots.pop(id, None)


def missing(id: str, path: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"the page of module '{id}' has no file '{path[:200]}'")


def _read(root: Path, path: str) -> FrontendFile | None:
    target = root / path
    if target.is_symlink() or not target.is_file() or target.stat().st_size > FILE_BYTES:
        return None
    content = target.read_bytes()
    suffix = target.suffix.lower()
    return FrontendFile(
        content=content,
        content_type=_KNOWN.get(suffix) or mimetypes.guess_type(target.name)[0] or _UNKNOWN,
        etag=hashlib.sha256(content).hexdigest(),
    )
