"""Changes of a working directory while its workload may be changing it too: names, directories, removal.

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
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from corral.daemon.orders.file_conditions import ANY_FILE, FileCondition, SeenFile, changed, seen_file
from corral.daemon.orders.instance_file_placing import (
    TAKEN,
    check_depth,
    owner_of_tree,
    require_same_tree,
    sync_directory,
)
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import Entry, LeftAside, keep_beside, name_again, put_back_moved
from corral.daemon.prepare.file_intents import ChangedTree, noted
from corral.daemon.prepare.working_directories import staging_beside
from corral.domain.file_paths import DEEPEST, beneath, check_named, check_path
from corral.errors import Code, Rejected
from corral.system.trees.entries import DIRECTORY, entry_at, open_tree, parent_of
from corral.system.trees.renames import rename_to_free
from corral.system.trees.walk import walk


class Rename(Protocol):
    """Moves an entry to a free name."""

    def __call__(self, source: int, name: str, target: int, new_name: str, /) -> None: ...


def make_directory(root: pathlib.Path, path: str) -> bool:
    """Make it, and those above it; False when it was there. PATH_REFUSED when something else is in the way, or it is too deep; OSError."""
    check_path(path, field="path")
    check_depth(path)
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
    rename: Rename = rename_to_free,
) -> str:
    """Move a file or a directory to another path of the tree, whose directory exists; returns the digest of a file that was
    compared. ALREADY_EXISTS unless `replace`, by which a file replaces a file; NOT_FOUND without that directory; FileChanged, BODY_TOO_LARGE, PATH_REFUSED,
    FileNotFoundError; OSError. After any of these nothing lies at the target that did not before."""
    check_named(path, field="path")
    check_path(target, field="to")
    if beneath(target, path):
        raise _refused(f"'{path}' cannot be moved to a place in itself", "choose another target", field="to")
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(open_tree(root))
        source = _entry_of(stack, top, path)
        kind = _movable(source, path)
        try:
            goal = _entry_of(stack, top, target)
        except FileNotFoundError:
            above = target.rpartition("/")[0]
            raise Rejected(
                Code.NOT_FOUND, f"there is no directory '{above}'", hint="make it with mkdir", field="to"
            ) from None
        over = replace and kind == stat.S_IFREG and _kind(goal) == stat.S_IFREG
        if not over and _kind(goal):
            raise _taken(target, replace=replace)
        _require_depth(source, path, target, abort, directory=kind == stat.S_IFDIR)
        seen = _compared(stack, source, path, condition, abort)
        try:
            if seen is None:
                _rename(source, goal, over=over)
            else:
                tree = ChangedTree(root.name, top, stack.enter_context(open_tree(staging_beside(root))))
                way = _Way(tree, path, target.rpartition("/")[0], rename)
                _move_compared(source, goal, seen, way, over=over)
        except FileExistsError:
            raise _taken(target, replace=replace) from None
        except LeftAside:
            raise
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EINVAL, errno.EBUSY):
                raise _refused(
                    f"'{path}' cannot be moved to '{target}': {error.strerror}", _MOUNTED
                ) from error
            raise
        sync_directory(goal.directory, target)
        require_same_tree(root, top)
    return "" if seen is None else seen.digest


def _require_depth(source: Entry, path: str, target: str, abort: Abort, *, directory: bool) -> None:
    """PATH_REFUSED for a move by which something would lie deeper than can be listed and packed."""
    check_depth(target if directory else target.rpartition("/")[0])
    if not directory or target.count("/") <= path.count("/"):
        return
    descriptor = os.open(source.name, DIRECTORY, dir_fd=source.directory)
    try:
        for _ in walk(descriptor, deepest=DEEPEST - 1 - target.count("/")):
            abort.check()
    except Rejected as error:
        if error.code is not Code.PATH_REFUSED:
            raise
        hint = "choose a target that is less deep: what is deeper cannot be listed, packed or saved"
        raise _refused(f"'{path}' is nested too deep for '{target}'", hint, field="to") from None
    finally:
        os.close(descriptor)


class _Way(NamedTuple):
    """How a file is moved away, to be looked at."""

    tree: ChangedTree
    path: str
    beside: str | None
    """The directory of the tree that it is moved to; None: that of what is staged."""
    move: Rename

    @contextlib.contextmanager
    def taken(self, entry: Entry, aside: Entry, seen: SeenFile | None) -> Iterator[None]:
        """What is done then is noted as long as it may have to be undone. FileChanged, and then it has its name again."""
        with contextlib.ExitStack() as stack:
            if seen is not None:
                stack.enter_context(noted(self.tree, self.path, aside, seen.compared, beside=self.beside))
            self.move(*entry, *aside)
            _undo_unless(seen, aside, entry, self.path)
            yield


def _move_compared(source: Entry, goal: Entry, seen: SeenFile, way: _Way, *, over: bool) -> None:
    """By way of a free name beside the target: what lies there is replaced only by the file that was read."""
    passing = Entry(goal.directory, f".corral-move-{secrets.token_hex(8)}")
    with way.taken(source, passing, seen):
        try:
            _rename(passing, goal, over=over)
        except BaseException:
            _put_back(passing, source)
            raise


def _rename(source: Entry, goal: Entry, *, over: bool) -> None:
    if over:
        os.rename(source.name, goal.name, src_dir_fd=source.directory, dst_dir_fd=goal.directory)
    else:
        rename_to_free(*source, *goal)


def remove_entry(
    root: pathlib.Path,
    path: str,
    *,
    recursive: bool,
    abort: Abort,
    condition: FileCondition = ANY_FILE,
    rename: Rename = rename_to_free,
) -> pathlib.Path:
    """Remove a file, a link itself, or a directory, if it is empty or with everything in it. It is at the returned path
    then, where nobody sees it; the caller deletes it there. PATH_REFUSED for a directory that is not empty, unless
    `recursive`; FileChanged, BODY_TOO_LARGE, FileNotFoundError; OSError."""
    check_named(path, field="path")
    place = staging_beside(root)
    gone = f".corral-gone-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(open_tree(root))
        entry = _entry_of(stack, top, path)
        aside = Entry(stack.enter_context(open_tree(place)), gone)
        way = _Way(ChangedTree(root.name, top, aside.directory), path, None, rename)
        kind = stat.S_IFMT(os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False).st_mode)
        seen = _compared(stack, entry, path, condition, abort)
        try:
            if kind == stat.S_IFDIR and not recursive:
                os.rmdir(entry.name, dir_fd=entry.directory)
            else:
                with way.taken(entry, aside, seen):
                    pass
        except LeftAside:
            raise
        except OSError as error:
            if error.errno in TAKEN:
                raise _refused(
                    f"'{path}' is a directory that is not empty",
                    "with 'recursive' (-r) everything in it is deleted, too",
                ) from error
            if error.errno not in (errno.EXDEV, errno.EBUSY):
                raise
            if kind == stat.S_IFDIR:
                raise _refused(f"'{path}' is not removed: {error.strerror}", _MOUNTED) from error
            beside = Entry(entry.directory, gone)  # another file system is mounted there
            with way._replace(beside=path.rpartition("/")[0]).taken(entry, beside, seen):
                os.unlink(beside.name, dir_fd=beside.directory)
        require_same_tree(root, top)
    return place / gone


def _compared(
    stack: contextlib.ExitStack, entry: Entry, path: str, condition: FileCondition, abort: Abort
) -> SeenFile | None:
    """The file, if a digest is required of it. FileChanged, BODY_TOO_LARGE."""
    if not condition.digests:
        return None
    seen = stack.enter_context(seen_file(entry, path, condition, abort))
    if seen.digest not in condition.digests:
        raise changed(path, "has another content", seen.digest)
    return seen


def _undo_unless(seen: SeenFile | None, moved: Entry, back: Entry, path: str) -> None:
    """Move it back, if what was moved is not what was read: somebody replaced or wrote it in between."""
    try:
        if seen is None or seen.is_at(moved):
            return
    except BaseException:
        _put_back(moved, back)
        raise
    kept = put_back_moved(moved, back, seen.compared.mark)
    raise changed(path, "was changed at this moment", kept=kept)


def _put_back(moved: Entry, back: Entry) -> str:
    """To its name; if another has it by now, to a new one beside it, which is returned."""
    return "" if name_again(moved, back) else keep_beside(moved, back)


def _entry_of(stack: contextlib.ExitStack, top: int, path: str) -> Entry:
    return Entry(stack.enter_context(parent_of(top, path)), path.rpartition("/")[2])


def _movable(entry: Entry, path: str) -> int:
    kind = stat.S_IFMT(os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False).st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise _refused(f"'{path}' is a link or no regular file", "only files and directories are moved")
    return kind


def _kind(entry: Entry) -> int:
    """0: there is nothing."""
    try:
        return stat.S_IFMT(os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _taken(target: str, *, replace: bool) -> Rejected:
    hint = (
        "with 'replace' (--replace) a file replaces a file"
        if not replace
        else "only a file is replaced, by a file"
    )
    return Rejected(Code.ALREADY_EXISTS, f"'{target}' is there already", hint=hint, field="to")


def _refused(what: str, hint: str, *, field: str = "path") -> Rejected:
    return Rejected(Code.PATH_REFUSED, what, hint=hint, field=field)


_MOUNTED: Final = "another file system may be mounted there"
