"""What the daemon of a drained node is ordered: it follows the node's record, in every session anew."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from pretend_node import PretendNode, S

from corral.controller.instances.node_drain_orders import drain_order, published_order
from corral.domain.node_states import Admission
from corral.domain.records import NodeDrain
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ShutdownMode, ShutdownNodeAck

NOW = dt.datetime(2026, 11, 17, 12, 0, tzinfo=dt.UTC)
DRAIN = NodeDrain(id="drn-1", by="ops", reason="kernel update", started_at=NOW, request="req-7")
ANNOUNCE, STOP, EXIT, RESUME = (
    ShutdownMode.Value(f"SHUTDOWN_MODE_{name}") for name in ("ANNOUNCE", "STOP", "EXIT", "RESUME")
)


async def drain(fleet: Any, node: PretendNode, admission: Admission, drain: NodeDrain | None) -> None:
    """Write the record as the drain of a node does."""
    await fleet.term.ledger.revise(
        fleet.state.nodes,
        node.id,
        lambda stored: (msgspec.structs.replace(stored.record, admission=admission, drain=drain), ()),
    )


def ordered(node: PretendNode) -> list[tuple[int, str]]:
    """The orders about drains that the node was sent, over all sessions."""
    return [
        (asked.shutdown_node.mode, asked.shutdown_node.drain_id)
        for asked in node.asked
        if asked.HasField("shutdown_node")
    ]


async def was_ordered(node: PretendNode, *expected: tuple[int, str]) -> None:
    await eventually(lambda: ordered(node) == list(expected), state=lambda: ordered(node))


async def occupied(fleet: Any) -> PretendNode:
    """A node with an instance that does not end: its drain goes on as long as the test wants."""
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby", min=1, nodes=["n1"], stop=[{"signal": "SIGTERM", "wait_seconds": 600}])
    await fleet.running(1)
    node.slow_stops = True
    return node


async def test_a_drain_is_announced_and_its_end_too(fleet: Any) -> None:
    node = await occupied(fleet)
    await drain(fleet, node, Admission.DRAINING, DRAIN)
    await was_ordered(node, (ANNOUNCE, "drn-1"))
    frame = next(asked for asked in node.asked if asked.HasField("shutdown_node"))
    assert (frame.shutdown_node.reason, frame.cause) == ("kernel update", "request:req-7")
    await drain(fleet, node, Admission.OPEN, None)
    await was_ordered(node, (ANNOUNCE, "drn-1"), (RESUME, "drn-1"))
    again = msgspec.structs.replace(DRAIN, id="drn-2")
    await drain(fleet, node, Admission.DRAINING, again)
    later = msgspec.structs.replace(again, deadline_at=NOW + dt.timedelta(days=900))
    await drain(fleet, node, Admission.DRAINING, later)  # nothing new for the daemon
    await drain(fleet, node, Admission.DRAINED, later)
    await was_ordered(node, (ANNOUNCE, "drn-1"), (RESUME, "drn-1"), (ANNOUNCE, "drn-2"), (STOP, "drn-2"))


async def test_a_new_session_is_told_of_a_drain_before_it_is_given_a_start(fleet: Any) -> None:
    node = await occupied(fleet)
    await drain(fleet, node, Admission.DRAINING, DRAIN)
    await was_ordered(node, (ANNOUNCE, "drn-1"))
    await node.drop()
    await node.connect()
    await was_ordered(node, (ANNOUNCE, "drn-1"), (ANNOUNCE, "drn-1"))
    await drain(fleet, node, Admission.OPEN, None)
    await was_ordered(node, (ANNOUNCE, "drn-1"), (ANNOUNCE, "drn-1"), (RESUME, "drn-1"))
    await node.drop()
    await node.connect()
    await fleet.group("other", min=1, nodes=["n1"])
    await fleet.running(1, "other")
    assert len(ordered(node)) == 3, "a session of a node that is not drained is told nothing"


async def test_the_answer_of_a_node_is_shown_within_bounds(fleet: Any) -> None:
    node = await occupied(fleet)
    await drain(fleet, node, Admission.DRAINING, DRAIN)
    await was_ordered(node, (ANNOUNCE, "drn-1"))
    ack = ShutdownNodeAck(
        running_instances=3, estimated_drain_seconds=2**31 - 1, mode=ANNOUNCE, drain_id="drn-1"
    )
    await node.tell(DaemonMessage(shutdown_node_ack=ack))
    await eventually(lambda: fleet.term.sessions.live("n1").drain_ack)
    shown = fleet.term.sessions.live("n1").drain_ack
    assert (shown.drain_id, shown.running_instances, shown.estimated_seconds) == ("drn-1", 3, 7 * 86_400)


def _ack_of(fleet: Any) -> str:
    """The drain that the node's last answer is about."""
    live = fleet.term.sessions.live("n1")
    return live.drain_ack.drain_id if live is not None and live.drain_ack is not None else ""


