"""Records that some part of the controller cannot deal with: the others go on, and so does the controller."""

from __future__ import annotations

import datetime as dt
import sqlite3

import msgspec
import pytest
from structlog.testing import capture_logs

from corral.cli.failure import Failure
from corral.controller.collections import GROUPS
from corral.domain.instance_records import CrashLoop
from corral.errors import Code, CorralError
from corral.testing.waiting import eventually


def without_a_zone(record):
    """A pause until a time that cannot be compared with any other."""
    naive = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point
    pause = CrashLoop(since=naive, until=naive, strikes=1, reason="bad")
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
        await eventually(lambda: [log for log in logs if log["event"] == "follower.resynced"])
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
    assert "1 documents" in note
    (told,) = await fleet.events("DOCUMENT_UNREADABLE")
    assert told["subject"] == "groups/bad"
    assert [group["name"] for group in (await call("GET", "/api/v1/groups"))["items"]] == ["lobby"]
    with pytest.raises(Failure) as refused:
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
