"""Uploads that are passed on as they come: how slow a reader may be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from corral.controller.sessions.incoming_streams import LEAST_PACE, IncomingStream
from corral.errors import Code, Retryable
from corral.wire.v1.data_pb2 import DataChunk, PushMessage, PushOpen


class Node:
    """A call by which a node sends zeros in chunks of one size."""

    def __init__(self, size: int, chunk: int) -> None:
        self.opening = PushOpen(transfer_id="t", size_bytes=size)
        self._chunk = chunk
        self._sent = 0

    async def write(self, reply: Any) -> None:
        """Credit; it is not counted here."""

    async def read(self) -> PushMessage:
        data = bytes(min(self._chunk, self.opening.size_bytes - self._sent))
        message = PushMessage(chunk=DataChunk(offset=self._sent, data=data))
        self._sent += len(data)
        return message


async def taken(stream: IncomingStream, *, pause: float) -> int:
    count = 0
    async for block in stream.blocks():
        count += len(block)
        await asyncio.sleep(pause)  # this is how slow the reader is
    return count


@pytest.mark.trap("T42")
async def test_a_reader_that_takes_a_little_now_and_then_is_ended() -> None:
    stream, node = IncomingStream(patience=0.3), Node(1_000_000, 100)
    receiving = asyncio.create_task(stream.receive(node, node.opening))
    with pytest.raises(Retryable, match="bytes/s") as ended:
        await taken(stream, pause=0.02)
    assert ended.value.code is Code.TIMEOUT
    with pytest.raises(Retryable):
        await receiving


async def test_a_reader_with_the_least_pace_may_take_as_long_as_it_likes() -> None:
    chunk, patience = LEAST_PACE, 0.3
    stream, node = IncomingStream(patience=patience), Node(40 * chunk, chunk)
    receiving = asyncio.create_task(stream.receive(node, node.opening))
    assert await taken(stream, pause=patience / 10) == 40 * chunk
    assert (await receiving).size == 40 * chunk
