"""What the daemon is about to do to a file of a workload, noted while it may have to be undone.

Where a file is changed on condition of its content, what lay there is moved aside and looked at, and goes back if it is
a later save of the workload (see `file_exchange`). A daemon that is killed in between leaves that save aside, where the
next one would delete it. So an intent lies there too, from before the move until its outcome is final; the next daemon
settles it (see `interrupted_changes`). Nothing is synced: a killed process is the case, and what that wrote is there. A
machine that loses power may have neither the move nor the intent, or one without the other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from corral.daemon.prepare.file_exchange import Entry, Mark, removed_unless_left_aside
from corral.domain.file_paths import check_named, check_path
from corral.errors import Code, Rejected
from corral.system.trees.entries import NEW_FILE, open_regular, write_whole

PREFIX: Final = ".corral-intent-"
_MOST_BYTES: Final = 64 * 1024


class ComparedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file that was read, as it is known again."""

    mark: Mark
    digest: str = ""
    """If it had just been written: its mark would not show another write."""


class FileIntent(msgspec.Struct, frozen=True, kw_only=True):
    """One file that is moved away from its name."""

    tree: str
    """The name of the working directory, beside that of what is staged."""
    device: int
    inode: int
    """Those of the working directory: a later one with the same name is another."""
    path: str
    """Where the file lay, in the tree."""
    aside: str
    """Where it is moved to: a name among what is staged, or, if `within`, a path in the tree."""
    within: bool
    compared: ComparedFile
    own: Mark | None = None
    """The file of ours that gets the name in exchange; None: none does."""


class ChangedTree(NamedTuple):
    """A working directory, open, whose files are changed."""

    name: str
    top: int
    staging: int
    """The open directory of what is staged for it, where intents lie."""


@contextlib.contextmanager
def noted(
    tree: ChangedTree,
    path: str,
    aside: Entry,
    compared: ComparedFile,
    *,
    own: Mark | None = None,
    beside: str | None = None,
) -> Iterator[None]:
    """An intent is there until the end of this. `aside` lies among what is staged, or in the directory `beside` of the tree, or,
    if it is neither, in that of the file. Where something stays aside (LeftAside), so does the intent. OSError, also on a full disk:
    without an intent a save of the workload could be lost with the daemon."""
    if beside is None and aside.directory != tree.staging:
        beside = path.rpartition("/")[0]
    found = os.fstat(tree.top)
    intent = FileIntent(
        tree=tree.name,
        device=found.st_dev,
        inode=found.st_ino,
        path=path,
        aside=f"{beside}/{aside.name}" if beside else aside.name,
        within=beside is not None,
        compared=compared,
        own=own,
    )
    place = Entry(tree.staging, f"{PREFIX}{secrets.token_hex(8)}")
    with removed_unless_left_aside(lambda: _remove(place)):
        _write(place, msgspec.json.encode(intent))
        yield


def _remove(place: Entry) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.name, dir_fd=place.directory)


def _write(place: Entry, content: bytes) -> None:
    descriptor = os.open(place.name, NEW_FILE, 0o600, dir_fd=place.directory)
    try:
        write_whole(descriptor, content)
    finally:
        os.close(descriptor)


def read_intent(place: Entry) -> FileIntent:
    """Rejected, OSError, MsgspecError when it cannot be read, or its paths lead elsewhere."""
    descriptor = open_regular(*place, shown=place.name)
    try:
        content = os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
    intent = msgspec.json.decode(content, type=FileIntent)
    check_named(intent.path)
    check_named(intent.aside)
    for name in (intent.tree,) if intent.within else (intent.tree, intent.aside):
        if "/" in check_path(name):
            raise Rejected(Code.PATH_REFUSED, f"'{name}' is no name", hint="nothing was changed")
    return intent
