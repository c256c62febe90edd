"""The outbox: order, coalescing, bounds, and one frame at a time."""

from __future__ import annotations

import asyncio

from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, NodeStatus, Pong


def pong(number: int) -> DaemonMessage:
    return DaemonMessage(pong=Pong(sequence=number))


def bundle(messages: list[DaemonMessage]) -> DaemonMessage:
    return DaemonMessage(batch=DaemonBatch(messages=messages))


async def test_messages_leave_in_the_order_they_came_and_share_frames():
    outbox = Outbox(bundle=bundle)
    for number in range(1000):
        outbox.send(pong(number))
    seen, frames = [], 0
    while len(seen) < 1000:
        frame = await outbox.next_frame()
        frames += 1
        seen += [message.pong.sequence for message in frame.batch.messages]
    assert seen == list(range(1000))
    assert frames <= 4


async def test_a_peer_without_batches_gets_one_message_a_frame():
    outbox = Outbox(bundle=None)
    outbox.send(pong(1))
    outbox.send(pong(2))
    assert (await outbox.next_frame()).pong.sequence == 1
    assert (await outbox.next_frame()).pong.sequence == 2


async def test_state_is_coalesced_to_its_latest_value():
    outbox = Outbox(bundle=bundle)
    for load in range(100):
        outbox.replace("status", DaemonMessage(node_status=NodeStatus(instance_count=load)))
    frame = await outbox.next_frame()
    assert frame.node_status.instance_count == 99
    assert len(outbox) == 0


async def test_too_many_messages_end_the_stream_instead_of_filling_memory():
    outbox = Outbox(bundle=bundle, max_messages=10)
    accepted = [outbox.send(pong(number)) for number in range(12)]
    assert accepted == [True] * 10 + [False] * 2
    assert outbox.overflowed
    assert await outbox.next_frame() is None


async def test_too_many_bytes_end_the_stream_too():
    outbox = Outbox(bundle=bundle, max_bytes=1000)
    big = DaemonMessage(error_report=ErrorReport(error_message="x" * 600))
    assert outbox.send(big)
    assert not outbox.send(big)
    assert outbox.overflowed


async def test_bytes_that_left_make_room_again():
    outbox = Outbox(bundle=None, max_bytes=1000)
    big = DaemonMessage(error_report=ErrorReport(error_message="x" * 600))
    for _ in range(20):
        assert outbox.send(big)
        await outbox.next_frame()
    assert outbox.waiting_bytes == 0


async def test_closing_wakes_the_waiting_writer():
    outbox = Outbox(bundle=bundle)
    writer = asyncio.create_task(outbox.next_frame())
    await asyncio.sleep(0)
    outbox.close()
    assert await writer is None
    assert not outbox.send(pong(1))
    assert not outbox.overflowed
