"""Uploads of nodes that are passed on as they come: never on disk, and never more of them in memory than the credit.

The node gets new credit when the reader has taken what it sent. A reader that takes nothing for a while, or less than a
least pace for longer than that, ends the transfer; until then the node is kept from giving up by grants of nothing.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from corral.controller.sessions.fetches import within
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.digests import mismatch
from corral.store.port import BlobInfo
from corral.system.aio.tasks import set_within
from corral.wire.frames import read_frame
from corral.wire.transfer import CREDIT, Regrant
from corral.wire.v1.data_pb2 import Credit, PushAccepted, PushMessage, PushOpen, PushReply

PATIENCE_SECONDS: Final = 60.0
"""How long a reader may be behind the least pace; what it takes faster makes up for it, up to this."""
LEAST_PACE: Final = 32 * 1024
"""Bytes a second."""
_SIGN_OF_LIFE_SECONDS: Final = 10.0


class StreamHead(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    digest: str
    """Empty: none was announced."""
    left_out: int = 0
    """Entries of a directory that its archive lacks."""


class IncomingStream:
    """One upload, received on one side and read on the other. `close` ends it from either."""

    def __init__(self, *, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = self._left = patience
        self.head: asyncio.Future[StreamHead] = asyncio.get_running_loop().create_future()
        self._chunks: collections.deque[bytes] = collections.deque()
        self._came = asyncio.Event()
        self._taken = asyncio.Event()
        self._whole = False
        self._failure: CorralError | None = None

    @property
    def over(self) -> bool:
        return self._failure is not None or self._whole

    def close(self, reason: CorralError | None = None) -> None:
        """End it; the other side gets the reason."""
        if not self.over:
            self._failure = reason or Retryable(
                Code.TRANSFER_INTERRUPTED, "nobody reads this transfer any more"
            )
        if not self.head.done():
            if reason is not None:
                self.head.set_exception(reason)
            else:
                self.head.cancel()
        self._came.set()
        self._taken.set()

    # the node's side

    async def receive(self, context: Any, opening: PushOpen) -> BlobInfo:
        """Take the whole upload. TRANSFER_INTERRUPTED when the reader is gone, TIMEOUT when it is too slow."""
        try:
            await within(context.write(PushReply(accepted=PushAccepted(offset=0, credit=CREDIT))))
            if not self.head.done():
                self.head.set_result(
                    StreamHead(
                        size=opening.size_bytes, digest=opening.digest, left_out=max(opening.left_out, 0)
                    )
                )
            await self._take_in(context, opening)
        except BaseException as error:
            lost = Retryable(Code.TRANSFER_INTERRUPTED, "the node broke off the transfer")
            self.close(error if isinstance(error, CorralError) else lost)
            raise
        self._whole = True
        self._came.set()
        return BlobInfo(digest=opening.digest, size=opening.size_bytes)

    async def _take_in(self, context: Any, opening: PushOpen) -> None:
        """The last piece is handed over only if all of it has the announced digest: what is not whole never looks so."""
        hasher, size = hashlib.sha256(), opening.size_bytes
        received, regrant = 0, Regrant(CREDIT)
        while received < size:
            message = await within(read_frame(context))
            if not isinstance(message, PushMessage):
                raise Retryable(Code.TRANSFER_INTERRUPTED, f"the upload ended after {received} bytes")
            data = message.chunk.data
            if message.chunk.offset != received or not data or received + len(data) > size:
                raise Rejected(
                    Code.INVALID_FIELD, f"unexpected chunk at {message.chunk.offset}", field="offset"
                )
            hasher.update(data)
            received += len(data)
            if received == size and opening.digest and hasher.hexdigest() != opening.digest:
                raise mismatch(expect=opening.digest, found=hasher.hexdigest())
            await self._hand_over(context, data)
            if (grant := regrant.consumed(len(data))) > 0:
                await within(context.write(PushReply(credit=Credit(bytes=grant))))

    async def _hand_over(self, context: Any, data: bytes) -> None:
        """Return once the reader has taken it."""
        self._taken.clear()
        self._chunks.append(data)
        self._came.set()
        now = asyncio.get_running_loop().time
        began = now()
        while self._chunks and self._failure is None:
            left = self._left - (now() - began)
            if left <= 0:
                raise Retryable(
                    Code.TIMEOUT, f"the reader took less than {LEAST_PACE} bytes/s for {self._patience:g} s"
                )
            if not await set_within(self._taken, min(left, _SIGN_OF_LIFE_SECONDS)):
                await within(context.write(PushReply(credit=Credit(bytes=0))))
        self._left = min(self._left - (now() - began) + len(data) / LEAST_PACE, self._patience)
        if self._failure is not None:
            raise self._failure

    # the reader's side

    async def blocks(self) -> AsyncGenerator[bytes]:
        """The bytes, in order; raises what ended the transfer before it was whole and compared with its digest."""
        while True:
            while self._chunks:
                block = self._chunks.popleft()
                self._taken.set()
                yield block
            if self._failure is not None:
                raise self._failure
            if self._whole:
                return
            self._came.clear()
            await self._came.wait()
