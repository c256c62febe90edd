"""Host's end of a module's socket: frames in and out on the host's loop, within bounds, never blocking.

Reading is bounded in work per turn of the loop and in rate, and it pauses while calls that were
cancelled and have not ended bring the module above its limit of concurrent calls: a module that sends too much waits in its own `send`. Output that the module does
not read is buffered up to a bound; beyond it, or when nothing moves for a while, the module is cut off. Bytes
that are not a frame cut it off at once. A frame that is larger or nested deeper than its method allows is
skipped undecoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from corral.modules.process.exit_reasons import BAD_FRAME, NOT_READING, SOCKET_CLOSED
from corral.modules.process.frame_heads import FrameHead, NoFrame, read_head
from corral.sdk.protocol.frame_limits import HEAD_BYTES, FrameLimit
from corral.sdk.protocol.frames import MAX_FRAME, MAX_UNREAD, Call, Message, encode_frame
from corral.system import log_context
from corral.system.aio.token_bucket import TokenBucket

_HEAD: Final = 4
_READ_BYTES: Final = 256 * 1024
_FRAMES_AT_ONCE: Final = 32
_COST_AT_ONCE: Final = 200.0
"""Cost after which the rest waits for the next turn of the loop: handling the frames happens in the same
turn."""
_LAST_READS: Final = 8
_LAST_COST: Final = 2500.0
"""Most cost read from a process that has ended: all in one turn, so it is bounded."""
_HIGH: Final = MAX_UNREAD - MAX_FRAME
"""Above this, calls and answers wait: one more frame of the largest kind still fits."""
_STALL_SECONDS: Final = 5.0
_FRAMES_PER_SECOND: Final = 4000.0
_BURST: Final = 8000.0
_NOTICE_COST: Final = 4.0
_DEADLINE_BYTES: Final = 9
"""Bytes that may follow the body of a call; the size of the body itself is checked once the frame is
parsed."""

_decode = msgspec.msgpack.Decoder(Message).decode


class Channel:
    """`take` gets each message; `lost` is called once, with the reason and details, when the module broke a
    bound or closed its end. `limit` returns the largest size of a frame by its head; a frame over its limit
    is passed to `refused`, with the reason, and to nothing else."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        take: Callable[[Message], None],
        lost: Callable[[str, str], None],
        limit: Callable[[FrameHead], FrameLimit],
        refused: Callable[[FrameHead, str], None],
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._take = take
        self._lost = lost
        self._limit = limit
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._sent = 0
        self._room = asyncio.Event()
        self._room.set()
        self._stall: asyncio.TimerHandle | None = None
        self._allowance = TokenBucket(burst=_BURST, per_second=_FRAMES_PER_SECOND, monotonic=self._loop.time)
        self._resume: asyncio.Handle | None = None
        self._full = False
        self._reading = False
        self._open = True
        self._listen()

    def send(self, message: Message) -> None:
        """Queue a frame. Raises FrameTooLarge. After the end it does nothing."""
        frame = encode_frame(message)
        if not self._open:
            return
        self._unsent.append(memoryview(frame))
        self._unsent_bytes += len(frame)
        if len(self._unsent) == 1:
            self._flush()
        else:
            self._note_room()
        if self._unsent_bytes > MAX_UNREAD:
            self._lose(NOT_READING, f"{self._unsent_bytes} bytes wait for it; {MAX_UNREAD} are held")

    async def room(self) -> None:
        """Wait until the module has read enough of its input; returns at once after the end."""
        while not self._room.is_set():  # many waiters wake at once, and the first may fill it again
            await self._room.wait()

    def pause(self, full: bool) -> None:
        """Pause or resume reading from the module."""
        if full == self._full:
            return
        self._full = full
        if full:
            self._stop_listening()
        elif self._resume is None:
            self._resume = self._loop.call_soon(self._work)

    def end_output(self) -> None:
        """Close the output: the module sees the end of its input once it has read the rest."""
        if self._open and not self._unsent:
            with contextlib.suppress(OSError):  # it closed its own end
                self._socket.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        """Read what an ended process had sent: its last answers and log lines."""
        for _ in range(_LAST_READS):
            try:
                piece = self._socket.recv(_READ_BYTES) if self._open else b""
            except OSError:
                piece = b""
            if not piece:
                break
            self._input += piece
        left = _LAST_COST
        while self._open and left > 0 and (cost := self._next()):
            left -= cost

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._stop_listening()
        self._loop.remove_writer(self._socket)
        for timer in (self._resume, self._stall):
            if timer is not None:
                timer.cancel()
        self._socket.close()
        self._unsent.clear()
        self._input.clear()
        self._room.set()

    def _lose(self, reason: str, why: str = "") -> None:
        if self._open:
            self.close()
            self._lost(reason, why)

    def _listen(self) -> None:
        if self._open and not self._reading and not self._full:
            self._reading = True
            with log_context.apart():  # the reader outlives the task that made it
                self._loop.add_reader(self._socket, self._readable)

    def _stop_listening(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def _readable(self) -> None:
        try:
            piece = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            piece = b""
        if not piece:
            self._lose(SOCKET_CLOSED)
            return
        self._input += piece
        self._work()

    def _work(self) -> None:
        """Handle a bounded share of what was read; the rest in the next turn, or when the rate allows."""
        self._resume = None
        spent = 0.0
        for _ in range(_FRAMES_AT_ONCE):
            if not self._open or self._full:
                return
            cost = self._next()
            if not cost:
                self._listen()
                return
            wait = self._allowance.wait()
            if wait > 0:
                self._stop_listening()
                self._resume = self._loop.call_later(wait, self._work)
                return
            spent += cost
            if spent > _COST_AT_ONCE:
                break
        self._stop_listening()
        self._resume = self._loop.call_soon(self._work)

    def _next(self) -> float:
        """Take one frame; returns its cost, 0 when none is complete."""
        if len(self._input) < _HEAD:
            return 0.0
        size = int.from_bytes(self._input[:_HEAD], "little")
        if size > MAX_FRAME:
            self._lose(BAD_FRAME, f"it sent a message of {size} bytes; {MAX_FRAME} are allowed")
            return 0.0
        if len(self._input) < _HEAD + size:
            return 0.0
        try:
            cost = self._take_frame(size)
        except (NoFrame, msgspec.MsgspecError, ValueError, RecursionError):
            self._lose(BAD_FRAME, f"it sent {size} bytes that are no message of the SDK's")
            return 0.0
        self._allowance.spend(cost)
        return cost

    def _take_frame(self, size: int) -> float:
        """Returns the frame's cost. Raises for bytes that are not a frame."""
        head = read_head(bytes(self._input[_HEAD : _HEAD + min(size, HEAD_BYTES)]))
        limit = self._limit(head)
        cost = (_NOTICE_COST if head.tag == "notice" else 1.0) + size / limit.bytes_per_cost
        rest = size - head.end
        after = _DEADLINE_BYTES if head.tag == "call" else 0
        payload = bytes(memoryview(self._input)[_HEAD : _HEAD + size]) if rest <= limit.size + after else b""
        del self._input[: _HEAD + size]
        problem, parts = limit.size_problem(rest - after), 0
        if not problem and head.has_body:
            problem, parts = limit.nesting(payload[head.end :])
        message = _decode(payload) if not problem else None
        if isinstance(message, Call):
            problem = limit.size_problem(len(message.body))
        if problem or message is None:
            self._refused(head, problem)
        else:
            self._take(message)
        return cost + parts / limit.parts_per_cost

    def _flush(self) -> None:
        """Write as much as the module's socket takes."""
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                self._sent += sent
                self._unsent_bytes -= sent
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._socket, self._flush)
        except OSError:
            self._unsent.clear()  # it closed its end; the reader or the zygote reports that
            self._unsent_bytes = 0
        if not self._unsent:
            self._loop.remove_writer(self._socket)
        self._note_room()

    def _note_room(self) -> None:
        if self._unsent_bytes <= _HIGH:
            self._room.set()
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None
            return
        self._room.clear()
        if self._stall is None:
            self._stall = self._loop.call_later(_STALL_SECONDS, self._check_stall, self._sent)

    def _check_stall(self, sent: int) -> None:
        self._stall = None
        if self._sent == sent:
            self._lose(NOT_READING, f"it read nothing for {_STALL_SECONDS:g} s, and much waits for it")
        else:
            self._note_room()
