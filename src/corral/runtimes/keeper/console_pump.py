"""The writer of a console: moves bytes from the run's FIFO into segments, inside the shim.

It may be killed at any instruction and another one takes over: `splice` takes exactly the bytes out of the
pipe that it adds to the file, so the size of the newest segment is the complete state, and nothing is lost or
doubled. (A pump that reads and then writes loses what it holds; that is done only on a file system which
cannot splice.)

The workload never waits for a full disk: the oldest segments are dropped first, then bytes are discarded
under a gap record, and storing is retried at least once a second.

Single-threaded; imports only the standard library and this package, and nothing after the fork.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import termios
import time

from corral.runtimes.keeper.console_layout import DISK_ERROR, DISK_FULL, DISK_QUOTA, REMOVED
from corral.runtimes.keeper.console_writer import GapRing, Segments

MOVE_BYTES = 1 << 20
MOVES = 8
"""`move` returns after so many transfers, so that its caller can serve other descriptors."""
PIPE_BYTES = 256 * 1024
RETRY_SECONDS = 1.0
HOLD_SECONDS = 0.01
HOLD_BELOW = 16 * 1024
"""A source that gave less than this, and was served just before, is not polled for `HOLD_SECONDS`: a chatty
workload costs one wake-up for many lines, and one that starts to flood meanwhile waits no longer than that. A
source that writes now and then is polled at once: to hold it would cost a second wake-up and gain nothing."""
_SPARE_BYTES = 64 * 1024
_COPY_BYTES = 64 * 1024

_NO_SPACE = {errno.ENOSPC: DISK_FULL, errno.EDQUOT: DISK_QUOTA}
_WAITING = struct.Struct("i")


class Pump:
    """The writer of one console. Only one may exist for a console at a time; the run's lock guarantees that.

    Poll the source when `ready_at` has come, call `move` when it is readable, and `drain` once no writer is
    left. Neither blocks, and neither fails because of the disk.
    """

    def __init__(
        self,
        directory: str,
        source_fd: int,
        *,
        segment_bytes: int,
        quota_bytes: int,
        taking_over: bool = False,
    ) -> None:
        """`source_fd` is the read end of a FIFO or pipe and stays the caller's; it is made non-blocking. A
        quota of 0 is none. The directory exists. `taking_over`: the source keeps its size until
        `size_source`."""
        self.ready_at = 0.0
        """Monotonic time before which the source need not be polled."""
        self._moved_at = 0.0
        self._source = source_fd
        self._splicing = True
        self._retry_at = 0.0
        os.set_blocking(source_fd, False)
        self.source_is_fresh = self._capacity() != PIPE_BYTES
        """Whether no process had the source open since the last pump, which gave it its size: then its
        content is gone. True as well where the kernel refuses that size."""
        if not taking_over:
            self.size_source()
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        self._gaps = GapRing(self._directory)
        self._segments = Segments(self._directory, segment_bytes=segment_bytes, quota_bytes=quota_bytes)
        self.end_offset = self._segments.resume()
        """The offset of the next byte."""
        self._leave_gap()

    def size_source(self) -> None:
        """Give the source its size, by which the next pump sees that the source was held open."""
        with contextlib.suppress(OSError):  # over the user's limit of pipe memory: the present size will do
            fcntl.fcntl(self._source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def fileno(self) -> int:
        """The descriptor to poll: the source."""
        return self._source

    @property
    def discarding(self) -> bool:
        """Whether bytes are discarded at present, because the disk does not take them."""
        return self._gaps.open_until is not None

    def timeout(self) -> float | None:
        """Seconds for which the source need not be polled; None when it should be polled now."""
        left = self.ready_at - time.monotonic()
        return left if left > 0 else None

    def move(self) -> bool:
        """Move the waiting bytes, within a bound; True when something was moved (or discarded)."""
        total = 0
        for _ in range(MOVES):
            moved = self._step()
            total += moved
            if moved < HOLD_BELOW:
                break
        now = time.monotonic()
        chatty = total < HOLD_BELOW and now - self._moved_at < 1.5 * HOLD_SECONDS
        self.ready_at = now + HOLD_SECONDS if chatty else 0.0
        self._moved_at = now
        return total > 0

    def drain(self) -> None:
        """Move everything that waits now. For the end: a process that goes on writing (one outside the run to
        which the workload gave its output) does not keep this going."""
        left = self._capacity()
        while left > 0 and (moved := self._step()):
            left -= moved

    def note_loss(self) -> None:
        """Record a gap, once: what was written behind the last stored byte is unknown."""
        self._gaps.end()
        self.end_offset = self._gaps.add_loss(self.end_offset)
        self._segments.abandon()

    def close(self) -> None:
        """Close everything but the source. Idempotent. An open gap ends here."""
        self._notice_removal()
        self._gaps.end()
        self._gaps.close()
        self._segments.close()
        for fd in (self._directory, self._null):
            if fd >= 0:
                os.close(fd)
        self._directory = self._null = -1

    def _leave_gap(self) -> None:
        """End the gap of a pump that died while discarding: this one stores, or finds out by itself that it
        cannot. Offsets continue behind the newest gap, also when an earlier pump has ended it and stored
        nothing."""
        if self._gaps.newest_end > self.end_offset:
            self.end_offset = self._gaps.newest_end
        else:
            self._segments.reopen()
        self._gaps.end()

    def _step(self) -> int:
        """One transfer of any kind; the number of bytes that left the source, 0 when none wait."""
        if self.discarding and not self._worth_a_try():
            return self._discard()
        return self._store()

    def _store(self) -> int:
        while True:
            try:
                if not self._waiting():
                    return 0
                self._notice_removal()
                if self._segments.needs_rotation(self.end_offset):
                    self._segments.rotate(self.end_offset)
                self._segments.stamp(self.end_offset)
                return self._transfer()
            except BlockingIOError:
                return 0
            except OSError as error:
                if error.errno not in _NO_SPACE or not self._segments.drop_oldest():
                    self._begin_gap(error)
                    return self._discard()

    def _notice_removal(self) -> None:
        """Check the file before each transfer: bytes added to a removed file could not be read, and in a
        truncated one they would leave a hole of zeros. A gap records what is missing, and storing continues
        in a new segment."""
        missing = self._segments.missing_from(self.end_offset)
        if missing is None:
            return
        if missing < self.end_offset:
            self._gaps.add(missing, self.end_offset, REMOVED)
        self._segments.abandon()

    def _waiting(self) -> int:
        return int(_WAITING.unpack(fcntl.ioctl(self._source, termios.FIONREAD, b"\0" * 4))[0])

    def _capacity(self) -> int:
        """The capacity of the source in bytes."""
        try:
            return int(fcntl.fcntl(self._source, fcntl.F_GETPIPE_SZ))
        except OSError:
            return 1 << 62  # not a pipe: it ends by itself

    def _transfer(self) -> int:
        count = min(self._segments.room, MOVE_BYTES)
        if not self._splicing:
            return self._copy(count)
        try:
            moved = os.splice(self._source, self._segments.newest, count)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._splicing = False
            return self._copy(count)
        self._stored(moved)
        return moved

    def _copy(self, count: int) -> int:
        """Copy, for a file system without splice. Bytes that were read and that the disk refuses are
        discarded."""
        data = os.read(self._source, min(count, _COPY_BYTES))
        left = memoryview(data)
        while left:
            try:
                written = os.write(self._segments.newest, left)
            except OSError as error:
                if error.errno in _NO_SPACE and self._segments.drop_oldest():
                    continue
                self._begin_gap(error)
                self._discarded(len(left))
                break
            self._stored(written)
            left = left[written:]
        return len(data)

    def _stored(self, count: int) -> None:
        self.end_offset += count
        self._segments.room -= count
        if count:
            self._gaps.end()

    def _discarded(self, count: int) -> None:
        self.end_offset += count
        self._gaps.grow(self.end_offset)

    def _discard(self) -> int:
        """Discard the waiting bytes and extend the gap. Killed between the two, the recorded gap is too
        short; what is stored stays right."""
        try:
            gone = os.splice(self._source, self._null, MOVE_BYTES)
        except BlockingIOError:
            return 0
        self._discarded(gone)
        return gone

    def _begin_gap(self, error: OSError) -> None:
        """Stop storing until the next retry, which begins a new segment."""
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if not self.discarding:  # before the segment goes: its name may be the only record of our offset
            self._gaps.begin(self.end_offset, _NO_SPACE.get(error.errno or 0, DISK_ERROR))
        self._segments.abandon()

    def _worth_a_try(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + RETRY_SECONDS
        try:
            disk = os.fstatvfs(self._directory)
        except OSError:
            return True
        return disk.f_bfree * disk.f_frsize >= min(_SPARE_BYTES, self._segments.segment_bytes)
