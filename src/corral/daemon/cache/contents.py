"""Contents of the cache's directory with their sizes, and eviction: the least recently used go first, and nothing that
is in use."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from corral.daemon.cache.artifact_store import ArtifactStore
from corral.daemon.cache.bootstrap_store import BootstrapStore
from corral.daemon.cache.sealed_files import SealedFiles, disk_work
from corral.daemon.cache.template_store import TemplateStore
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.system.trees.removal import remove_tree


class EvictionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that may be evicted. Contents are shared: they are removed with the last entry that names them."""

    kind: str
    key: str
    used_ms: int
    size: int
    """Bytes that are freed in any case."""
    contents: Mapping[str, int] = {}


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[EvictionCandidate, ...]
    contents: tuple[str, ...]
    freed: int

    def without(self, pins: Collection[tuple[str, str]]) -> Eviction:
        """Spare entries that came into use after they were chosen. That happens to entries without shared contents only
        (first runs): entries that share contents are pinned under the lock of the choice."""
        spared = [one for one in self.entries if (one.kind, one.key) in pins and not one.contents]
        return msgspec.structs.replace(
            self,
            entries=tuple(one for one in self.entries if one not in spared),
            freed=self.freed - sum(one.size for one in spared),
        )


def choose(
    excess: int,
    *,
    candidates: Sequence[EvictionCandidate],
    kept: Sequence[Mapping[str, int]],
    present: Mapping[str, int],
    protected: Collection[str],
) -> Eviction:
    """Free at least `excess` bytes, or all that can be freed.

    `kept` are the contents of entries that must stay, `present` all contents on the disk, `protected` those that are
    about to be used. Contents that no entry names go first: they are left over from an interrupted transfer.
    """
    names: collections.Counter[str] = collections.Counter()
    for contents in (*kept, *(candidate.contents for candidate in candidates)):
        names.update(contents.keys())
    freed, gone, entries = 0, [], []
    for digest, size in present.items():
        if freed < excess and not names[digest] and digest not in protected:
            gone.append(digest)
            freed += size
    for candidate in sorted(candidates, key=lambda one: (one.used_ms, one.kind, one.key)):
        if freed >= excess:
            break
        entries.append(candidate)
        freed += candidate.size
        for digest in candidate.contents:
            names[digest] -= 1
            if not names[digest] and digest in present and digest not in protected:
                gone.append(digest)
                freed += present[digest]
    return Eviction(entries=tuple(entries), contents=tuple(gone), freed=freed)


TEMPLATE: Final = "template"
ARTIFACT: Final = "artifact"
BOOTSTRAP: Final = "bootstrap"
PART_AGE_SECONDS: Final = 86_400
"""How long the partial file of a transfer may wait to be resumed."""
PARTS_LOOK_SECONDS: Final = 3600
GLANCE_FILES: Final = 64
"""A version with so few files is checked in the loop: a thread would take longer."""
_log = structlog.get_logger("corral.daemon.cache")


class CacheContents:
    """The directories of a cache. `size` is what they hold, without partial files."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self.parts = root / "parts"
        self.contents = SealedFiles(root / "contents", fan_out=True, dropped=self.removed)
        self.templates = TemplateStore(root / "templates")
        self.artifacts = ArtifactStore(root / "artifacts")
        self.bootstraps = BootstrapStore(root / "bootstraps")
        self._counting = threading.Lock()
        self._parts_seen = 0.0
        self.size = 0

    def scan(self) -> None:
        """Read what is there, once, at the start. Only notes and sizes are read: contents are verified when they are
        used."""
        with disk_work("the node's cache"):
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.contents.make()
            self.parts.mkdir(exist_ok=True, mode=0o700)
            self._drop_strangers()
            self.drop_old_parts()
            self.templates.scan()
            self.artifacts.scan()
            self.bootstraps.scan()
        self.size = sum(size for _, size in self.contents.all())
        self.size += sum(template.stored for template in self.templates.all())
        self.size += sum(artifact.facts.size for artifact in self.artifacts.all())
        self.size += sum(bootstrap.size for bootstrap in self.bootstraps.all())

    def missing(self, manifest: TemplateManifest) -> list[TemplateFile]:
        """The files whose contents are missing or damaged, each content once."""
        seen: set[str] = set()
        found: list[TemplateFile] = []
        for file in manifest.files:
            if file.digest not in seen:
                seen.add(file.digest)
                if not self.contents.sound(file.digest, file.size):
                    found.append(file)
        return found

    def whole(self, hash: str) -> TemplateManifest | None:
        """The manifest of a version that is here with all its contents."""
        manifest = self.templates.manifest(hash)
        return manifest if manifest is not None and not self.missing(manifest) else None

    def whole_at_a_glance(self, hash: str) -> TemplateManifest | None:
        """The same for a small version that was used before, quick enough for the loop. None: use `whole`."""
        manifest = self.templates.remembered(hash)
        if manifest is None or len(manifest.files) > GLANCE_FILES:
            return None
        files = {(file.digest, file.size) for file in manifest.files}
        sealed = all(self.contents.sealed(digest, size) for digest, size in files)
        return manifest if sealed else None

    def added(self, size: int) -> None:
        with self._counting:
            self.size += size

    def removed(self, size: int) -> None:
        with self._counting:
            self.size = max(0, self.size - size)

    def forget(self, kind: str, key: str) -> None:
        """The entry can no longer be found."""
        {
            TEMPLATE: self.templates.forget,
            ARTIFACT: self.artifacts.forget,
            BOOTSTRAP: self.bootstraps.forget,
        }[kind](key)

    def discard(self, eviction: Eviction) -> None:
        """Remove the files of forgotten entries: the notes first, so that no note names a missing file."""
        for entry in eviction.entries:
            {
                TEMPLATE: self.templates.discard,
                ARTIFACT: self.artifacts.discard,
                BOOTSTRAP: self.bootstraps.discard,
            }[entry.kind](entry.key)
        for digest in eviction.contents:
            self.contents.remove(digest)

    def parts_due(self) -> bool:
        """Whether it is time to look for partial files that are not resumed. Once an hour."""
        return abs(time.time() - self._parts_seen) >= PARTS_LOOK_SECONDS

    def drop_old_parts(self) -> None:
        """Delete old partial files. Also during transfers: a part that grows is never old."""
        now = self._parts_seen = time.time()  # against the times of files, which are wall times too
        for name in os.listdir(self.parts) if self.parts.exists() else ():  # noqa: PTH208 - names only
            path = self.parts / name
            with contextlib.suppress(FileNotFoundError):  # it got its own name just now
                if path.suffix == ".part" and path.lstat().st_mtime < now - PART_AGE_SECONDS:
                    _log.info("partial_file.removed", path=name)
                    path.unlink()

    def _drop_strangers(self) -> None:
        """Delete files of a killed daemon that cannot be resumed; only while no transfer is under way."""
        for path in self.parts.iterdir():
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            elif path.suffix != ".part":
                path.unlink(missing_ok=True)
