"""Starts whose files cannot be had: said, counted, and not tried without end."""

from __future__ import annotations

import datetime as dt

import pytest
from pretend_node import TRANSIENT, S, refuse

from corral.cli.failure import CommandRefused
from corral.controller.distribution.artifact_catalog import put_entry
from corral.controller.state.collections import CATALOG, PLANS
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.instance_records import PlanRecord
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PAPER = {"platform": "paper", "version": "1.20"}


async def publish(fleet) -> None:
    record = CatalogRecord(
        **PAPER,
        file="paper.jar",
        url="https://example.org/p",
        sha256="a" * 64,
        created_at=NOW,
        updated_at=NOW,
    )
    await fleet.term.ledger.commit(*put_entry(fleet.state, record))


@pytest.mark.trap("T22")
async def test_a_group_whose_artifact_is_gone_says_so_once_and_goes_on_when_it_is_back(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await publish(fleet)
    await fleet.group(min=2, artifact=PAPER)
    await fleet.running(2)
    assert {plan.artifact.platform for plan in node.plans} == {"paper"}
    await fleet.term.ledger.commit(CATALOG.delete("paper/1.20", expect=None))
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().reason.startswith("ARTIFACT_NOT_FOUND"))
    for _ in range(3):  # each is a change of nodes, after which short groups are looked at again
        await node.drop()
        await node.connect()
    await fleet.reaches("lobby-2", "RUNNING")
    with pytest.raises(CommandRefused, match="cannot be started"):
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert len(node.ordered) == 2
    assert len(await fleet.events("GROUP_SHORT")) == 1
    await publish(fleet)
    await fleet.running(2)
    assert fleet.group_record().reason == ""


@pytest.mark.trap("T22")
async def test_what_a_node_cannot_fetch_is_tried_with_pauses_and_then_left_alone(fleet):
    await fleet.begin(reconcile__resend_seconds=0.05)
    node = await fleet.node("n1")
    node.on_start = refuse("CACHE_DOWNLOAD_FAILED", "503 from example.org", disposition=TRANSIENT)
    await publish(fleet)
    await fleet.group(min=1, artifact=PAPER, crash_loop={"failures": 2, "pause_seconds": 3600})
    await eventually(lambda: fleet.group_record().paused is not None)
    assert len(node.ordered) == 10  # five tries of each of two instances
    assert len({start.incarnation for start in node.ordered}) == 10
    assert "503 from example.org" in fleet.group_record().paused.reason
    assert all(not record.ports for record in fleet.reservations().values())
    assert not fleet.reservations()


@pytest.mark.trap("T22")
async def test_a_template_that_the_controller_lost_is_final_for_a_start_and_pauses_the_group(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.on_start = refuse("TEMPLATE_NOT_FOUND", "template 'base' has no such version")
    await fleet.group(min=1)
    await eventually(lambda: fleet.group_record().paused is not None)
    assert len(node.ordered) == 3


async def test_a_plan_that_cannot_be_read_costs_nobody_else_his_start(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.deaf = True
    await fleet.group(min=1)
    await eventually(lambda: node.starts)
    hash = fleet.record("lobby-1").plan_hash
    await fleet.term.ledger.commit(PLANS.put(hash, PlanRecord(hash=hash, body="{}"), expect=None))
    node.deaf = False
    await node.drop()
    await node.connect()
    await fleet.group("other", min=1)
    await fleet.running(1, "other")
    assert fleet.record("lobby-1").state == "SCHEDULED"
    assert {start.group for start in node.starts} == {"lobby", "other"}


async def test_a_published_daemon_is_given_starts_in_the_fields_it_knows(fleet):
    await fleet.begin()
    node = await fleet.node("n1", features=[], runtimes=[])
    await publish(fleet)
    await fleet.group(min=1, command=[], jvm={"heap_mb": 64}, memory_mb=100, artifact=PAPER)
    await fleet.running(1)
    order = node.starts[0]
    assert (order.jar_file, order.download_url, order.memory_mb) == ("paper.jar", "https://example.org/p", 64)
    assert order.composition_plan.runtime.sha256 == "a" * 64


async def test_stages_and_players_are_known_at_once_and_never_stored(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.deaf = True
    await fleet.group(min=1)
    await eventually(lambda: node.starts)
    order = node.starts[0]
    vitals = fleet.term.workload.vitals
    revision = fleet.state.instances.revision("lobby-1")

    async def tell(**fields):
        update = wire.InstanceStatusUpdate(
            instance_id=order.instance_id, incarnation=order.incarnation, **fields
        )
        await node.tell(DaemonMessage(instance_status=update))

    for stage in (wire.START_PREPARATION_STAGE_VALIDATION, wire.START_PREPARATION_STAGE_TEMPLATE_APPLY):
        await tell(state=S.INSTANCE_STATE_PREPARING, stage=stage)
    await eventually(
        lambda: (v := vitals.find("lobby-1")) is not None and v.stage == "TEMPLATE_APPLY",
        state=lambda: vitals.find("lobby-1"),
    )
    # what is stored is stored in order: behind this one the stages would have been
    await node.tell(DaemonMessage(error_report=ErrorReport(error_code="MARK")))
    await eventually(lambda: fleet.term.hub.published["NODE_ERROR_REPORTED"])
    assert fleet.state.instances.revision("lobby-1") == revision, (
        "events tell of stages, and no record has them"
    )
    assert fleet.record("lobby-1").state == "SCHEDULED"
    await tell(state=S.INSTANCE_STATE_RUNNING, readiness=wire.READINESS_READY)
    await fleet.reaches("lobby-1", "RUNNING")
    assert vitals.find("lobby-1").stage == ""
    number = fleet.state.number
    for count in (3, 7):
        await tell(state=S.INSTANCE_STATE_RUNNING, players_known=True, player_count=count, max_players=20)
    await eventually(lambda: vitals.find("lobby-1").players == 7)
    assert vitals.find("lobby-1").max_players == 20
    await node.tell(DaemonMessage(error_report=ErrorReport(error_code="MARK")))
    await eventually(lambda: fleet.state.number > number)
    assert fleet.state.number == number + 1


async def test_what_a_node_says_about_another_nodes_instance_is_not_heard(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    stranger = await fleet.node("n2")
    update = wire.InstanceStatusUpdate(
        instance_id="lobby-1", state=S.INSTANCE_STATE_RUNNING, players_known=True, player_count=99
    )
    await stranger.tell(DaemonMessage(instance_status=update))
    await stranger.tell(DaemonMessage(instance_status=wire.InstanceStatusUpdate(instance_id="")))
    await eventually(lambda: fleet.term.sessions.find("n2") is not None)
    vital = fleet.term.workload.vitals.find("lobby-1")
    assert vital is None or vital.players is None
