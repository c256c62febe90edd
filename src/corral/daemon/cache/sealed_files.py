"""Files by digest, each verified once when it is added and recognised afterwards by its seal.

The seal is the modification time: a fixed moment that is set, after the content was verified and written to the disk,
right before the file gets its name. A write to the file breaks it, because it sets the time to the present. So nothing
needs to be stored beside the file itself, and a check of a thousand sealed files costs a thousand `lstat`s and no
reading.

The change time would detect a little more but is of no use: every hard link to a file changes it.

`disk_work` turns errors of the disk into errors of ours.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import hashlib
import os
import pathlib
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from corral.errors import Code, Retryable
from corral.system.trees.removal import remove_tree

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_log = structlog.get_logger("corral.daemon.cache")


@contextlib.contextmanager
def disk_work(subject: str) -> Iterator[None]:
    """Errors of writing, for lack of room or worse, become DISK_FULL or STORE_UNAVAILABLE, both Retryable."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Retryable(
                Code.DISK_FULL,
                f"there is no room on this node's disk for {subject}",
                hint="make room, or lower cache.quota_bytes; it is tried again",
            ) from error
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"{subject} cannot be written to the cache: {error.strerror or error}",
            hint="check the disk and the permissions of the data directory; it is tried again",
        ) from error


def note_use(path: pathlib.Path, now_ms: int) -> None:
    """Set the modification time of an entry's note, which is its last use. A failure does no harm."""
    try:
        os.utime(path, ns=(now_ms * 10**6, now_ms * 10**6))
    except OSError as error:
        _log.debug("cache_use_write.failed", path=str(path), reason=str(error))


SEAL_NS: Final = 946_684_800 * 10**9
"""The first moment of the year 2000."""
MODE: Final = 0o444
_MANY: Final = 4
_SIDE_BY_SIDE: Final = 8


class SealedFiles:
    """One directory of them. Methods block and may run in any thread; the object has no state of its own. `dropped` is
    called, in that thread, with the size of a file that was removed because it was damaged."""

    def __init__(
        self, root: pathlib.Path, *, fan_out: bool, dropped: Callable[[int], None] | None = None
    ) -> None:
        self._root = root
        self._text = str(root)
        self._fan_out = fan_out
        self._dropped = dropped
        self._naming = threading.Lock()
        """Held while a file is renamed or removed: the replacement of a damaged file is not removed with it."""

    def path(self, digest: str) -> pathlib.Path:
        return pathlib.Path(self._place(digest))

    def _place(self, digest: str) -> str:
        """The path, as text: making a path object costs more than the `lstat`."""
        return f"{self._text}/{digest[:2]}/{digest}" if self._fan_out else f"{self._text}/{digest}"

    def make(self) -> None:
        """Create the directories; existing ones are fine."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._fan_out:
            for number in range(256):
                (self._root / f"{number:02x}").mkdir(exist_ok=True, mode=0o700)

    def sealed(self, digest: str, size: int) -> bool:
        """Whether it is there, with its seal. One `lstat`, quick enough for the loop."""
        try:
            found = os.lstat(self._place(digest))
        except OSError:
            return False
        return found.st_mtime_ns == SEAL_NS and found.st_size == size and stat.S_ISREG(found.st_mode)

    def sound(self, digest: str, size: int) -> bool:
        """Whether it is there and undamaged. One whose seal is broken is read again, and sealed again or removed."""
        if self.sealed(digest, size):
            return True
        path = self.path(digest)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return False
        if found.st_size == size and stat.S_ISREG(found.st_mode) and digest_of(path) == digest:
            seal(path)
            return True
        return self._drop(path, found) and self.sealed(digest, size)

    def _drop(self, path: pathlib.Path, harmed: os.stat_result) -> bool:
        """Remove exactly this file; True when another has taken its place."""
        with self._naming:
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                return False
            if (found.st_dev, found.st_ino) != (harmed.st_dev, harmed.st_ino):
                return True
            if stat.S_ISDIR(found.st_mode):
                remove_tree(path)
            else:
                path.unlink()
        if self._dropped is not None:
            self._dropped(harmed.st_size)
        return False

    def admit(self, part: pathlib.Path, digest: str) -> None:
        """Add a finished file whose digest the caller has verified. Durable: the content is on the disk before the name
        is. A file whose rename a power failure undid is missing, and is fetched again."""
        descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, MODE)
            os.fsync(descriptor)
            os.utime(descriptor, ns=(SEAL_NS, SEAL_NS))
        finally:
            os.close(descriptor)
        with self._naming:
            part.replace(self.path(digest))

    def admit_all(self, parts: Sequence[tuple[pathlib.Path, str]]) -> None:
        """The same for many, concurrently, so that the disk writes several of them at once."""
        if len(parts) < _MANY:
            for part, digest in parts:
                self.admit(part, digest)
            return
        with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="seal") as pool:
            for done in [pool.submit(self.admit, part, digest) for part, digest in parts]:
                done.result()

    def remove(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def all(self) -> Iterator[tuple[str, int]]:
        """Digest and size of every file; other entries are skipped."""
        places = sorted(self._root.iterdir()) if self._fan_out else [self._root]
        for place in places:
            if not place.is_dir():
                continue
            with os.scandir(place) as entries:
                for entry in entries:
                    if is_digest(entry.name) and entry.is_file(follow_symlinks=False):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size


def seal(path: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(path, ns=(SEAL_NS, SEAL_NS), follow_symlinks=False)


def digest_of(path: pathlib.Path) -> str:
    """SHA-256 of a file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


_HEX: Final = frozenset("0123456789abcdef")


def is_digest(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)
