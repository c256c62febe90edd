"""Template versions in the cache of this node: for each its manifest, in a file that never changes.

The last use of a version is the file's modification time.
"""

from __future__ import annotations

import collections
import os
import pathlib
import threading
from typing import Final

import msgspec
import structlog

from corral.daemon.cache.sealed_files import disk_work, is_digest, note_use
from corral.domain.templates import TemplateManifest, encode_manifest, manifest_digest
from corral.system.files import atomic_write

FORMAT: Final = "cached-template"
FORMAT_VERSION: Final = 1
REMEMBERED_FILES: Final = 50_000
"""So many files of the last used lists are kept in memory, which is some 20 MB."""
_log = structlog.get_logger("corral.daemon.cache")


class CachedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One version, without its files."""

    name: str
    hash: str
    digest: str
    """The digest of the manifest."""
    size: int
    """The size of all its files together."""
    used_ms: int
    stored: int
    """The size of its own file."""


class _TemplateHead(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    name: str
    hash: str
    digest: str
    size: int


class _Whole(_TemplateHead, frozen=True, kw_only=True):
    manifest: TemplateManifest


class _TemplateDocument(_TemplateHead, frozen=True, kw_only=True):
    manifest: msgspec.Raw


class _FileListCache:
    """The last used lists of files, up to so many files in total. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: collections.OrderedDict[str, TemplateManifest] = collections.OrderedDict()
        self._files = 0
        self._lock = threading.Lock()

    def get(self, hash: str) -> TemplateManifest | None:
        with self._lock:
            if hash in self._held:
                self._held.move_to_end(hash)
            return self._held.get(hash)

    def keep(self, hash: str, manifest: TemplateManifest) -> None:
        self.drop(hash)
        with self._lock:
            self._held[hash] = manifest
            self._files += len(manifest.files)
            while self._files > self._limit:
                _, oldest = self._held.popitem(last=False)
                self._files -= len(oldest.files)

    def drop(self, hash: str) -> None:
        with self._lock:
            if (manifest := self._held.pop(hash, None)) is not None:
                self._files -= len(manifest.files)


class TemplateStore:
    """The directory `templates/`. The versions are in memory, of the lists of files only those used last; only `scan`,
    `put`, `manifest` and `discard` use the disk for longer than a moment."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._known: dict[str, CachedTemplate] = {}
        self._lists = _FileListCache(REMEMBERED_FILES)

    def scan(self) -> None:
        """Read what is there. An unreadable file is no loss: it is removed."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(self._root.iterdir()):
            found = _read_head(path)
            if found is None:
                _log.warning("cache_entry.removed", path=str(path))
                path.unlink(missing_ok=True)
            else:
                self._known[found.hash] = found

    def all(self) -> list[CachedTemplate]:
        return list(self._known.values())

    def find(self, hash: str) -> CachedTemplate | None:
        return self._known.get(hash)

    def newest(self, name: str) -> CachedTemplate | None:
        """The version of this template that was used last."""
        versions = [known for known in self._known.values() if known.name == name]
        return max(versions, key=lambda known: known.used_ms, default=None)

    def put(self, name: str, hash: str, manifest: TemplateManifest, *, now_ms: int) -> CachedTemplate:
        """Record that all contents of this version are here; durable."""
        head: dict[str, str | int] = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "name": name,
            "hash": hash,
            "digest": manifest_digest(manifest),
            "size": manifest.size,
        }
        document = msgspec.convert(
            {**head, "manifest": msgspec.Raw(encode_manifest(manifest))}, _TemplateDocument
        )
        content = msgspec.json.encode(document)
        path = self._path(hash)
        with disk_work(f"template '{name}'"):
            atomic_write(path, content)
            os.utime(path, ns=(now_ms * 10**6, now_ms * 10**6))
        known = CachedTemplate(
            name=name,
            hash=hash,
            digest=document.digest,
            size=manifest.size,
            used_ms=now_ms,
            stored=len(content),
        )
        self._known[hash] = known
        self._lists.keep(hash, manifest)
        return known

    def remembered(self, hash: str) -> TemplateManifest | None:
        """The manifest if it is in memory; touches no disk."""
        return self._lists.get(hash) if hash in self._known else None

    def manifest(self, hash: str) -> TemplateManifest | None:
        """Read and verify it, unless that was done; None, and forgotten, when it is damaged."""
        if (manifest := self.remembered(hash)) is not None:
            return manifest
        try:
            whole = msgspec.json.decode(self._path(hash).read_bytes(), type=_Whole)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            whole = None
        if whole is not None and manifest_digest(whole.manifest) == whole.digest:
            self._lists.keep(hash, whole.manifest)
            return whole.manifest
        if self._known.pop(hash, None) is not None:
            _log.warning("cache_entry.removed", path=str(self._path(hash)))
        self._path(hash).unlink(missing_ok=True)
        return None

    def used(self, hash: str, *, now_ms: int) -> None:
        """Record a use. Quick enough for the loop; a time that cannot be written does no harm."""
        known = self._known.get(hash)
        if known is not None:
            self._known[hash] = msgspec.structs.replace(known, used_ms=now_ms)
            note_use(self._path(hash), now_ms)

    def forget(self, hash: str) -> None:
        """The template can no longer be found; `discard` removes its file."""
        self._known.pop(hash, None)
        self._lists.drop(hash)

    def discard(self, hash: str) -> None:
        if hash not in self._known:
            self._path(hash).unlink(missing_ok=True)

    def _path(self, hash: str) -> pathlib.Path:
        return self._root / f"{hash}.json"


def _read_head(path: pathlib.Path) -> CachedTemplate | None:
    if path.suffix != ".json" or not is_digest(path.stem):
        return None
    try:
        found = path.stat()
        head = msgspec.json.decode(path.read_bytes(), type=_TemplateHead)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if head.format != FORMAT or head.version != FORMAT_VERSION or head.hash != path.stem:
        return None
    return CachedTemplate(
        name=head.name,
        hash=head.hash,
        digest=head.digest,
        size=head.size,
        used_ms=found.st_mtime_ns // 10**6,
        stored=found.st_size,
    )
