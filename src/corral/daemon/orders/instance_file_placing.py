"""Files that get their place in a working directory while its workload may be changing them too.

As in `instance_files` every directory is opened relative to the one before and no link is followed. A new file gets the
owner of the working directory, one that replaces another keeps its mode unless another is asked for, and its owner if that is asked for. A file is written aside and gets its
name in one rename, so that it is there as a whole or not at all. Aside is where working directories are made, which a
starting daemon empties: one that is killed in between leaves nothing in the directory itself.

A caller may require what lies there now, by its digest. Writers of ours take turns, so between comparison and rename only
the workload can interfere: see `file_exchange`, and `file_intents` for a daemon that is killed then. What the kernel cannot
show is a write through a descriptor that the workload had open before: that goes to the file that was replaced. Everything
here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

import msgspec

from corral.daemon.orders.file_conditions import (
    ANY_FILE,
    BUSY,
    FileCondition,
    SeenFile,
    changed,
    seen_file,
)
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import (
    Entry,
    Exchange,
    KeptBeside,
    LeftAside,
    Outcome,
    exchange_compared,
    mark_at,
    removed_unless_left_aside,
)
from corral.daemon.prepare.file_intents import ChangedTree, noted
from corral.domain.file_paths import DEEPEST, MOST_DIGESTED, check_path
from corral.errors import Code, Rejected
from corral.system.trees.entries import LINKED_MODE, NEW_FILE, open_tree, parent_of, write_whole
from corral.system.trees.renames import exchange as exchange_entries
from corral.system.trees.renames import rename_to_free

_MODE: Final = 0o644
TAKEN: Final = frozenset(
    {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO}
)
_BLOCK: Final = 1024 * 1024
_TRIES: Final = 3
Owner = tuple[int, int] | None


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    former: str = ""
    """The digest of the file before, if it was read."""
    unchanged: bool = False
    """It had this content already."""


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
    mode: int = 0,
    exchange: Exchange = exchange_entries,
) -> WrittenFile:
    """Give a whole file of `staging_beside(root)`, with this digest, its place in the tree; it is gone from there then.
    FileChanged when the condition does not hold, BODY_TOO_LARGE when the file is too large to be compared, PATH_REFUSED,
    NOT_FOUND when the tree was replaced by another meanwhile; OSError. After any of these nothing of this file is in the
    tree, and the workload's own is as the workload left it. `mode`: 0 keeps that of the file that is replaced."""
    check_path(path, field="path")
    name = path.rpartition("/")[2]
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(open_tree(root))
        owner = owner_of_tree(top)
        try:
            making = not condition.requires_file
            if making:
                check_depth(path.rpartition("/")[0])
            here = stack.enter_context(parent_of(top, path, make=making, owner=owner))
            present = regular_file(here, name, path)
        except FileNotFoundError:
            raise changed(path, "is not there") from None
        aside = stack.enter_context(open_tree(written.parent))
        kept, kept_mode = _owner_and_mode(present, owner, keep_owner=keep_owner, new_mode=new_mode)
        _set_owner_and_mode(aside, written.name, kept, mode or kept_mode, durable=durable)
        tree = ChangedTree(root.name, top, aside)
        place = _Place(Entry(here, name), path, tree, sha256, condition, abort, exchange)
        result = _placed(Entry(aside, written.name), place)
        if durable:
            sync_directory(here, path)
        require_same_tree(root, top)
    return result


class _Place(NamedTuple):
    """Where a file is put, and by which rules."""

    entry: Entry
    path: str
    tree: ChangedTree
    sha256: str
    condition: FileCondition
    abort: Abort
    exchange: Exchange


def _placed(staged: Entry, place: _Place) -> WrittenFile:
    """From where it was written, or, where nothing can be moved from there, from a copy beside its place. Whatever is left
    of either is removed."""
    with _removed(staged):
        with contextlib.suppress(_OtherFileSystem):
            return _Placing(staged, place).run()
        with _removed(Entry(place.entry.directory, f".corral-{secrets.token_hex(8)}")) as copy:
            _copy(staged, copy)
            return _Placing(copy, place).run()


@contextlib.contextmanager
def _removed(staged: Entry) -> Iterator[Entry]:
    """At its end there is only ours, or what is superseded; otherwise (LeftAside) it stays."""
    with removed_unless_left_aside(lambda: _unlink(staged)):
        yield staged


def _unlink(staged: Entry) -> None:
    with contextlib.suppress(OSError):
        os.unlink(staged.name, dir_fd=staged.directory)


class _OtherFileSystem(Exception):
    """Nothing can be moved there."""


