"""Results of first runs, stored for the later runs of one group: by user, files, version and jar."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from typing import IO, Final, Protocol

import msgspec
import structlog

from corral.daemon.cache.sealed_files import disk_work, note_use
from corral.domain.file_paths import Globs, check_path
from corral.errors import Code, CorralError, Rejected
from corral.system.files import read_versioned, sync_directory, write_versioned
from corral.system.trees.entries import NEW_FILE, open_regular, open_tree, write_whole
from corral.system.trees.removal import remove_tree
from corral.system.trees.walk import TreeEntry, walk

FORMAT: Final = "cached-bootstrap"
FORMAT_VERSION: Final = 2
_NOTE: Final = "bootstrap.json"
_TREE: Final = "tree"
_BLOCK: Final = 1 << 20
MOST_FILES: Final = 100_000
ISOLATED: Final = "isolated"
"""The user in the key of instances that each have their own: results are copied, never shared."""
_log = structlog.get_logger("corral.daemon.cache")


class FileGuard(Protocol):
    """Checks each file before it is stored."""

    def content(self, path: str, file: IO[bytes], size: int, /) -> tuple[IO[bytes], int]:
        """The content to store, and its size; SECRET_EXPOSED, here or when it is read: the file is not stored."""


class BootstrapKey(msgspec.Struct, frozen=True, kw_only=True):
    """Key of first-run results: another group, user or choice of files has its own."""

    group: str
    user: str
    """The account of the run, or `ISOLATED`."""
    paths: tuple[str, ...]
    """The globs that chose the files."""
    config_format: str
    version: str
    digest: str
    """The digest of the jar."""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class CachedBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    key: BootstrapKey
    size: int
    has_cds: bool
    used_ms: int = 0


class BootstrapStore:
    """The directory `bootstraps/`: a tree of files for each key."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._known: dict[str, CachedBootstrap] = {}

    def scan(self) -> None:
        """Read what is there; unfinished entries are removed."""
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

    def copy_aside(
        self,
        key: BootstrapKey,
        source: pathlib.Path,
        globs: Globs,
        *,
        owner: int,
        limit: int,
        guard: FileGuard,
    ) -> int:
        """Copy the matching regular files to a staging path; returns their total size. A workload wrote them: only
        files of its own user with a single name are copied, no link is followed (PATH_REFUSED when the directory is not
        this user's), a file that `guard` refuses is left out, and more than `limit` bytes are refused (CACHE_FULL)."""
        aside = self._aside(key)
        remove_tree(aside)
        size, files, has_cds = 0, 0, False
        with disk_work(_subject(key)), open_tree(source) as root:
            if os.fstat(root).st_uid != owner:
                raise _not_its_own(source)
            aside.mkdir(mode=0o700)
            (aside / _TREE).mkdir(mode=0o700)
            for found in walk(root):
                if not stat.S_ISREG(found.status.st_mode) or not globs.matches(path := found.path):
                    continue
                target = aside / _TREE / check_path(path, field="warm_paths")
                copied = _copy(found, target, owner, limit - size, guard)
                size, files = size + copied, files + 1
                if size > limit or files > MOST_FILES:
                    raise _too_large(key, limit)
                has_cds = has_cds or found.name.endswith(".jsa")
            facts = CachedBootstrap(key=key, size=size, has_cds=has_cds)
            write_versioned(aside / _NOTE, facts, name=FORMAT, version=FORMAT_VERSION)
        return size

    def put(self, key: BootstrapKey, *, now_ms: int) -> None:
        """Store what `copy_aside` copied. An existing entry stays: another run made the same."""
        place = self._root / key.name
        if key.name in self._known:
            remove_tree(self._aside(key))
            return
        with disk_work(_subject(key)):
            remove_tree(place)
            self._aside(key).rename(place)
            sync_directory(self._root)
        known = _read(place)
        assert known is not None
        self._known[key.name] = msgspec.structs.replace(known, used_ms=now_ms)

    def drop_aside(self, key: BootstrapKey) -> None:
        remove_tree(self._aside(key))

    def forget(self, name: str) -> None:
        """The saved first run can no longer be found; `discard` removes its files."""
        self._known.pop(name, None)

    def discard(self, name: str) -> None:
        if name not in self._known:
            (self._root / name / _NOTE).unlink(missing_ok=True)
            remove_tree(self._root / name)

    def _aside(self, key: BootstrapKey) -> pathlib.Path:
        return self._root / f".{key.name}.new"


def _copy(found: TreeEntry, target: pathlib.Path, owner: int, room: int, guard: FileGuard) -> int:
    """Copy one file; returns its bytes. A file that is too large for the room is counted and not copied. A file that
    was replaced meanwhile is left out, and so is one with a secret."""
    try:
        reading = open_regular(found.here, found.name, shown=found.name)
    except (FileNotFoundError, CorralError):
        return 0
    with os.fdopen(reading, "rb") as file:
        status = os.fstat(reading)
        if status.st_uid != owner or status.st_nlink != 1:
            return 0
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            content, _ = guard.content(found.path, file, status.st_size)
            return _write(content, target, 0o755 if status.st_mode & 0o111 else 0o644, room)
        except CorralError as error:
            if error.code is not Code.SECRET_EXPOSED:
                raise
            target.unlink(missing_ok=True)
            _log.info("first_run_file.skipped", path=found.path, reason=str(error))
            return 0


def _write(content: IO[bytes], target: pathlib.Path, mode: int, room: int) -> int:
    writing = os.open(target, NEW_FILE, 0o600)
    try:
        copied = 0
        while copied <= room and (block := content.read(_BLOCK)):
            copied += len(block)
            write_whole(writing, block)
        os.fchmod(writing, mode)
        os.fsync(writing)
    finally:
        os.close(writing)
    return copied


def _subject(key: BootstrapKey) -> str:
    return f"the first run of '{key.config_format} {key.version}'"


def _not_its_own(source: pathlib.Path) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"{source} does not belong to the user of its instance alone",
        hint="first-run results are kept of instances with a user of their own: leave run_as out",
    )


def _too_large(key: BootstrapKey, limit: int) -> Rejected:
    return Rejected(
        Code.CACHE_FULL,
        f"what {_subject(key)} made is larger than {limit} bytes or {MOST_FILES} files",
        hint="choose fewer files with warmup.paths, or raise cache.quota_bytes",
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
