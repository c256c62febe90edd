"""What a caller requires of the file that it changes, and the file as it is read to be compared with that.

A workload may write to it meanwhile, and may have made it as large as it likes: so much is read as is allowed, as long as
the file has a name and nobody gave up waiting. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import Entry, HeldEntry
from corral.daemon.prepare.file_intents import ComparedFile
from corral.domain.file_paths import MOST_DIGESTED
from corral.errors import Code, FileChanged, Rejected
from corral.system.trees.entries import open_regular

BUSY: Final = "is being written by another process"
_BLOCK: Final = 1024 * 1024
_TRIES: Final = 3
_TICK_NS: Final = 2_000_000_000
"""Two writes within this may have the same time of change, whatever the file system counts in."""


class FileCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller requires of the file that it changes."""

    digests: frozenset[str] = frozenset()
    """It has one of these; empty: any."""
    present: bool = False
    absent: bool = False
    max_bytes: int = MOST_DIGESTED
    """Larger files are not read for it."""

    @property
    def requires_file(self) -> bool:
        return self.present or bool(self.digests)


ANY_FILE: Final = FileCondition()


class SeenFile:
    """A file as it was read, held open."""

    def __init__(self, digest: str, descriptor: int, held: HeldEntry, abort: Abort) -> None:
        self.digest = digest
        self._descriptor = descriptor
        self._held = held
        self._abort = abort
        self._recent = abs(time.time_ns() - held.modified_at_ns) < _TICK_NS

    @property
    def compared(self) -> ComparedFile:
        """By what another daemon finds out the same as `is_at`."""
        return ComparedFile(mark=self._held.mark, digest=self.digest if self._recent else "")

    def is_at(self, entry: Entry) -> bool:
        """Whether it still lies there, and as it was read. One that had just been written is read again: its time of
        change would not show another write."""
        if not self._held.is_unchanged_at(entry):
            return False
        return (
            not self._recent
            or digest_of(self._descriptor, self._abort, length=self._held.size) == self.digest
        )


@contextlib.contextmanager
def seen_file(entry: Entry, path: str, condition: FileCondition, abort: Abort) -> Iterator[SeenFile]:
    """A regular file, read whole at a moment at which nobody wrote to it. FileChanged when it is being written, or gone,
    BODY_TOO_LARGE, PATH_REFUSED."""
    with contextlib.ExitStack() as stack:
        for left in reversed(range(_TRIES)):
            try:
                descriptor = open_regular(*entry, shown=path)
            except FileNotFoundError:
                raise changed(path, "is not there") from None
            except Rejected:
                if left:
                    continue  # one that is replaced at this moment looks as if it had another name
                raise
            stack.callback(os.close, descriptor)
            if seen := _read(descriptor, path, condition, abort):
                yield seen
                return
    raise changed(path, BUSY)


def _read(descriptor: int, path: str, condition: FileCondition, abort: Abort) -> SeenFile | None:
    """None: somebody wrote to it, or removed it, meanwhile."""
    file = HeldEntry(descriptor)
    if file.size > condition.max_bytes:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"'{path}' has {file.size} bytes; files up to {condition.max_bytes} are compared",
            hint="nothing was changed; change it without a digest, or raise files.max_bytes",
        )
    with contextlib.suppress(FileNotFoundError):
        digest = digest_of(descriptor, abort, length=file.size, named=True)
        if file.is_as_it_was:
            return SeenFile(digest, descriptor, file, abort)
    return None


def digest_of(descriptor: int, abort: Abort, *, length: int, named: bool = False) -> str:
    """SHA-256 of the first bytes of a file, so many or all. `named`: FileNotFoundError as soon as it has no name any more,
    such as when its instance is removed."""
    hasher = hashlib.sha256()
    at = 0
    while True:
        abort.check()
        if named and os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError
        block = os.pread(descriptor, min(_BLOCK, length - at), at)
        if not block:
            return hasher.hexdigest()
        hasher.update(block)
        at += len(block)


def changed(path: str, what: str, digest: str = "", *, kept: str = "") -> FileChanged:
    """`kept`: where the save of the workload lies that could not keep its name."""
    hint = "nothing was written; look at it, and send it again with the digest that it has now"
    if kept:
        hint = f"nothing was written; what was saved at this moment lies beside it as '{kept}'"
    return FileChanged(f"'{path}' {what}", digest=digest, hint=hint)