async def test_a_daemon_is_ended_once_for_a_drain(fleet: Any) -> None:
    await fleet.begin()
    node = await fleet.node("n1")
    last = msgspec.structs.replace(DRAIN, shutdown=True)
    await drain(fleet, node, Admission.DRAINED, last)
    await eventually(lambda: ordered(node)[-1:] == [(EXIT, "drn-1")], state=lambda: ordered(node))
    await node.tell(DaemonMessage(shutdown_node_ack=ShutdownNodeAck(mode=EXIT, drain_id="drn-1")))
    await node.drop()  # killed before it had stopped what ran: it is ordered again
    await node.connect()
    await eventually(lambda: ordered(node)[-2:] == [(ANNOUNCE, "drn-1"), (EXIT, "drn-1")])
    late = ShutdownNodeAck(mode=EXIT, drain_id="drn-0", done=True)  # of another drain
    await node.tell(DaemonMessage(shutdown_node_ack=late))
    await eventually(lambda: _ack_of(fleet) == "drn-0")
    assert not fleet.term.instances.drain_orders._ended
    assert fleet.state.nodes.require("n1").record.drain.exit_ordered_at is None
    ack = ShutdownNodeAck(mode=EXIT, drain_id="drn-1", done=True)
    await node.tell(DaemonMessage(shutdown_node_ack=ack))
    await eventually(lambda: fleet.state.nodes.require("n1").record.drain.exit_ordered_at)
    await node.drop()
    before = len(ordered(node))
    await node.connect()
    await eventually(lambda: len(ordered(node)) > before and ordered(node)[-1] == (STOP, "drn-1"))
    assert (EXIT, "drn-1") not in ordered(node)[before:]


async def test_a_node_that_says_it_ends_before_that_was_ordered_is_not_believed(fleet: Any) -> None:
    node = await occupied(fleet)
    ending = msgspec.structs.replace(DRAIN, shutdown=True)
    await drain(fleet, node, Admission.DRAINING, ending)
    await was_ordered(node, (ANNOUNCE, "drn-1"))
    for id in ("drn-1", "drn-0"):
        early = ShutdownNodeAck(mode=EXIT, drain_id=id, done=True)
        await node.tell(DaemonMessage(shutdown_node_ack=early))
    await eventually(lambda: _ack_of(fleet) == "drn-0")
    assert not fleet.term.instances.drain_orders._ended
    await drain(fleet, node, Admission.DRAINED, ending)
    await was_ordered(node, (ANNOUNCE, "drn-1"), (EXIT, "drn-1"))
    assert fleet.state.nodes.require("n1").record.drain.exit_ordered_at is None


async def test_a_new_leader_repeats_what_holds(fleet: Any) -> None:
    node = await occupied(fleet)
    await drain(fleet, node, Admission.DRAINING, DRAIN)
    await was_ordered(node, (ANNOUNCE, "drn-1"))
    await fleet.controller.call("POST", "/api/v1/cluster/raise-epoch")
    await node.drop()
    await eventually(lambda: fleet.term is not None and fleet.term.epoch > 1)
    await node.connect()
    await was_ordered(node, (ANNOUNCE, "drn-1"), (ANNOUNCE, "drn-1"))


