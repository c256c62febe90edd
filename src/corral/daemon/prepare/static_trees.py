"""Directories that instances keep: seeded once, changed file by file, and never at the cost of a world.

Beside the directory lies what it was last seeded with. When templates, artifacts or the values of
variables in files have changed since, the files concerned are made aside, flushed, and renamed into
place one by one; only then the new seed is written. Killed at any point, a directory holds each file in
its old or its new form, and the next start does the rest again. Protected files and files that no
template has are never touched, and nothing is ever deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import stat
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from corral.daemon.durable import store
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.copying import copy_content
from corral.daemon.prepare.layout import directories_of
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.prepare.values import Values
from corral.domain.file_paths import Globs, globs
from corral.domain.plans import Plan
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


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """What a static directory was last made of."""

    templates: tuple[str, ...] = ()
    merge: tuple[str, ...] = ()
    placed: dict[str, str] = {}
    """Artifacts by their place, each with its digest."""
    substitute: tuple[str, ...] | None = None
    """None: written before anybody wrote it down."""
    rendered: dict[str, dict[str, str | None]] = {}
    """Files with variables, and what these were replaced by; secrets are not in it."""
    hidden: tuple[str, ...] = ()
    """Files with secrets: whether these are the same is written nowhere, so they are filled in anew."""


def seed_of(plan: Plan, rendered: Rendered) -> Seed:
    artifacts = (*((plan.artifact,) if plan.artifact else ()), *(e.artifact for e in plan.extensions))
    return Seed(
        templates=tuple(f"{t.name}@{t.hash}{'' if t.override else '?'}" for t in plan.templates),
        merge=plan.merge,
        placed={artifact.file: artifact.sha256 for artifact in artifacts},
        substitute=plan.substitute,
        rendered=rendered.files,
        hidden=tuple(sorted(rendered.hidden)),
    )


class StaticTree:
    """The directory of one static instance. Everything blocks."""

    def __init__(self, root: pathlib.Path, instance_id: str, plan: Plan) -> None:
        self.path = root / instance_id
        self._root = root
        self._seeds = root / SEEDS
        self._seed_file = self._seeds / f"{instance_id}.json"
        self._plan = plan
        self._protected: Globs = globs(plan.protected_paths)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)

    def seed(self) -> Seed | None:
        """None when nobody knows: then everything is laid again, as far as it is not protected."""
        try:
            return read_versioned(self._seed_file, Seed, name=_FORMAT, version=_VERSION)
        except CorralError as error:
            _log.warning("instances.seed_unreadable", path=str(self._seed_file), reason=str(error))
            return None

    def write_seed(self, seed: Seed) -> None:
        self._seeds.mkdir(mode=0o700, exist_ok=True)
        store(self._seed_file, seed, name=_FORMAT, version=_VERSION)

    def stale(self, values: Values) -> frozenset[str] | None:
        """Which files have to be laid again; None: all that templates and artifacts have."""
        before, now = self.seed(), seed_of(self._plan, Rendered())
        if before is None or (before.templates, before.merge) != (now.templates, now.merge):
            return None
        if before.substitute not in (None, now.substitute):
            return None
        found = set(before.hidden) | {
            path
            for path, used in before.rendered.items()
            if any(values.all.get(name) != value for name, value in used.items())
        }
        with open_tree(self.path) as root:
            found |= {
                file
                for file, digest in now.placed.items()
                if before.placed.get(file) != digest or is_missing(root, file)
            }
        return self.open_to_change(found)

    def open_to_change(self, paths: Iterable[str]) -> frozenset[str]:
        """Without those that are protected and there."""
        with open_tree(self.path) as root:
            return frozenset(
                path for path in paths if not self._protected.matches(path) or is_missing(root, path)
            )

    def bring(
        self, staged: pathlib.Path, paths: Iterable[str], owner: tuple[int, int] | None, abort: Abort
    ) -> None:
        """Copies of files of the world that are to be patched, where no newer form is staged. Those of its
        owner, who may change with this start, are the workload's, and so are directories: a file that a patch
        makes anew takes after the one it is made in."""
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
                        found = os.fstat(reading)
                        whose = found.st_uid, found.st_gid
                        if owner is not None and found.st_uid == former:
                            whose = owner
                        _copy(reading, staged / path, whose, abort)
                except FileNotFoundError:
                    continue  # a patch that sets something makes the file

    def move_in(self, staged: pathlib.Path, owner: tuple[int, int] | None) -> int:
        """Every staged file that differs takes its place, durably; returns how many did. PATH_REFUSED, with
        nothing moved, when the workload has put a link or a directory where one of them goes."""
        with open_tree(self.path) as root:
            changed = [path for path in files_beneath(staged) if not self._same(root, staged, path)]
            for path in changed:
                _check_way(root, path)
            flush(staged, changed)
            for path in changed:
                with parent_of(root, path, make=True, owner=owner) as parent:
                    os.rename(staged / path, path.rpartition("/")[2], dst_dir_fd=parent)
            flush_folders(root, changed)
            return len(changed)

    def _same(self, root: int, staged: pathlib.Path, path: str) -> bool:
        """Whether the world has this very file already."""
        try:
            with open_beneath(root, path) as present, (staged / path).open("rb") as new:
                found, wanted = os.fstat(present), os.fstat(new.fileno())
                if (found.st_mode, found.st_size) != (wanted.st_mode, wanted.st_size):
                    return False
                while block := new.read(_BLOCK):
                    if os.read(present, len(block)) != block:
                        return False
                return True
        except (OSError, CorralError):
            return False

    def move_all_in(self, staged: pathlib.Path) -> None:
        """The first seeding: the whole tree at once, durably."""
        files = files_beneath(staged)
        flush(staged, files)
        with open_tree(staged) as root:
            flush_folders(root, files)
        staged.rename(self.path)
        sync_directory(self._root)


def files_beneath(root: pathlib.Path) -> list[str]:
    """Relative paths of everything that is no directory, sorted."""
    with open_tree(root) as top:
        return sorted(found.path for found in walk(top) if not found.is_directory)


def _check_way(root: int, path: str) -> None:
    """Nothing but directories on the way to it, as far as there are any, and none at its end."""
    with contextlib.suppress(FileNotFoundError), parent_of(root, path) as parent:
        name = path.rpartition("/")[2]
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{path}' is a directory in the static files of the instance",
                hint="move it away; a file shall be there",
            )


def flush(root: pathlib.Path, paths: list[str]) -> None:
    """These files are on disk afterwards; many are flushed with everything else of the file system."""
    with open_tree(root) as descriptor:
        if len(paths) > _FLUSH_ALL:
            _flush_all(descriptor)
            return
        for path in paths:
            with open_beneath(descriptor, path) as file:
                os.fsync(file)


def flush_folders(root: int, paths: list[str]) -> None:
    """The names of these files are on disk afterwards, with those of every directory above them."""
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


def merged_rendering(tree: StaticTree, fresh: Rendered, laid: frozenset[str] | None) -> Rendered:
    """What is known of variables in files after this start: of files laid now what they got now."""
    before = tree.seed()
    if before is None or laid is None:
        return fresh
    kept = {path: used for path, used in before.rendered.items() if path not in laid}
    return Rendered(
        files={**kept, **fresh.files}, hidden=frozenset(before.hidden).difference(laid) | fresh.hidden
    )
