"""Events of the stages of a start that takes a while, and how many there are."""

from __future__ import annotations

import pytest
from pretend_node import S

from corral.controller.instances.stage_events import NODE_BURST, PER_RUN, StageEvents
from corral.system.aio.tasks import Tasks
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage

STAGE = "INSTANCE_STAGE"


def accepted(order: wire.StartInstance) -> wire.StartInstanceAck:
    """It is accepted, and nothing more is heard of it."""
    return wire.StartInstanceAck(instance_id=order.instance_id, incarnation=order.incarnation, accepted=True)


@pytest.fixture
async def preparing(fleet):
    """A node that prepares `lobby-1` for ever."""
    await fleet.begin()
    node = await fleet.node("n1")
    node.on_start = accepted
    await fleet.group(min=1)
    await eventually(lambda: node.starts)
    return node


async def say(node, stage: int, reason: str = "", state: int = S.INSTANCE_STATE_PREPARING) -> None:
    order = node.starts[0]
    update = wire.InstanceStatusUpdate(
        instance_id=order.instance_id,
        incarnation=order.incarnation,
        state=state,
        stage=stage,
        reason=reason,
    )
    await node.tell(DaemonMessage(instance_status=update))


async def seen(fleet, count: int) -> list[tuple[str, str]]:
    events: list = []

    async def there() -> bool:
        events[:] = await fleet.events(STAGE)
        return len(events) >= count

    await eventually(there, state=lambda: events)
    return [(event["data"]["stage"], event["data"]["reason"]) for event in events]


async def test_the_stages_of_a_slow_start_are_events_and_what_is_reported_again_is_not(fleet, preparing):
    await say(preparing, wire.START_PREPARATION_STAGE_TEMPLATE_APPLY)
    assert await seen(fleet, 1) == [("TEMPLATE_APPLY", "")]
    await say(preparing, wire.START_PREPARATION_STAGE_TEMPLATE_APPLY)
    await say(preparing, wire.START_PREPARATION_STAGE_PROCESS_START, "port 30000", S.INSTANCE_STATE_STARTING)
    assert await seen(fleet, 2) == [("TEMPLATE_APPLY", ""), ("", "port 30000")]
    (first, _) = await fleet.events(STAGE)
    run = preparing.starts[0]
    assert (first["subject"], first["data"]["incarnation"]) == (run.instance_id, run.incarnation)
    assert (first["data"]["group"], first["data"]["node"]) == ("lobby", "n1")


async def test_a_quick_start_has_four_events_and_none_of_them_is_a_stage(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.reaches("lobby-1", "RUNNING")
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await fleet.reaches("lobby-1", "STOPPED")
    found = [e["type"] for e in await fleet.events() if e["type"].startswith("INSTANCE_")]
    states = ["SCHEDULED", "PREPARING", "STARTING", "RUNNING", "STOPPING", "STOPPED"]
    assert found == [f"INSTANCE_{state}" for state in states]


async def test_reports_about_other_runs_and_unknown_stages_are_no_events(fleet, preparing):
    order = preparing.starts[0]
    late = wire.InstanceStatusUpdate(
        instance_id=order.instance_id,
        incarnation=order.incarnation + 5000,
        state=S.INSTANCE_STATE_PREPARING,
        stage=wire.START_PREPARATION_STAGE_TEMPLATE_APPLY,
    )
    await preparing.tell(DaemonMessage(instance_status=late))
    await say(preparing, 77, "sneaky")
    await say(preparing, wire.START_PREPARATION_STAGE_CONFIG_PATCH)
    assert (await seen(fleet, 1))[-1] == ("CONFIG_PATCH", "")
    assert "sneaky" not in str(await fleet.events(STAGE))


async def test_what_was_published_already_is_not_published_again_with_others(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.on_start = accepted
    await fleet.group(min=2)
    await eventually(lambda: len(node.ordered) == 2)
    stages = StageEvents(fleet.term.ledger, clock=SystemClock(), pause_seconds=0.0)
    first, second = [fleet.record(order.instance_id) for order in node.ordered]
    async with Tasks() as tasks:
        running = tasks.spawn(stages.run(), name="test/stages")
        stages.note(first, first.incarnation, "VALIDATION", "disk")
        await seen(fleet, 1)
        stages.note(first, first.incarnation, "VALIDATION", "disk")
        stages.note(second, second.incarnation, "VALIDATION", "ports")
        assert await seen(fleet, 2) == [("VALIDATION", "disk"), ("VALIDATION", "ports")]
        running.cancel()


class StoppedClock(SystemClock):
    def monotonic(self) -> float:
        return 1.0


@pytest.mark.parametrize(("per_run", "expected"), [(PER_RUN, PER_RUN), (1000, NODE_BURST)])
async def test_a_node_that_reports_without_end_makes_a_bounded_number_of_events(
    fleet, preparing, per_run: int, expected: int
):
    stages = StageEvents(fleet.term.ledger, clock=StoppedClock(), per_run=per_run, pause_seconds=0.0)
    order = preparing.starts[0]
    record = fleet.record(order.instance_id)
    async with Tasks() as tasks:
        running = tasks.spawn(stages.run(), name="test/stages")
        for number in range(expected + 20):
            before = fleet.term.hub.published[STAGE]
            stages.note(record, order.incarnation, "VALIDATION", f"reason {number}")
            if number < expected:
                await eventually(lambda before=before: fleet.term.hub.published[STAGE] == before + 1)
        await fleet.term.ledger.commit()
        assert fleet.term.hub.published[STAGE] == expected
        running.cancel()
