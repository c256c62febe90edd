"""Files that get their place in a working directory while its workload may be changing them too.

As in `instance_files` every directory is opened relative to the one before and no link is followed. A new file gets the
owner of the working directory, one that replaces another keeps its mode, and its owner if that is asked for. A file is written aside and gets its
name in one rename, so that it is there as a whole or not at all. Aside is where working directories are made, which a
starting daemon empties: one that is killed in between leaves nothing in the directory itself.

A caller may require what lies there now, by its digest. Writers of ours take turns, so between comparison and rename only
the workload can interfere: the two files exchange their places in one step, and the one that comes out is compared once
more with the one that was read. If it is another, they are exchanged back. What the kernel cannot show is a write through
a descriptor that the workload had open before: that goes to the file that was replaced. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.domain.file_paths import check_path
from corral.errors import Code, FileChanged, Rejected
from corral.system.trees.entries import (
    LINKED_MODE,
    NEW_FILE,
    open_regular,
    open_tree,
    parent_of,
    write_whole,
)
from corral.system.trees.renames import exchange, rename_to_free

_MODE: Final = 0o644
TAKEN: Final = frozenset(
    {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO}
)
_BLOCK: Final = 1024 * 1024
_TRIES: Final = 3
Owner = tuple[int, int] | None


class FileCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller requires of the file that it changes."""

    digests: frozenset[str] = frozenset()
    """It has one of these; empty: any."""
    present: bool = False
    absent: bool = False

    @property
    def requires_file(self) -> bool:
        return self.present or bool(self.digests)


ANY_FILE: Final = FileCondition()


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    former: str = ""
    """The digest of the file before, if it was read."""
    unchanged: bool = False
    """It had this content already."""


class SeenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read."""

    digest: str
    mark: tuple[int, int, int, int]
    """Device, inode, size and time of change: another one where somebody wrote or replaced it."""


def place_file(
    root: pathlib.Path,
    path: str,
    written: pathlib.Path,
    sha256: str,
    *,
    condition: FileCondition = ANY_FILE,
    abort: Abort,
    durable: bool = True,
    keep_owner: bool = True,
    new_mode: int = _MODE,
) -> WrittenFile:
    """Give a whole file of `staging_beside(root)`, with this digest, its place in the tree; it is gone from there then. FileChanged when the condition does not hold, PATH_REFUSED, NOT_FOUND when the tree was replaced by
    another meanwhile; OSError. After any of these the tree is as it was."""
    check_path(path, field="path")
    name = path.rpartition("/")[2]
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(open_tree(root))
        owner = owner_of_tree(top)
        try:
            making = not condition.requires_file
            here = stack.enter_context(parent_of(top, path, make=making, owner=owner))
            present = regular_file(here, name, path)
        except FileNotFoundError:
            raise changed(path, "is not there") from None
        aside = stack.enter_context(open_tree(written.parent))
        looks = _looks(present, owner, keep_owner=keep_owner, new_mode=new_mode)
        _dress(aside, written.name, *looks, durable=durable)
        result = _placed(_Staged(aside, written.name), here, _Target(path, sha256, condition), abort)
        if durable:
            os.fsync(here)
        require_same_tree(root, top)
    return result


class _Staged(NamedTuple):
    directory: int
    name: str


class _Target(NamedTuple):
    path: str
    sha256: str
    condition: FileCondition


def _placed(staged: _Staged, here: int, target: _Target, abort: Abort) -> WrittenFile:
    """From where it was written, or, where nothing can be moved from there, from a copy beside its place. Whatever is left
    of either is removed."""
    with _removed(staged):
        with contextlib.suppress(_OtherFileSystem):
            return _Placing(staged, here, target, abort).run()
        with _removed(_Staged(here, f".corral-{secrets.token_hex(8)}")) as copy:
            _copy(staged, copy)
            return _Placing(copy, here, target, abort).run()


@contextlib.contextmanager
def _removed(staged: _Staged) -> Iterator[_Staged]:
    try:
        yield staged
    finally:
        with contextlib.suppress(OSError):
            os.unlink(staged.name, dir_fd=staged.directory)


class _OtherFileSystem(Exception):
    """Nothing can be moved there."""


class _Placing:
    """One file on its way to its place."""

    def __init__(self, staged: _Staged, here: int, target: _Target, abort: Abort) -> None:
        self._staged = staged
        self._here = here
        self._path, self._sha256, self._condition = target
        self._name = self._path.rpartition("/")[2]
        self._abort = abort

    def run(self) -> WrittenFile:
        condition = self._condition
        try:
            if condition.absent:
                return self._place_first()
            if condition.digests:
                return self._compared()
            if condition.present and regular_file(self._here, self._name, self._path) is None:
                raise changed(self._path, "is not there")
            self._rename()
            return WrittenFile()
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _OtherFileSystem from error
            if error.errno in TAKEN:
                raise no_file(self._path) from error
            raise

    def _place_first(self) -> WrittenFile:
        try:
            rename_to_free(*self._staged, self._here, self._name)
        except FileExistsError:
            if regular_file(self._here, self._name, self._path) is None:
                raise changed(self._path, "was there a moment ago") from None
            seen = seen_file(self._here, self._name, self._path, self._abort)
            raise changed(self._path, "is there already", seen.digest) from None
        return WrittenFile()

    def _compared(self) -> WrittenFile:
        try:
            return self._place_compared()
        except FileNotFoundError:
            raise changed(self._path, "is not there") from None

    def _place_compared(self) -> WrittenFile:
        for _ in range(_TRIES):
            seen = _look(self._here, self._name, self._path, self._abort)
            if seen.digest not in self._condition.digests:
                if seen.digest == self._sha256:  # by an earlier attempt of the same caller
                    return WrittenFile(former=seen.digest, unchanged=True)
                raise changed(self._path, "has another content", seen.digest)
            if not exchange(*self._staged, self._here, self._name):
                if not is_that_file(self._here, self._name, seen):
                    continue
                self._rename()
                return WrittenFile(former=seen.digest)
            if is_that_file(*self._staged, seen):
                return WrittenFile(former=seen.digest)  # the replaced one is removed with what was staged
            exchange(*self._staged, self._here, self._name)
        raise changed(self._path, "is being written by another process")

    def _rename(self) -> None:
        os.rename(self._staged.name, self._name, src_dir_fd=self._staged.directory, dst_dir_fd=self._here)


def _look(here: int, name: str, path: str, abort: Abort) -> SeenFile:
    """A regular file, read whole at a moment at which nobody wrote to it; FileChanged when there is no such moment.
    FileNotFoundError, PATH_REFUSED."""
    for left in reversed(range(_TRIES)):
        try:
            descriptor = open_regular(here, name, shown=path)
        except Rejected:
            if left:
                continue  # one that is replaced at this moment looks as if it had another name
            raise
        try:
            before = _mark(os.fstat(descriptor))
            digest = digest_of(descriptor, abort)
            if _mark(os.fstat(descriptor)) == before:
                return SeenFile(digest=digest, mark=before)
        finally:
            os.close(descriptor)
    raise changed(path, "is being written by another process")


def seen_file(here: int, name: str, path: str, abort: Abort) -> SeenFile:
    """A regular file, read; FileChanged when it is gone or being written, PATH_REFUSED."""
    try:
        return _look(here, name, path, abort)
    except FileNotFoundError:
        raise changed(path, "is not there") from None


def is_that_file(here: int, name: str, seen: SeenFile) -> bool:
    """Whether the entry of this name is still the file that was read, and as it was."""
    with contextlib.suppress(FileNotFoundError):
        return _mark(_entry(here, name)) == seen.mark
    return False


def digest_of(descriptor: int, abort: Abort, *, offset: int = 0, length: int | None = None) -> str:
    """SHA-256 of the file from an offset on, of so many bytes or to its end."""
    hasher = hashlib.sha256()
    at, left = offset, length
    while left is None or left > 0:
        abort.check()
        block = os.pread(descriptor, _BLOCK if left is None else min(_BLOCK, left), at)
        if not block:
            break
        hasher.update(block)
        at += len(block)
        left = None if left is None else left - len(block)
    return hasher.hexdigest()


def require_same_tree(root: pathlib.Path, top: int) -> None:
    """NOT_FOUND when the working directory is not the one that was changed: its instance was started anew, or removed."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(root, follow_symlinks=False), os.fstat(top)):  # noqa: PTH116 - no link is followed
            return
    raise Rejected(
        Code.NOT_FOUND,
        "the directory of the instance was replaced by a new one meanwhile",
        hint="it was started anew or removed; try again if it is there",
    )


