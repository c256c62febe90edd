"""Artifacts in the cache of this node: server jars and other files that a plan names by their digest."""

from __future__ import annotations

import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.cache.sealed_files import SealedFiles, disk_work, is_digest, note_use
from corral.errors import CorralError
from corral.system.files import read_versioned, write_versioned

FORMAT: Final = "cached-artifact"
FORMAT_VERSION: Final = 1
_log = structlog.get_logger("corral.daemon.cache")


class ArtifactFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an artifact, for people."""

    platform: str
    version: str
    file: str
    url: str
    """Without credentials; empty when it came from the controller."""
    sha256: str
    size: int
    cached_at_ms: int


class CachedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    facts: ArtifactFacts
    used_ms: int


class ArtifactStore:
    """The directory `artifacts/`: a sealed file for each, and a note about it."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._known: dict[str, CachedArtifact] = {}
        self.files = SealedFiles(root, fan_out=False)

    def scan(self) -> None:
        """Read what is there. A file without its note, or a note without its file, is removed."""
        self.files.make()
        sizes = dict(self.files.all())
        for path in sorted(self._root.iterdir()):
            if path.suffix == ".json" and is_digest(path.stem):
                known = _read(path)
                if known is not None and sizes.get(path.stem) == known.facts.size:
                    self._known[path.stem] = known
        for path in sorted(self._root.iterdir()):
            if path.name.removesuffix(".json") not in self._known:
                _log.warning("cache_entry.removed", path=str(path))
                path.unlink(missing_ok=True)

    def all(self) -> list[CachedArtifact]:
        return list(self._known.values())

    def find(self, sha256: str) -> CachedArtifact | None:
        return self._known.get(sha256)

    def path(self, sha256: str) -> pathlib.Path:
        return self.files.path(sha256)

    def put(self, part: pathlib.Path, facts: ArtifactFacts) -> None:
        """Add a verified file; durable. The note is written last: without it the file does not count."""
        with disk_work(f"artifact '{facts.file}'"):
            self.files.admit(part, facts.sha256)
            write_versioned(self._note(facts.sha256), facts, name=FORMAT, version=FORMAT_VERSION)
        self._known[facts.sha256] = CachedArtifact(facts=facts, used_ms=facts.cached_at_ms)

    def used(self, sha256: str, *, now_ms: int) -> None:
        known = self._known.get(sha256)
        if known is None:
            return
        self._known[sha256] = msgspec.structs.replace(known, used_ms=now_ms)
        note_use(self._note(sha256), now_ms)

    def forget(self, sha256: str) -> None:
        """The artifact can no longer be found; `discard` removes its files."""
        self._known.pop(sha256, None)

    def discard(self, sha256: str) -> None:
        if sha256 not in self._known:
            self._note(sha256).unlink(missing_ok=True)
            self.files.remove(sha256)

    def _note(self, sha256: str) -> pathlib.Path:
        return self._root / f"{sha256}.json"


def _read(path: pathlib.Path) -> CachedArtifact | None:
    try:
        facts = read_versioned(path, ArtifactFacts, name=FORMAT, version=FORMAT_VERSION)
        if facts is None or facts.sha256 != path.stem:
            return None
        return CachedArtifact(facts=facts, used_ms=path.stat().st_mtime_ns // 10**6)
    except (OSError, CorralError):
        return None
