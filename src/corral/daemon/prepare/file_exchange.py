"""A file that takes the place of the one that was read, and of no other, while a workload may be saving to the same name.

No call of the kernel renames on condition of what lies there. So both files exchange their places, and what came out is
looked at. If it is not what was read, it is a later save of the workload and goes back; and as the workload may save
again in between, what comes out then is looked at as well. Three rules hold: what came out is newer than what was put in
before it; whatever the workload replaced or removed itself is superseded by that; and nothing of the workload's is deleted
that is not superseded. Entries are held open meanwhile, so that none gets the number of another. What a daemon that is
killed in between leaves, the next one settles: see `file_intents`. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import enum
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from corral.system.trees.entries import look_at
from corral.system.trees.renames import rename_to_free

EXCHANGES: Final = 100
"""So often a workload may save exactly between two calls, one after another, until its save is kept beside."""


class Entry(NamedTuple):
    """A name in an open directory."""

    directory: int
    name: str


class Mark(NamedTuple):
    """By what a file is known again, wherever it was moved: a rename changes none of these."""

    device: int
    inode: int
    size: int
    modified_at_ns: int

    def is_same_file(self, other: Mark) -> bool:
        """Whether both are of one file, written to in between or not."""
        return self[:2] == other[:2]


class Exchange(Protocol):
    """Lets two entries take each other's place; False when that cannot be done here."""

    def __call__(self, source: int, name: str, target: int, other: str, /) -> bool: ...


class Outcome(enum.Enum):
    IMPOSSIBLE = "impossible"
    """Nothing can be exchanged here; nothing was."""
    REPLACED = "replaced"
    """The new file has the name; the one that was read lies where the new one was."""
    RESTORED = "restored"
    """The workload's file has the name, and the new one lies where it was."""
    OVERTAKEN = "overtaken"
    """The workload's file has the name, and the new one is gone; what lies where it was is superseded."""


class KeptBeside(Exception):
    """What the workload wrote at this moment could not get its name; it lies beside it, under `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class LeftAside(OSError):
    """What the workload wrote at this moment could get neither its name nor another beside it: the disk refused. It stays
    where it was moved to, and so does its intent, for the next start of the daemon."""


@contextlib.contextmanager
def removed_unless_left_aside(remove: Callable[[], None]) -> Iterator[None]:
    """At the end of this `remove` is called, however it ends, unless something of the workload's stays aside."""
    try:
        yield
    except LeftAside:
        raise
    except BaseException:
        remove()
        raise
    remove()


class HeldEntry:
    """What lay under a name at one moment, held open: meanwhile nothing else gets its number."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.mark: Final = _mark(os.fstat(descriptor))

    @property
    def size(self) -> int:
        return self.mark.size

    @property
    def modified_at_ns(self) -> int:
        return self.mark.modified_at_ns

    @property
    def is_as_it_was(self) -> bool:
        """Nobody has written to it since."""
        return _mark(os.fstat(self._descriptor)) == self.mark

    @property
    def has_no_name(self) -> bool:
        """Somebody removed it, or put another in its place."""
        return os.fstat(self._descriptor).st_nlink == 0

    def is_at(self, entry: Entry) -> bool:
        """Whether it lies there, written to or not."""
        with contextlib.suppress(FileNotFoundError):
            return self.mark.is_same_file(mark_at(entry))
        return False

    def is_unchanged_at(self, entry: Entry) -> bool:
        """Whether it lies there as it was: with the same size and time of change."""
        return self.is_at(entry) and self.is_as_it_was


@contextlib.contextmanager
def held(entry: Entry) -> Iterator[HeldEntry]:
    """FileNotFoundError."""
    with look_at(*entry) as descriptor:
        yield HeldEntry(descriptor)


def exchange_compared(
    staged: Entry, place: Entry, *, is_expected: Callable[[Entry], bool], exchange: Exchange
) -> Outcome:
    """Put the staged file in place of the one that is expected there. Afterwards nothing of the workload's lies at `staged`
    that is not superseded. KeptBeside; FileNotFoundError when nothing lies there, OSError; then nothing was done."""
    with held(staged) as own:
        if not exchange(*staged, *place):
            return Outcome.IMPOSSIBLE
        try:
            if is_expected(staged):
                return Outcome.REPLACED
        except BaseException:
            put_back(staged, place, own, exchange)
            raise
        put_back(staged, place, own, exchange)
        return Outcome.RESTORED if own.is_at(staged) else Outcome.OVERTAKEN


def put_back(staged: Entry, place: Entry, own: HeldEntry, exchange: Exchange) -> None:
    """Give what came out its name back, unless something newer has it. What lies at `staged` afterwards is superseded.
    KeptBeside; LeftAside when not even that can be done."""
    failure: OSError | None = None
    try:
        if _settled(staged, place, own, exchange):
            return
    except OSError as error:
        failure = error
    raise KeptBeside(keep_beside(staged, place)) from failure


def _settled(staged: Entry, place: Entry, own: HeldEntry, exchange: Exchange) -> bool:
    put_in = own
    with contextlib.ExitStack() as stack:
        for _ in range(EXCHANGES):
            if put_in.has_no_name:
                # The workload replaced or removed it, and so it would have what came out, unless that is a directory.
                return not stat.S_ISDIR(_status(staged).st_mode)
            came_out = stack.enter_context(held(staged))
            try:
                exchange(*staged, *place)
            except FileNotFoundError:
                if put_in.has_no_name:
                    continue
                with contextlib.suppress(FileExistsError):  # it was moved elsewhere
                    rename_to_free(*staged, *place)
                    return True
                continue
            if put_in.is_at(staged):
                return put_in.is_unchanged_at(staged)  # otherwise the workload wrote to it at this moment
            put_in = came_out
    return False


def keep_beside(staged: Entry, place: Entry) -> str:
    """Move what belongs to the workload into the directory of its place, under a new name, which is returned. LeftAside."""
    name = f"corral-kept-{secrets.token_hex(8)}"
    try:
        rename_to_free(*staged, place.directory, name)
    except OSError as error:
        raise _left_aside(error) from error
    return name


def name_again(moved: Entry, back: Entry) -> bool:
    """Give what was moved away its name; False when another has it by now. LeftAside."""
    try:
        rename_to_free(*moved, *back)
    except FileExistsError:
        return False
    except OSError as error:
        raise _left_aside(error) from error
    return True


def _left_aside(error: OSError) -> LeftAside:
    return LeftAside(
        error.errno,
        f"{error.strerror}; the server's newest save lies aside and gets its name at the next start of the daemon",
    )


def put_back_moved(moved: Entry, back: Entry, compared: Mark) -> str:
    """Give what was moved away in place of the file that was read its name, which is free unless the workload took it.
    If it did, with a file, and had replaced the one that was read by a file before, then it saves by replacing: what was
    moved is superseded, and removed. Otherwise it is kept beside, under the name that is returned: a workload that writes
    to its files in place may have begun a new one only because it did not find the old. LeftAside, OSError."""
    if not name_again(moved, back):
        if mark_at(moved).is_same_file(compared) or not (is_file(moved) and is_file(back)):
            return keep_beside(moved, back)
        os.unlink(moved.name, dir_fd=moved.directory)
    return ""


def mark_at(entry: Entry) -> Mark:
    """FileNotFoundError."""
    return _mark(_status(entry))


def is_file(entry: Entry) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISREG(_status(entry).st_mode)
    return False


def _status(entry: Entry) -> os.stat_result:
    return os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False)


def _mark(found: os.stat_result) -> Mark:
    return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
