"""Changes of a working directory while its workload may be changing it too: names, directories, removal, archives.

By descriptor, as in `instance_file_placing`; nothing outside is touched. What is removed is first moved aside, in one
step, and deleted there: a directory with a million files is gone at once, and one that is half deleted is never seen.
Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Callable
from typing import Final

import msgspec

from corral.archives.archive_reader import read_archive
from corral.archives.limits import ArchiveLimits
from corral.archives.paths import DistinctPaths
from corral.archives.refusals import UNPACK_REFUSALS
from corral.daemon.orders.instance_file_placing import (
    ANY_FILE,
    TAKEN,
    FileCondition,
    SeenFile,
    changed,
    is_that_file,
    owner_of_tree,
    place_file,
    require_same_tree,
    seen_file,
)
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.working_directories import staging_beside
from corral.domain.file_paths import DEEPEST, PATH_MAX, beneath, check_path
from corral.errors import Code, Rejected
from corral.system.trees.entries import entry_at, open_beneath, open_tree, parent_of
from corral.system.trees.removal import remove
from corral.system.trees.renames import rename_to_free

_ENTRY_BYTES: Final = 2048
"""What a tar may have beside the content of each entry."""
_EXECUTABLE: Final = 0o111


def make_directory(root: pathlib.Path, path: str) -> bool:
    """Make it, and those above it; False when it was there. PATH_REFUSED when something else is in the way; OSError."""
    check_path(path, field="path")
    with open_tree(root) as top:
        before = entry_at(top, path)
        with parent_of(top, f"{path}/", make=True, owner=owner_of_tree(top)):
            require_same_tree(root, top)
    return before is None


def move_entry(
    root: pathlib.Path,
    path: str,
    target: str,
    *,
    replace: bool,
    abort: Abort,
    condition: FileCondition = ANY_FILE,
) -> str:
    """Move a file or a directory to another path of the tree, whose directory exists; returns the digest of a file that was
    compared. ALREADY_EXISTS unless `replace`, by which a file replaces a file; FileChanged, PATH_REFUSED,
    FileNotFoundError; OSError."""
    check_path(path, field="path")
    check_path(target, field="to")
    if beneath(target, path):
        raise _refused(f"'{path}' cannot be moved to a place in itself", "choose another target", field="to")
    name, new_name = path.rpartition("/")[2], target.rpartition("/")[2]
    with open_tree(root) as top, parent_of(top, path) as here, parent_of(top, target) as there:
        kind = _movable(here, name, path)
        seen = _compared(here, name, path, condition, abort)
        try:
            if replace and kind == stat.S_IFREG and _kind(there, new_name) == stat.S_IFREG:
                os.rename(name, new_name, src_dir_fd=here, dst_dir_fd=there)
            else:
                rename_to_free(here, name, there, new_name)
        except FileExistsError:
            hint = (
                "'replace' replaces a file by a file" if not replace else "only a file is replaced, by a file"
            )
            raise Rejected(
                Code.ALREADY_EXISTS, f"'{target}' is there already", hint=hint, field="to"
            ) from None
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EINVAL, errno.EBUSY):
                raise _refused(
                    f"'{path}' cannot be moved to '{target}': {error.strerror}", _MOUNTED
                ) from error
            raise
        _undo_unless(seen, (there, new_name), (here, name), path)
        os.fsync(there)
        require_same_tree(root, top)
    return "" if seen is None else seen.digest


def remove_entry(
    root: pathlib.Path, path: str, *, recursive: bool, abort: Abort, condition: FileCondition = ANY_FILE
) -> pathlib.Path:
    """Remove a file, a link itself, or a directory, if it is empty or with everything in it. It is at the returned path
    then, where nobody sees it; the caller deletes it there. PATH_REFUSED for a directory that is not empty, unless
    `recursive`; FileChanged, FileNotFoundError; OSError."""
    check_path(path, field="path")
    name = path.rpartition("/")[2]
    place = staging_beside(root)
    aside_name = f".corral-gone-{secrets.token_hex(8)}"
    with open_tree(root) as top, parent_of(top, path) as here, open_tree(place) as aside:
        kind = stat.S_IFMT(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
        seen = _compared(here, name, path, condition, abort)
        try:
            if kind == stat.S_IFDIR and not recursive:
                os.rmdir(name, dir_fd=here)
            else:
                os.rename(name, aside_name, src_dir_fd=here, dst_dir_fd=aside)
        except OSError as error:
            if error.errno in TAKEN:
                raise _refused(
                    f"'{path}' is a directory that is not empty",
                    "with 'recursive' (-r) everything in it is deleted, too",
                ) from error
            if error.errno in (errno.EXDEV, errno.EBUSY):
                _remove_in_place(here, name, path, kind, error)
            else:
                raise
        else:
            _undo_unless(seen, (aside, aside_name), (here, name), path)
        require_same_tree(root, top)
    return place / aside_name


def _remove_in_place(here: int, name: str, path: str, kind: int, error: OSError) -> None:
    """On another file system that is mounted there: single files only."""
    if kind == stat.S_IFDIR:
        raise _refused(f"'{path}' is not removed: {error.strerror}", _MOUNTED) from error
    os.unlink(name, dir_fd=here)


class UnpackBounds(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    entries: int
    room: Callable[[int], None]
    """Called with the bytes that are about to be written; raises DISK_FULL."""


def unpack(
    root: pathlib.Path, path: str, target: str, *, replace: bool, bounds: UnpackBounds, abort: Abort
) -> int:
    """Unpack an archive that lies in the tree; returns how many files and directories it had. It is unpacked aside first,
    whole and within the bounds, and then file by file put in place. ALREADY_EXISTS unless `replace`;
    ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED, DISK_FULL, FileNotFoundError; OSError."""
    check_path(path, field="path")
    if target:
        check_path(target, field="to")
    aside = staging_beside(root) / f".corral-unpack-{secrets.token_hex(8)}"
    aside.mkdir(mode=0o700)
    try:
        unpacking = _Unpacking(aside, bounds, abort)
        with open_tree(root) as top, open_beneath(top, path) as archive:
            unpacking.read(archive)
            if not replace:
                unpacking.refuse_taken(top, target)
        for directory in unpacking.directories:
            make_directory(root, _below(target, directory))
        condition = ANY_FILE if replace else FileCondition(absent=True)
        for file in unpacking.modes:
            abort.check()
            place_file(
                root,
                _below(target, file),
                aside / file,
                "",
                condition=condition,
                abort=abort,
                durable=False,
                new_mode=unpacking.modes[file],
            )
    finally:
        remove(aside)
    return len(unpacking.modes) + len(unpacking.directories)


class _Unpacking:
    """An archive that is unpacked into a directory of ours."""

    def __init__(self, aside: pathlib.Path, bounds: UnpackBounds, abort: Abort) -> None:
        self._aside = aside
        self._bounds = bounds
        self._abort = abort
        self.modes: dict[str, int] = {}
        """Of the files, by their paths."""
        self.directories: list[str] = []

    def read(self, archive: int) -> None:
        bounds = self._bounds
        limits = ArchiveLimits(
            max_bytes=bounds.size,
            max_entries=bounds.entries,
            max_stream_bytes=bounds.size + bounds.entries * _ENTRY_BYTES,
            max_name_bytes=PATH_MAX,
            max_depth=DEEPEST,
        )
        paths = DistinctPaths(limits=limits, refusals=UNPACK_REFUSALS)
        with os.fdopen(os.dup(archive), "rb") as file:
            written = 0
            for entry, blocks in read_archive(file, limits=limits, refusals=UNPACK_REFUSALS):
                self._abort.check()
                name = entry.name.removeprefix("./").removesuffix("/")
                if not name or name == ".":
                    continue
                path = paths.add(f"{name}/" if entry.directory else name)
                if entry.directory:
                    (self._aside / path).mkdir(mode=0o700, parents=True, exist_ok=True)
                    self.directories.append(path)
                    continue
                self.modes[path] = 0o755 if entry.mode & _EXECUTABLE else 0o644
                place = self._aside / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with place.open("xb") as target:
                    for block in blocks:
                        self._abort.check()
                        written += len(block)
                        if written > bounds.size:
                            raise UNPACK_REFUSALS.too_many_bytes(limits)
                        bounds.room(len(block))
                        target.write(block)

    def refuse_taken(self, top: int, target: str) -> None:
        for file in self.modes:
            found = entry_at(top, _below(target, file))
            if found is not None:
                raise Rejected(
                    Code.ALREADY_EXISTS,
                    f"'{_below(target, file)}' is there already",
                    hint="nothing was unpacked; unpack it elsewhere, or with 'replace'",
                    field="to",
                )


def _below(target: str, path: str) -> str:
    return f"{target}/{path}" if target else path


def _compared(here: int, name: str, path: str, condition: FileCondition, abort: Abort) -> SeenFile | None:
    """The file, if a digest is required of it. FileChanged."""
    if not condition.digests:
        return None
    seen = seen_file(here, name, path, abort)
    if seen.digest not in condition.digests:
        raise changed(path, "has another content", seen.digest)
    return seen


def _undo_unless(seen: SeenFile | None, moved: tuple[int, str], back: tuple[int, str], path: str) -> None:
    """Move it back, if what was moved is not what was read: somebody replaced or wrote it in between. If there is another
    one by now, what was moved stays where it is."""
    if seen is None or is_that_file(*moved, seen):
        return
    with contextlib.suppress(FileExistsError):
        rename_to_free(*moved, *back)
    raise changed(path, "was changed at this moment")


def _movable(here: int, name: str, path: str) -> int:
    kind = stat.S_IFMT(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise _refused(f"'{path}' is a link or no regular file", "only files and directories are moved")
    return kind


def _kind(here: int, name: str) -> int:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _refused(what: str, hint: str, *, field: str = "path") -> Rejected:
    return Rejected(Code.PATH_REFUSED, what, hint=hint, field=field)


_MOUNTED: Final = "another file system may be mounted there"
