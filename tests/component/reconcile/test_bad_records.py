"""Records that some part of the controller cannot deal with: the others go on, and so does the controller."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3

import msgspec
import pytest
from structlog.testing import capture_logs

from corral.cli.failure import CommandFailure
from corral.controller.state.collections import GROUPS
from corral.domain.groups.instance_records import CrashLoop
from corral.errors import Code, CorralError
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport


def without_a_zone(record):
    """A pause until a time that cannot be compared with any other."""
    naive = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point
    pause = CrashLoop(since=naive, until=naive, pauses=1, reason="bad")
    return msgspec.structs.replace(record, paused=pause)


@pytest.mark.trap("T81")
async def test_a_record_that_a_follower_cannot_take_ends_neither_the_controller_nor_the_others(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group("bad", min=0)
    stored = fleet.state.groups.require("bad")
    with capture_logs() as logs:
        await fleet.term.ledger.commit(
            GROUPS.put("bad", without_a_zone(stored.record), expect=stored.revision)
        )
        await eventually(lambda: [log for log in logs if log["event"] == "follower_resync.finished"])
    failed = [log["follower"] for log in logs if log["event"] == "follower.failed"]
    assert failed == ["reconciler"]
    await fleet.group("lobby", min=2)
    await fleet.running(2)
    assert [e["subject"] for e in await fleet.events("GROUP_CREATED")][-1] == "lobby"


async def test_a_controller_starts_with_such_a_record_and_keeps_the_other_groups(fleet):
    await fleet.begin()
    await fleet.group("bad", min=0)
    await fleet.group("lobby", min=1)
    stored = fleet.state.groups.require("bad")
    await fleet.term.ledger.commit(GROUPS.put("bad", without_a_zone(stored.record), expect=stored.revision))
    await fleet.controller.app.stop()
    await fleet.begin()
    await fleet.node("n1")
    await fleet.running(1)


# --- documents that cannot be read ------------------------------------------------------------------------


def damage(controller, *documents: tuple[str, str], body: bytes = b'{"from": "the future"') -> None:
    """While the controller is down."""
    with sqlite3.connect(controller.data / "corral.db") as database:
        for collection, id in documents:
            changed = database.execute(
                "UPDATE document SET body = ? WHERE collection = ? AND id = ?", (body, collection, id)
            )
            assert changed.rowcount == 1, (collection, id)
    database.close()


def bodies(controller, collection: str) -> dict[str, bytes]:
    database = sqlite3.connect(controller.data / "corral.db")
    rows = database.execute("SELECT id, body FROM document WHERE collection = ?", (collection,)).fetchall()
    database.close()
    return dict(rows)


async def test_a_document_that_cannot_be_read_is_named_and_left_and_everything_else_works(fleet):
    await fleet.begin()
    await fleet.group("bad", min=1)
    await fleet.group("lobby", min=1)
    controller = fleet.controller
    await controller.app.stop()
    damage(controller, ("groups", "bad"))
    await fleet.begin()
    await fleet.node("n1")
    await fleet.running(1)
    call = fleet.controller.call
    (listed,) = (await call("GET", "/api/v1/cluster"))["unreadable"]
    assert (listed["collection"], listed["id"]) == ("groups", "bad")
    assert listed["reason"]
    (note,) = (await call("GET", "/ready"))["notes"]
    assert "1 document " in note
    (told,) = await fleet.events("DOCUMENT_UNREADABLE")
    assert told["subject"] == "groups/bad"
    assert [group["name"] for group in (await call("GET", "/api/v1/groups"))["items"]] == ["lobby"]
    with pytest.raises(CommandFailure) as refused:
        await fleet.group("bad", min=1)
    assert "groups/bad" in str(refused.value)
    await fleet.controller.app.stop()
    assert bodies(controller, "groups")["bad"] == b'{"from": "the future"'


async def test_an_instance_whose_record_cannot_be_read_counts_as_running_and_is_not_started_twice(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby", min=2)
    await fleet.group("other", min=1)
    await fleet.running(2)
    await fleet.running(1, "other")
    controller = fleet.controller
    await node.drop()
    await controller.app.stop()
    damage(controller, ("instances", "lobby-1"))
    await fleet.begin()
    await node.drop()
    again = await fleet.node("n2")
    await fleet.group("third", min=1)
    await fleet.running(1, "third")
    seen = fleet.term.reconciler._floor_at
    await eventually(lambda: fleet.term.reconciler._floor_at > seen or again.starts)
    assert {start.group for start in again.starts} <= {"third", "other", "lobby"}
    assert "lobby-1" not in {start.instance_id for start in again.starts}
    await fleet.controller.app.stop()
    assert bodies(controller, "instances")["lobby-1"] == b'{"from": "the future"'


async def test_a_node_whose_record_cannot_be_read_is_not_taken_for_removed(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby", min=1)
    await fleet.running(1)
    controller = fleet.controller
    await node.drop()
    await controller.app.stop()
    damage(controller, ("nodes", "n1"))
    await fleet.begin(reconcile__observe_seconds=0.1, reconcile__floor_seconds=0.1)
    seen = fleet.term.reconciler._floor_at
    await eventually(lambda: fleet.term.reconciler._floor_at > seen + 0.3)
    assert fleet.record("lobby-1").node == "n1"
    assert fleet.states() == {"lobby-1": "RUNNING"}


async def test_without_what_nothing_can_be_done_without_the_start_is_refused_and_says_why(fleet):
    await fleet.begin()
    controller = fleet.controller
    await controller.app.stop()
    (only,) = bodies(controller, "cluster")
    damage(controller, ("cluster", only))
    with pytest.raises(CorralError) as refused:
        await fleet.begin()
    assert refused.value.code is Code.FORMAT_INVALID
    assert f"cluster/{only}" in str(refused.value)


async def back_with(fleet, node, *documents, body=b'{"from": "the future"') -> None:
    """The controller begins anew upon a store that was damaged, or mended, meanwhile; the node comes back."""
    controller = fleet.controller
    await node.drop()
    await controller.app.stop()
    damage(controller, *documents, body=body)
    await fleet.begin()
    node.address = fleet.controller.grpc_address
    await node.connect()


def reported(text: str) -> DaemonMessage:
    return DaemonMessage(error_report=ErrorReport(error_code="X", error_message=text))


async def told(fleet, text: str) -> list[dict]:
    events = await fleet.events("NODE_ERROR_REPORTED")
    return [event for event in events if text in event["data"]["message"]]


async def test_a_position_of_a_spool_that_cannot_be_read_is_replaced_and_the_node_goes_on(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby", min=1)
    await fleet.running(1)
    await eventually(lambda: not node._spool)
    await back_with(fleet, node, ("spools", "n1"))
    await node.spool(reported("said afterwards"))
    await eventually(lambda: not node._spool)
    assert fleet.state.spools.require("n1").record.sequence == node.written
    assert not fleet.state.quarantine
    assert await told(fleet, "said afterwards")
    assert fleet.states() == {"lobby-1": "RUNNING"}
    await node.drop()
    await node.connect()
    await node.crash("lobby-1")
    await eventually(lambda: not node._spool)
    assert len(fleet.state.crashes) == 1


async def test_a_node_whose_position_cannot_be_read_can_be_removed(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await node.spool(reported("something"))
    await eventually(lambda: not node._spool)
    await node.drop()
    controller = fleet.controller
    await controller.app.stop()
    damage(controller, ("spools", "n1"))
    await fleet.begin()
    await eventually(lambda: fleet.state.nodes.require("n1").record.state != "ONLINE")
    await fleet.controller.call("DELETE", "/api/v1/nodes/n1")
    assert fleet.state.nodes.find("n1") is None
    assert not fleet.state.quarantine


async def test_a_report_that_a_damaged_document_keeps_out_waits_for_the_repair_and_is_not_confirmed(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby", restart={"on": "never"})
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    run = wire.RunningInstance()
    run.CopyFrom(node.runs["lobby-1"])
    await node.crash("lobby-1")
    await fleet.reaches("lobby-1", "CRASHED")
    await eventually(lambda: not node._spool)
    before = bodies(fleet.controller, "node_ledgers")["n1"]
    await back_with(fleet, node, ("node_ledgers", "n1"))
    await node.spool(reported("said before"))
    run.incarnation += 1  # its node has started it again: it holds a place there, which the ledger is to say
    node.runs["lobby-1"] = run
    await node.report("lobby-1", wire.INSTANCE_STATE_RUNNING)
    await wait_for_event(fleet, "wait: NotOverwritten")
    assert await told(fleet, "said before")
    assert fleet.term.sessions.find("n1") is not None
    assert fleet.states() == {"lobby-1": "CRASHED"}
    assert [message.WhichOneof("payload") for message in node._spool.values()] == ["instance_status"]
    assert not await told(fleet, "set aside")
    await back_with(fleet, node, ("node_ledgers", "n1"), body=before)
    await eventually(lambda: not node._spool)
    assert fleet.states() == {"lobby-1": "RUNNING"}


async def test_a_crash_whose_document_cannot_be_read_is_not_stored_again_and_delays_nobody(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby")
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    run = wire.RunningInstance()
    run.CopyFrom(node.runs["lobby-1"])
    await node.crash("lobby-1")
    await eventually(lambda: not node._spool)
    await back_with(fleet, node, ("crashes", f"lobby-1.{run.incarnation}"))
    node.runs["lobby-1"] = run
    await node.crash("lobby-1")
    await node.spool(reported("said afterwards"))
    await eventually(lambda: not node._spool)
    assert await told(fleet, "said afterwards")
    assert not await told(fleet, "set aside")
    assert bodies(fleet.controller, "crashes") == {f"lobby-1.{run.incarnation}": b'{"from": "the future"'}


async def wait_for_event(fleet, text: str) -> None:
    async with asyncio.timeout(20):
        while not await told(fleet, text):
            await asyncio.sleep(0.05)


@pytest.mark.trap("T21")
async def test_a_reservation_that_cannot_be_read_keeps_its_node_out_of_placement(fleet):
    """It may hold any port and all of the memory there."""
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group("lobby")
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    await eventually(lambda: not node._spool)
    before = bodies(fleet.controller, "reservations")["n1/lobby-1"]
    await back_with(fleet, node, ("reservations", "n1/lobby-1"))
    await eventually(lambda: fleet.state.nodes.require("n1").record.state == "ONLINE")
    with pytest.raises(CommandFailure) as refused:
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert "no node can take" in str(refused.value)
    await back_with(fleet, node, ("reservations", "n1/lobby-1"), body=before)
    await eventually(lambda: fleet.state.nodes.require("n1").record.state == "ONLINE")
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(2)
    assert fleet.reservations().keys() == {"lobby-1", "lobby-2"}
