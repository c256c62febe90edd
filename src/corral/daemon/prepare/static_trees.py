"""Static directories: seeded once, changed file by file, and never at the cost of a world.

The record of what was laid is beside the directory (`static_seeds`). Files that are replaced or added (chosen by
`static_updates`) are built in a staging directory, flushed, and renamed into place one by one. Killed at any point, a
directory has each file in its old or its new form, and the next start does the rest again. Protected files and files
that no template has are never touched, and nothing is ever deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import stat
from collections.abc import Iterable
from typing import Final

import structlog

from corral.daemon.config_files.no_follow import check_size
from corral.daemon.node.durable_files import store
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import copy_content
from corral.daemon.prepare.layout import directories_of
from corral.daemon.prepare.static_seeds import Seed
from corral.domain.file_paths import Globs, globs
from corral.domain.groups.plans import Plan
from corral.errors import Code, CorralError, Rejected
from corral.system.files import read_versioned, sync_directory
from corral.system.trees.entries import NEW_FILE, is_missing, open_beneath, open_tree, parent_of
from corral.system.trees.walk import walk

SEEDS: Final = ".seeds"
_FORMAT: Final = "corral-static-seed"
_VERSION: Final = 1
_FLUSH_ALL: Final = 32
_BLOCK: Final = 1 << 16
_libc: Final = ctypes.CDLL(None, use_errno=True)
_log = structlog.get_logger("corral.daemon.prepare")


class StaticTree:
    """The directory of one static instance. Every method blocks."""

    def __init__(self, root: pathlib.Path, instance_id: str, plan: Plan) -> None:
        self.path = root / instance_id
        self._root = root
        self._seed_file = root / SEEDS / f"{instance_id}.json"
        self._plan = plan
        self._protected: Globs = globs(plan.protected_paths)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def seed(self) -> Seed | None:
        """The stored seed; None when it is unknown what was laid."""
        try:
            return read_versioned(self._seed_file, Seed, name=_FORMAT, version=_VERSION)
        except CorralError as error:
            _log.warning("static_seed_read.failed", path=str(self._seed_file), reason=str(error))
            return None

    def write_seed(self, seed: Seed) -> None:
        write_seed(self.path, seed)

    def protects(self, path: str) -> bool:
        return self._protected.matches(path)

    def open_to_change(self, paths: Iterable[str]) -> frozenset[str]:
        """The given paths without those that are protected and exist."""
        with open_tree(self.path) as root:
            return frozenset(
                path for path in paths if not self._protected.matches(path) or is_missing(root, path)
            )

    def bring(
        self, staged: pathlib.Path, paths: Iterable[str], owner: tuple[int, int] | None, abort: Abort
    ) -> None:
        """Copy the files of the world that are to be patched, where no newer form is staged. Copies of the owner's
        files, who may change with this start, are given to the workload, and so are directories: a file that a patch
        creates gets the owner of its directory."""
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(open_tree(self.path))
            aside = stack.enter_context(open_tree(staged))
            former = os.fstat(root).st_uid
            for path in paths:
                abort.check()
                if (staged / path).exists():
                    continue
                try:
                    with open_beneath(root, path) as reading, parent_of(aside, path, make=True, owner=owner):
                        check_size(
                            reading, path
                        )  # before it is copied: the copy of a sparse file could fill the disk
                        found = os.fstat(reading)
                        whose = found.st_uid, found.st_gid
                        if owner is not None and found.st_uid == former:
                            whose = owner
                        _copy(reading, staged / path, whose, abort)
                except FileNotFoundError:
                    continue  # a patch that sets a value creates the file

    def changed_by(self, staged: pathlib.Path) -> list[str]:
        """The staged files that differ from the existing ones. PATH_REFUSED when the workload has put a link or a
        directory at the path of one of them."""
        with open_tree(self.path) as root:
            changed = [path for path in files_beneath(staged) if not self._same(root, staged, path)]
            for path in changed:
                _check_way(root, path)
            return changed

    def move_in(self, staged: pathlib.Path, changed: list[str], owner: tuple[int, int] | None) -> None:
        """Put these staged files in place, durably."""
        with open_tree(self.path) as root:
            flush(staged, changed)
            for path in changed:
                with parent_of(root, path, make=True, owner=owner) as parent:
                    os.rename(staged / path, path.rpartition("/")[2], dst_dir_fd=parent)
            flush_folders(root, changed)

    def make_directories(self, paths: Iterable[str], owner: tuple[int, int] | None) -> None:
        """Create those directories whose paths are free; none is made behind a link of the workload."""
        with open_tree(self.path) as root:
            for path in paths:
                if is_missing(root, path):
                    with parent_of(root, f"{path}/.", make=True, owner=owner) as made:
                        os.fsync(made)

    def _same(self, root: int, staged: pathlib.Path, path: str) -> bool:
        """Whether the world already has exactly this file."""
        try:
            with open_beneath(root, path) as present, (staged / path).open("rb") as new:
                found, expected = os.fstat(present), os.fstat(new.fileno())
                if (found.st_mode, found.st_size) != (expected.st_mode, expected.st_size):
                    return False
                while block := new.read(_BLOCK):
                    if os.read(present, len(block)) != block:
                        return False
                return True
        except (OSError, CorralError):
            return False

    def move_all_in(self, staged: pathlib.Path) -> None:
        """The first seeding: put the whole tree in place at once, durably."""
        files = files_beneath(staged)
        flush(staged, files)
        with open_tree(staged) as root:
            flush_folders(root, files)
        staged.rename(self.path)
        sync_directory(self._root)


def write_seed(path: pathlib.Path, seed: Seed) -> None:
    """Write the seed beside the static directory at `path`, durably."""
    seeds = path.parent / SEEDS
    seeds.mkdir(mode=0o700, exist_ok=True)
    store(seeds / f"{path.name}.json", seed, name=_FORMAT, version=_VERSION)


def files_beneath(root: pathlib.Path) -> list[str]:
    """Relative paths of everything that is not a directory, sorted."""
    with open_tree(root) as top:
        return sorted(found.path for found in walk(top) if not found.is_directory)


def _check_way(root: int, path: str) -> None:
    """Check that all existing parents are directories, and that the path itself is not one."""
    with contextlib.suppress(FileNotFoundError), parent_of(root, path) as parent:
        name = path.rpartition("/")[2]
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{path}' is a directory in the static files of the instance",
                hint="move it away; a file shall be there",
            )


def flush(root: pathlib.Path, paths: list[str]) -> None:
    """Flush these files to disk; many are flushed with everything else of the file system."""
    with open_tree(root) as descriptor:
        if len(paths) > _FLUSH_ALL:
            _flush_all(descriptor)
            return
        for path in paths:
            with open_beneath(descriptor, path) as file:
                os.fsync(file)


def flush_folders(root: int, paths: list[str]) -> None:
    """Flush the names of these files to disk, with those of every directory above them."""
    if len(paths) > _FLUSH_ALL:
        _flush_all(root)
        return
    for folder in reversed(directories_of(paths, ())):
        with parent_of(root, f"{folder}/.") as here:
            os.fsync(here)
    os.fsync(root)


def _flush_all(descriptor: int) -> None:
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _copy(reading: int, target: pathlib.Path, owner: tuple[int, int], abort: Abort) -> None:
    found = os.fstat(reading)
    writing = os.open(target, NEW_FILE, 0o600)
    try:
        copy_content(reading, writing, abort)
        if os.geteuid() == 0:
            os.fchown(writing, *owner)
        os.fchmod(writing, found.st_mode & 0o777)
    finally:
        os.close(writing)