class _Placing:
    """One file on its way to its place."""

    def __init__(self, staged: Entry, place: _Place) -> None:
        self._staged = staged
        self._place = place
        self._entry, self._path, self._condition = place.entry, place.path, place.condition

    def run(self) -> WrittenFile:
        condition = self._condition
        try:
            if condition.absent:
                return self._place_first()
            if condition.digests:
                return self._compared()
            if condition.present and regular_file(*self._entry, self._path) is None:
                raise changed(self._path, "is not there")
            self._rename()
            return WrittenFile()
        except LeftAside:
            raise
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _OtherFileSystem from error
            if error.errno in TAKEN:
                raise no_file(self._path, is_directory=error.errno == errno.EISDIR) from error
            raise

    def _place_first(self) -> WrittenFile:
        try:
            rename_to_free(*self._staged, *self._entry)
        except FileExistsError:
            self._refuse_taken()
        return WrittenFile()

    def _refuse_taken(self) -> NoReturn:
        """With its digest, if it is not too large."""
        found = regular_file(*self._entry, self._path)
        if found is None:
            raise changed(self._path, "was there a moment ago")
        digest = ""
        if found.st_size <= min(self._condition.max_bytes, MOST_DIGESTED):
            with self._seen() as seen:
                digest = seen.digest
        raise changed(self._path, "is there already", digest)

    def _compared(self) -> WrittenFile:
        try:
            for _ in range(_TRIES):
                if written := self._placed_compared():
                    return written
        except FileNotFoundError:
            raise changed(self._path, "is not there") from None
        except KeptBeside as kept:
            raise changed(self._path, BUSY, kept=kept.name) from kept
        raise changed(self._path, BUSY)

    def _placed_compared(self) -> WrittenFile | None:
        """None: the file of the workload was changed at this moment, has its name, and the new one lies where it was."""
        with self._seen() as seen:
            if seen.digest not in self._condition.digests:
                if seen.digest == self._place.sha256:  # by an earlier attempt of the same caller
                    return WrittenFile(former=seen.digest, unchanged=True)
                raise changed(self._path, "has another content", seen.digest)
            own = mark_at(self._staged)
            with noted(self._place.tree, self._path, self._staged, seen.compared, own=own):
                outcome = exchange_compared(
                    self._staged, self._entry, is_expected=seen.is_at, exchange=self._place.exchange
                )
            if outcome is Outcome.OVERTAKEN:
                raise changed(self._path, BUSY)
            if outcome is Outcome.IMPOSSIBLE and seen.is_at(self._entry):
                self._rename()
                outcome = Outcome.REPLACED
            return WrittenFile(former=seen.digest) if outcome is Outcome.REPLACED else None

    def _seen(self) -> contextlib.AbstractContextManager[SeenFile]:
        return seen_file(self._entry, self._path, self._condition, self._place.abort)

    def _rename(self) -> None:
        source, target = self._staged, self._entry
        os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)


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


def _owner_and_mode(
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


def _set_owner_and_mode(aside: int, name: str, owner: Owner, mode: int, *, durable: bool) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=aside)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(staged: Entry, copy: Entry) -> None:
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


def owner_of_tree(top: int) -> Owner:
    """Owner of the working directory; None when the daemon can make only files of its own."""
    found = os.fstat(top)
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 else None


def sync_directory(directory: int, path: str) -> None:
    """Have the disk keep a name that was given in it. MAY_HAVE_ARRIVED when it refuses: the change is made, and may not last."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise Rejected(
            Code.MAY_HAVE_ARRIVED,
            f"'{path}' is changed, and the disk does not say that it keeps it: {error.strerror}",
            hint="look at the file, and at the disk of the node",
        ) from error


def check_depth(directory: str) -> None:
    """PATH_REFUSED for a directory that could be made and not be packed."""
    if directory.count("/") >= DEEPEST:
        raise Rejected(
            Code.PATH_REFUSED,
            f"'{directory[:80]}…' is nested deeper than {DEEPEST} directories",
            hint="choose a shorter path: what is deeper cannot be listed, packed or saved",
            field="path",
        )


def regular_file(here: int, name: str, path: str) -> os.stat_result | None:
    """The status of the file there; None when there is none."""
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise no_file(path, is_directory=stat.S_ISDIR(found.st_mode))
    return found


def no_file(path: str, *, is_directory: bool) -> Rejected:
    """The refusal to write to what lies there."""
    if is_directory:
        return Rejected(
            Code.PATH_REFUSED,
            f"'{path}' is a directory",
            hint=f"nothing was written; name a file in it: '{path}/NAME'",
        )
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is no regular file of the instance's own",
        hint="nothing was written; links and the like are left alone: name another path",
    )
