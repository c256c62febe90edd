"""Records that some part of the controller cannot deal with: the others go on, and so does the controller."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from structlog.testing import capture_logs

from corral.controller.collections import GROUPS
from corral.domain.instance_records import CrashLoop
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
