"""Changes of workloads' files that a killed daemon did not bring to an end, settled by the next one.

What lies aside is the file that was read, or ours, or a save of the workload. A save goes back to its name, unless the
workload has put something newer there meanwhile; where that cannot be told, it is kept beside. Workloads run on while
daemons restart, so every step is one that `file_exchange` would take, by descriptor, and no link is followed. Everything
here blocks; contents are read only of a file that had just been written when it was compared, and is not large.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from corral.daemon.prepare.file_exchange import (
    Entry,
    KeptBeside,
    Mark,
    held,
    is_file,
    keep_beside,
    mark_at,
    put_back,
    put_back_moved,
)
from corral.daemon.prepare.file_intents import PREFIX, ComparedFile, FileIntent, read_intent
from corral.domain.file_paths import MOST_DIGESTED
from corral.errors import CorralError, Rejected
from corral.system.trees.entries import READ, look_at, open_itself, open_tree, parent_of
from corral.system.trees.renames import exchange, rename_to_free

_TRIES: Final = 3
_log = structlog.get_logger("corral.daemon.prepare")


def settle_interrupted(trees: pathlib.Path, staging: pathlib.Path) -> frozenset[str]:
    """Give saves that lie in `staging` their names in the working directories of `trees`. Returns the names in `staging`
    that are still needed, because the disk refused. Nothing is raised: what cannot be settled is logged."""
    needed: set[str] = set()
    try:
        with open_tree(staging) as aside:
            with os.scandir(aside) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
            for name in names:
                needed.update(_settle_one(trees, aside, name))
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("file_intent.skipped", path=str(staging), reason=str(error))
    return frozenset(needed)


def _settle_one(trees: pathlib.Path, staging: int, name: str) -> tuple[str, ...]:
    """What is still needed of it."""
    try:
        intent = read_intent(Entry(staging, name))
    except (CorralError, OSError, msgspec.MsgspecError) as error:
        # One that was not written whole: nothing was moved before it was.
        _log.warning("file_intent.skipped", name=name, reason=str(error))
        return ()
    log = _log.bind(instance=intent.tree, path=intent.path)
    try:
        with open_tree(trees / intent.tree) as top:
            found = os.fstat(top)
            if (found.st_dev, found.st_ino) != (intent.device, intent.inode):
                log.warning("file_intent.skipped", reason="the working directory is another by now")
            elif outcome := _Change(intent, top, staging).settled():
                log.warning("file_save.recovered", outcome=outcome)
    except KeptBeside as kept:
        log.warning("file_save.kept", name=kept.name)
    except (FileNotFoundError, NotADirectoryError, Rejected) as error:
        log.warning("file_intent.skipped", reason=str(error))
    except (CorralError, OSError) as error:
        log.warning("file_intent.failed", reason=str(error))
        return (name,) if intent.within else (name, intent.aside)
    return ()


class _Change:
    """One change that was interrupted."""

    def __init__(self, intent: FileIntent, top: int, staging: int) -> None:
        self._intent = intent
        self._top = top
        self._staging = staging

    def settled(self) -> str:
        """What was done; empty when nothing had to be. KeptBeside; PATH_REFUSED when a link is on the way to what was moved;
        OSError when something of the workload's still lies there."""
        with contextlib.ExitStack() as stack:
            try:
                aside = stack.enter_context(self._aside())
                mark = mark_at(aside)
            except FileNotFoundError:
                return ""  # nothing was moved, or everything was done
            if self._is_final(aside, mark):
                return ""
            try:
                return self._put_back(aside, stack.enter_context(self._place()))
            except (OSError, Rejected) as error:  # such as when its directory is gone, or a link by now
                raise KeptBeside(keep_beside(aside, Entry(self._top, ""))) from error

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Entry]:
        intent = self._intent
        if not intent.within:
            yield Entry(self._staging, intent.aside)
            return
        with parent_of(self._top, intent.aside) as here:
            yield Entry(here, intent.aside.rpartition("/")[2])

    @contextlib.contextmanager
    def _place(self) -> Iterator[Entry]:
        with parent_of(self._top, self._intent.path) as here:
            yield Entry(here, self._intent.path.rpartition("/")[2])

    def _is_final(self, aside: Entry, mark: Mark) -> bool:
        """Whether nothing of the workload's lies there that it has not lost by right. What lies in the tree is nowhere
        deleted later, and goes back in any case."""
        if mark == self._intent.own:
            self._remove_own(aside)
            return True
        return not self._intent.within and _is_compared(aside, mark, self._intent.compared)

    def _put_back(self, aside: Entry, place: Entry) -> str:
        own = self._intent.own
        if own is None:
            if kept := put_back_moved(aside, place, self._intent.compared.mark):
                raise KeptBeside(kept)
            return "the newest save has its name"
        if mark_at(aside).is_same_file(own):  # the workload wrote to ours while that had the name
            raise KeptBeside(keep_beside(aside, place))
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                return self._exchanged_back(aside, place, own)
        raise KeptBeside(keep_beside(aside, place))

    def _exchanged_back(self, aside: Entry, place: Entry, own: Mark) -> str:
        """FileExistsError: the name was free, and is not any more."""
        with contextlib.ExitStack() as stack:
            try:
                there = stack.enter_context(held(place))
            except FileNotFoundError:
                rename_to_free(*aside, *place)
                return "put back"
            if there.mark == own:
                put_back(aside, place, there, exchange)
                self._remove_own(aside)
                return "put back"
            if there.mark.is_same_file(own) or not is_file(aside):
                # The workload wrote to ours, or made a file that has its number by now: nobody can tell.
                raise KeptBeside(keep_beside(aside, place))
            os.unlink(aside.name, dir_fd=aside.directory)
            return "superseded by a newer one"

    def _remove_own(self, aside: Entry) -> None:
        with contextlib.suppress(FileNotFoundError):
            if mark_at(aside) == self._intent.own:
                os.unlink(aside.name, dir_fd=aside.directory)


def _is_compared(aside: Entry, mark: Mark, compared: ComparedFile) -> bool:
    """Whether this is the very file that was read, as it was then. Without a proof it is not: then it goes back."""
    if mark != compared.mark:
        return False
    return not compared.digest or _digest(aside) == compared.digest


def _digest(entry: Entry) -> str:
    """Empty when it cannot be read, or is too large for that."""
    with contextlib.suppress(OSError), look_at(*entry) as looked:
        found = os.fstat(looked)
        if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_DIGESTED:
            with os.fdopen(open_itself(looked, READ), "rb", buffering=0) as file:
                return hashlib.sha256(file.read(MOST_DIGESTED)).hexdigest()
    return ""
