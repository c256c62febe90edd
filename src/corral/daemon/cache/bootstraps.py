"""What a first run made, kept for the runs after it: by configuration format, version and jar."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
from typing import Final

import msgspec

from corral.daemon.cache.disk import disk_work, note_use
from corral.domain.file_paths import Globs
from corral.errors import Code, CorralError, Rejected
from corral.system.files import read_versioned, sync_directory, write_versioned
from corral.system.trees.removal import remove_tree

FORMAT: Final = "cached-bootstrap"
FORMAT_VERSION: Final = 1
_NOTE: Final = "bootstrap.json"
_TREE: Final = "tree"


class BootstrapKey(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a first run hold for exactly this."""

    config_format: str
    version: str
    digest: str
    """Of the jar."""

    @property
    def name(self) -> str:
        """Of its directory."""
        text = f"{self.config_format}\0{self.version}\0{self.digest}"
        return hashlib.sha256(text.encode()).hexdigest()


class CachedBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    key: BootstrapKey
    size: int
    has_cds: bool
    used_ms: int = 0


class BootstrapShelf:
    """The directory `bootstraps/`: a tree of files for each key."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._known: dict[str, CachedBootstrap] = {}

    def scan(self) -> None:
        """Learn what is there; what was not finished is removed."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(self._root.iterdir()):
            known = _read(path)
            if known is not None:
                self._known[path.name] = known
            elif path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)

    def all(self) -> list[CachedBootstrap]:
        return list(self._known.values())

    def find(self, key: BootstrapKey) -> CachedBootstrap | None:
        return self._known.get(key.name)

    def tree(self, key: BootstrapKey) -> pathlib.Path:
        return self._root / key.name / _TREE

    def used(self, key: BootstrapKey, *, now_ms: int) -> None:
        known = self._known.get(key.name)
        if known is None:
            return
        self._known[key.name] = msgspec.structs.replace(known, used_ms=now_ms)
        note_use(self._root / key.name / _NOTE, now_ms)

    def copy_aside(self, key: BootstrapKey, source: pathlib.Path, globs: Globs, *, limit: int) -> int:
        """Copy the regular files that match to a place where nobody looks; their size in all. A workload
        wrote them: links are not followed, and more than `limit` bytes are refused (CACHE_FULL)."""
        aside = self._aside(key)
        remove_tree(aside)
        size, has_cds = 0, False
        with disk_work(f"the first run of '{key.config_format} {key.version}'"):
            aside.mkdir(mode=0o700)
            (aside / _TREE).mkdir(mode=0o700)
            for directory, _, names in os.walk(source, followlinks=False):
                for name in sorted(names):
                    path = pathlib.Path(directory, name)
                    relative = path.relative_to(source).as_posix()
                    if not globs.matches(relative) or path.is_symlink() or not path.is_file():
                        continue
                    size += path.stat().st_size
                    if size > limit:
                        raise _too_large(key, limit)
                    _copy(path, aside / _TREE / relative)
                    has_cds = has_cds or name.endswith(".jsa")
            facts = CachedBootstrap(key=key, size=size, has_cds=has_cds)
            write_versioned(aside / _NOTE, facts, name=FORMAT, version=FORMAT_VERSION)
        return size

    def put(self, key: BootstrapKey, *, now_ms: int) -> None:
        """What `copy_aside` copied is what is kept from now on. The first one stays: another run made
        the same."""
        place = self._root / key.name
        if key.name in self._known:
            remove_tree(self._aside(key))
            return
        with disk_work(f"the first run of '{key.config_format} {key.version}'"):
            remove_tree(place)
            self._aside(key).rename(place)
            sync_directory(self._root)
        known = _read(place)
        assert known is not None
        self._known[key.name] = msgspec.structs.replace(known, used_ms=now_ms)

    def drop_aside(self, key: BootstrapKey) -> None:
        remove_tree(self._aside(key))

    def forget(self, name: str) -> None:
        """From now on nobody finds it; `discard` removes its files."""
        self._known.pop(name, None)

    def discard(self, name: str) -> None:
        if name not in self._known:
            (self._root / name / _NOTE).unlink(missing_ok=True)
            remove_tree(self._root / name)

    def _aside(self, key: BootstrapKey) -> pathlib.Path:
        return self._root / f".{key.name}.new"


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())
    target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)


def _too_large(key: BootstrapKey, limit: int) -> Rejected:
    return Rejected(
        Code.CACHE_FULL,
        f"what the first run of '{key.config_format} {key.version}' made is larger than {limit} bytes",
        hint="choose fewer files with warm_paths, or raise cache.quota_bytes",
    )


def _read(path: pathlib.Path) -> CachedBootstrap | None:
    try:
        known = read_versioned(path / _NOTE, CachedBootstrap, name=FORMAT, version=FORMAT_VERSION)
        if known is None or known.key.name != path.name or not (path / _TREE).is_dir():
            return None
        used_ms = (path / _NOTE).stat().st_mtime_ns // 10**6
        return msgspec.structs.replace(known, used_ms=used_ms)
    except (OSError, CorralError):
        return None