def _entry(here: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=here, follow_symlinks=False)


def _mark(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _looks(
    present: os.stat_result | None, owner: Owner, *, keep_owner: bool, new_mode: int
) -> tuple[Owner, int]:
    """Owner and mode of a file that replaces this one. One that is linked out of the cache is as good as none."""
    if present is None or (
        stat.S_IMODE(present.st_mode) == LINKED_MODE
        and present.st_uid == os.geteuid()
        and present.st_nlink > 1
    ):
        return owner, new_mode
    kept = owner
    if keep_owner and owner is not None and present.st_nlink == 1:
        kept = (present.st_uid, present.st_gid)
    return kept, stat.S_IMODE(present.st_mode) & 0o777


def _dress(aside: int, name: str, owner: Owner, mode: int, *, durable: bool) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=aside)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(staged: _Staged, copy: _Staged) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    source = os.open(staged.name, flags, dir_fd=staged.directory)
    try:
        target = os.open(copy.name, NEW_FILE, 0o600, dir_fd=copy.directory)
        try:
            while block := os.read(source, _BLOCK):
                write_whole(target, block)
            found = os.fstat(source)
            if os.geteuid() == 0:
                os.fchown(target, found.st_uid, found.st_gid)
            os.fchmod(target, stat.S_IMODE(found.st_mode))
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def changed(path: str, what: str, digest: str = "") -> FileChanged:
    return FileChanged(
        f"'{path}' {what}",
        digest=digest,
        hint="nothing was written; look at it, and send it again with the digest that it has now",
    )


def owner_of_tree(top: int) -> Owner:
    """Owner of the working directory; None when the daemon can make only files of its own."""
    found = os.fstat(top)
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 else None


def regular_file(here: int, name: str, path: str) -> os.stat_result | None:
    """The status of the file there; None when there is none."""
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise no_file(path)
    return found


def no_file(path: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is no regular file of the instance's own",
        hint="links, directories and the like are not written to; nothing was",
    )
