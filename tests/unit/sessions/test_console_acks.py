"""Confirmed positions of consoles: one message for all that wait, of each console the latest, and bounded."""

from __future__ import annotations

from corral.controller.sessions.console_acks import ConsoleAcks
from corral.controller.sessions.published_node import NodeOutbox, PublishedNode
from corral.wire.features import FEATURES, support_of
from corral.wire.outbox import MAX_MESSAGES
from corral.wire.v1.instance_pb2 import ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import SpoolAck


def session() -> tuple[NodeOutbox, ConsoleAcks]:
    outbox = NodeOutbox(PublishedNode(support_of(FEATURES), answer=lambda _: None))
    return outbox, ConsoleAcks(outbox)


def position(name: str, offset: int, **more: bool) -> ConsolePosition:
    return ConsolePosition(instance_id=name, incarnation=1, offset=offset, **more)


async def test_positions_of_many_consoles_and_batches_leave_in_one_message():
    outbox, acks = session()
    acks.add([position(f"c-{number}", 10) for number in range(100)])
    acks.add([position("c-7", 20, watched=True), position("c-100", 5)])
    assert len(outbox) == 1
    frame = await outbox.next_frame()
    found = {each.instance_id: (each.offset, each.watched) for each in frame.console_ack.positions}
    assert len(frame.console_ack.positions) == len(found) == 101
    assert found["c-7"] == (20, True)
    assert found["c-100"] == (5, False)
    assert len(outbox) == 0


async def test_positions_that_come_while_a_frame_is_written_leave_in_the_next():
    outbox, acks = session()
    acks.add([position("c-1", 10)])
    first = await outbox.next_frame()
    acks.add([position("c-1", 30)])
    acks.add([])
    second = await outbox.next_frame()
    assert [each.offset for each in first.console_ack.positions] == [10]
    assert [each.offset for each in second.console_ack.positions] == [30]


async def test_other_state_shares_the_frame():
    outbox, acks = session()
    outbox.replace("spool", ControllerMessage(spool_ack=SpoolAck(sequence=3)))
    acks.add([position("c-1", 10)])
    frame = await outbox.next_frame()
    assert {each.WhichOneof("payload") for each in frame.batch.messages} == {"spool_ack", "console_ack"}


async def test_a_node_that_invents_consoles_and_reads_nothing_loses_its_stream():
    outbox, acks = session()
    for number in range(MAX_MESSAGES):
        acks.add([position(f"c-{number}", 10)])
    acks.add([position("c-0", 20)])
    assert not outbox.closed
    acks.add([position("one-more", 10)])
    assert outbox.closed
    assert outbox.overflowed
    assert await outbox.next_frame() is None