async def test_strays_are_not_stopped_by_a_drain(fleet: Any) -> None:
    await fleet.begin()
    node = await fleet.node("n1", connect=False)
    node.runs["ghost-1"] = wire.RunningInstance(
        instance_id="ghost-1", group="ghost", incarnation=5 * 1024, state=S.INSTANCE_STATE_RUNNING, pid=7
    )
    await node.connect()
    await eventually(lambda: fleet.term.sessions.live("n1").stray_count == 1)
    await drain(fleet, node, Admission.DRAINED, DRAIN)
    await drain(fleet, node, Admission.OPEN, None)
    await was_ordered(node, (ANNOUNCE, "drn-1"), (RESUME, "drn-1"))


async def test_a_daemon_without_modes_is_told_once_when_its_node_is_empty(fleet: Any) -> None:
    await fleet.begin()
    node = await fleet.node("n1", features=[])
    await drain(fleet, node, Admission.DRAINED, DRAIN)
    await was_ordered(node, (0, "drn-1"))
    await eventually(lambda: fleet.state.nodes.require("n1").record.drain.exit_ordered_at)
    await node.drop()
    await node.connect()
    await fleet.term.ledger.revise(fleet.state.nodes, "n1", lambda stored: (stored.record, ()))
    assert ordered(node) == [(0, "drn-1")]


async def test_a_daemon_without_modes_is_told_at_the_deadline(fleet: Any) -> None:
    await fleet.begin()
    node = await fleet.node("n1", features=[])
    await fleet.group("lobby", min=1, nodes=["n1"], stop=[{"signal": "SIGTERM", "wait_seconds": 600}])
    await fleet.running(1)
    node.slow_stops = True
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.5)
    await drain(fleet, node, Admission.DRAINING, msgspec.structs.replace(DRAIN, deadline_at=soon))
    await was_ordered(node, (0, "drn-1"))


@pytest.mark.parametrize(
    ("fields", "drained", "complete", "strays", "mode"),
    [
        ({}, False, True, 0, ANNOUNCE),
        ({}, True, False, 0, ANNOUNCE),
        ({}, True, True, 0, STOP),
        ({}, True, True, 2, ANNOUNCE),
        ({"shutdown": True}, False, True, 0, ANNOUNCE),
        ({"shutdown": True}, True, False, 0, ANNOUNCE),
        ({"shutdown": True}, True, True, 2, EXIT),
        ({"shutdown": True, "exit_ordered_at": NOW}, True, True, 0, STOP),
        ({"shutdown": True, "exit_ordered_at": NOW}, True, True, 1, ANNOUNCE),
    ],
)
def test_the_order_follows_from_the_record(
    fields: dict[str, Any], drained: bool, complete: bool, strays: int, mode: int
) -> None:
    found = drain_order(
        msgspec.structs.replace(DRAIN, **fields), drained=drained, complete=complete, strays=strays
    )
    assert (found.mode, found.drain, found.reason) == (mode, "drn-1", "kernel update")


@pytest.mark.parametrize(
    ("fields", "drained", "complete", "overdue", "ordered"),
    [
        ({}, False, True, False, False),
        ({}, True, False, False, False),
        ({}, True, True, False, True),
        ({"exit_ordered_at": NOW}, True, True, True, False),
        ({}, False, True, True, True),
        ({}, False, False, True, False),
    ],
)
def test_a_daemon_without_modes_is_told_when_it_is_empty_or_late(
    fields: dict[str, Any], drained: bool, complete: bool, overdue: bool, ordered: bool
) -> None:
    drain = msgspec.structs.replace(DRAIN, **fields)
    found = published_order(drain, drained=drained, complete=complete, overdue=overdue)
    assert (found is not None) is ordered
