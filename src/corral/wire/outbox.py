"""The outbox of one stream: messages that wait to be sent, and their assembly to frames.

Exactly one task per stream takes frames from its outbox and writes them. All other code only puts messages
in, which never blocks: so a reader can answer while the peer does not read, and two floods cannot wait for
each other. A peer that reads nothing makes the outbox overflow, which ends its stream and no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

FRAME_MESSAGES: Final = 256
FRAME_BYTES: Final = 128 * 1024
MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024


class Sized(Protocol):
    def ByteSize(self) -> int: ...  # noqa: N802 - the name protobuf gives it


M = TypeVar("M", bound=Sized)


class Outbox(Generic[M]):
    """Messages in order, plus coalesced state of which only the latest value counts."""

    def __init__(
        self,
        *,
        bundle: Callable[[list[M]], M] | None,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._bundle = bundle
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._queue: deque[tuple[M, int]] = deque()
        self._latest: dict[str, M] = {}
        self._assembled: dict[str, Callable[[], M]] = {}
        self._made: deque[M] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closed = False
        self.overflowed = False
        self.accepted = 0
        """How many messages `send` took, since the stream began."""
        self.taken = 0
        """How many of these are in frames. A call of `next_frame` means that the frame before was written."""

    def __len__(self) -> int:
        return len(self._queue) + len(self._latest) + len(self._assembled) + len(self._made)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def send(self, message: M) -> bool:
        """Queue a message; False when the stream is over, or is ended by this very message."""
        if self._closed:
            return False
        size = message.ByteSize()
        if len(self._queue) >= self._max_messages or self._bytes + size > self._max_bytes:
            self.overflow()
            return False
        self._queue.append((message, size))
        self._bytes += size
        self.accepted += 1
        self._wake.set()
        return True

    def replace(self, key: str, message: M) -> bool:
        """Queue state: an older value under the same key that was not sent yet is replaced. The number of
        keys is bounded; beyond it the stream is over as in `send`: a peer may choose them."""
        if self._closed:
            return False
        if key not in self._latest and len(self._latest) >= self._max_messages:
            self.overflow()
            return False
        self._latest[key] = message
        self._wake.set()
        return True

    def assemble(self, key: str, make: Callable[[], M]) -> None:
        """Queue state that is collected elsewhere until its frame is written: `make` is called for it then,
        once. Whoever collects keeps it bounded."""
        if not self._closed:
            self._assembled[key] = make
            self._wake.set()

    def overflow(self) -> None:
        """End the stream, because its peer does not read what waits for it."""
        self.overflowed = True
        self.close()

    def close(self) -> None:
        """No more frames: waiting messages are dropped, the writer ends."""
        self._closed = True
        self._queue.clear()
        self._latest.clear()
        self._assembled.clear()
        self._made.clear()
        self._bytes = 0
        self._wake.set()

    async def next_frame(self) -> M | None:
        """The next frame to write, with all waiting messages up to the frame's bound; None at the end. A call
        means that the frame before was written."""
        while not (messages := self._take()):
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        if len(messages) == 1 or self._bundle is None:
            return messages[0]
        return self._bundle(messages)

    def _forms_of(self, made: M) -> Iterable[M]:
        """The messages that are sent for state, replaced or assembled: for peers that do not know it."""
        return (made,)

    def _take(self) -> list[M]:
        limit = FRAME_MESSAGES if self._bundle is not None else 1
        taken: list[M] = []
        total = 0
        while (self._made or self._assembled or self._latest) and len(taken) < limit:
            if self._made:
                taken.append(self._made.popleft())
            elif self._assembled:
                self._made.extend(self._forms_of(self._assembled.pop(next(iter(self._assembled)))()))
            else:
                self._made.extend(self._forms_of(self._latest.pop(next(iter(self._latest)))))
        while self._queue and len(taken) < limit:
            message, size = self._queue[0]
            if taken and total + size > FRAME_BYTES:
                break
            self._queue.popleft()
            self._bytes -= size
            self.taken += 1
            total += size
            taken.append(message)
        return taken
