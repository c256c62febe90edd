"""Answers and crashes of a hostile node: only from whom was asked, only of what it was given, small."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hostile_site import LARGE, VICTIM, exit_of

from corral.cli.failure import CommandRefused
from corral.controller.instances.report_values import CRASH_BYTES
from corral.controller.instances.retention import forgotten
from corral.system.controller_config import InstanceRetentionSection
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage


@pytest.mark.trap("T65")
async def test_an_order_is_answered_by_the_node_that_got_it_alone(site):
    site.honest.deaf = True
    await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    order = await eventually(lambda: next((o for o in site.honest.starts if o.group == "world"), None))
    await eventually(lambda: site.honest.starts[-1].instance_id == "world-1")
    number = site.honest.starts[-1].incarnation
    ack = wire.StartInstanceAck(instance_id=order.instance_id, incarnation=number, accepted=True)
    await site.rogue.tell(DaemonMessage(start_instance_ack=ack))
    await site.taken_in()
    assert not site.fleet.term.instances.dispatcher._sendings["world-1"].answered
    sent = len(site.honest.starts)
    await eventually(lambda: len(site.honest.starts) > sent)  # it is sent again, for nobody has it


QUESTIONS = {
    "walk_instance_files": (
        ("GET", f"/api/v1/instances/{VICTIM}/files", None),
        lambda asked, path: DaemonMessage(
            instance_file_tree=wire.InstanceFileTree(request_id=asked, entries=[wire.FileEntry(path=path)])
        ),
    ),
    "read_instance_file": (
        ("GET", f"/api/v1/instances/{VICTIM}/files/content?path=a", None),
        lambda asked, path: DaemonMessage(
            instance_file_content=wire.InstanceFileContent(request_id=asked, error=f"PATH_REFUSED: {path}")
        ),
    ),
    "save_files": (
        ("POST", f"/api/v1/instances/{VICTIM}/save", {"template": "t", "paths": ["**"]}),
        lambda asked, path: DaemonMessage(
            save_files_failed=wire.SaveFilesFailed(
                request_id=asked, error_code="PATH_REFUSED", error_message=path
            )
        ),
    ),
    "console_query": (
        ("GET", f"/api/v1/instances/{VICTIM}/console", None),
        lambda asked, path: DaemonMessage(
            console_query_failed=wire.ConsoleQueryFailed(
                request_id=asked, error_code="CONSOLE_GONE", error_message=path
            )
        ),
    ),
}


@pytest.mark.trap("T65")
@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_question_is_answered_by_the_node_that_was_asked_alone(site, kind):
    """Even by one that knows its number."""
    (method, path, body), answer = QUESTIONS[kind]
    asking = asyncio.create_task(site.fleet.controller.call(method, path, body))
    asked = await eventually(
        lambda: next((m for m in site.honest.asked if m.WhichOneof("payload") == kind), None)
    )
    id = getattr(asked, kind).request_id
    await site.rogue.tell(answer(id, "forged"))
    await site.taken_in()
    assert not asking.done()
    await site.honest.tell(answer(id, "true"))
    try:
        told = str(await asking)
    except CommandRefused as refusal:
        told = str(refusal)
    assert "true" in told
    assert "forged" not in told


@pytest.mark.trap("T65")
async def test_a_command_is_acknowledged_by_the_node_that_got_it_alone(site):
    line = {"command": "silence"}
    sending = asyncio.create_task(
        site.fleet.controller.call("POST", f"/api/v1/instances/{VICTIM}/command", line)
    )
    order = await eventually(lambda: site.honest.commands and site.honest.commands[0])
    ack = wire.SendCommandAck(request_id=order.request_id, instance_id=VICTIM, accepted=True)
    await site.rogue.tell(DaemonMessage(send_command_ack=ack))
    await site.taken_in()
    _, answer = site.fleet.term.instances.commands._waiting[order.request_id]
    assert not answer.done()
    assert site.refused("send_command_ack") == 1
    await site.honest.tell(DaemonMessage(send_command_ack=ack))
    await sending


@pytest.mark.trap("T65")
async def test_the_true_crash_is_stored_after_a_forged_one(site):
    forged = wire.CrashReport(
        instance_id=VICTIM,
        group="lobby",
        incarnation=site.fleet.record(VICTIM).incarnation,
        exit_code=99,
        log_tail=["FORGED TAIL"],
    )
    await site.rogue.spool(DaemonMessage(crash_report=forged))
    await site.taken_in()
    await site.honest.crash(VICTIM, code=3)
    await site.fleet.reaches(VICTIM, "CRASHED")
    [crash] = [stored.record for stored in site.fleet.state.crashes]
    assert (crash.node, crash.exit.code, crash.tail) == ("n1", 3, ("one", "two"))


@pytest.mark.trap("T65")
async def test_a_crash_of_its_own_instance_in_the_name_of_another_group_is_refused(site):
    before = site.documents()
    own = site.fleet.record("mine-1")
    report = wire.CrashReport(instance_id="mine-1", group="lobby", incarnation=own.incarnation, exit_code=1)
    await site.rogue.spool(DaemonMessage(crash_report=report))
    await site.taken_in()
    assert site.documents() == before
    assert site.refused("crash_report") == 1


@pytest.mark.trap("T65")
async def test_a_crash_of_a_start_that_was_superseded_is_stored_with_its_ticket(site):
    """An outage: the node tells it when the id runs elsewhere already."""
    run = site.rogue.runs["mine-1"]
    old = wire.RunningInstance.FromString(run.SerializeToString())
    await site.fleet.controller.call("POST", "/api/v1/instances/mine-1/restart", {})
    await eventually(lambda: site.rogue.runs.get("mine-1", old).incarnation > old.incarnation)
    await site.fleet.reaches("mine-1", "RUNNING")

    def late(ticket: str) -> DaemonMessage:
        return DaemonMessage(
            crash_report=wire.CrashReport(
                instance_id="mine-1", group="mine", incarnation=old.incarnation, exit_code=7, ticket=ticket
            )
        )

    await site.rogue.spool(late(""))
    await site.taken_in()
    assert len(site.fleet.state.crashes) == 0
    await site.rogue.spool(late(old.ticket))
    await site.taken_in()
    assert [stored.record.exit.code for stored in site.fleet.state.crashes] == [7]
    assert site.fleet.record("mine-1").state == "RUNNING"


@pytest.mark.trap("T65")
async def test_crashes_are_small_have_the_time_of_their_receipt_and_a_share_a_node(site):
    await site.honest.crash(VICTIM, code=3)
    await site.fleet.reaches(VICTIM, "CRASHED")
    first = site.fleet.record("mine-1").incarnation
    for number in range(first, first + 12):
        report = wire.CrashReport(
            instance_id="mine-1",
            group="mine",
            incarnation=number,
            exit=exit_of(),
            log_tail=["€" * 700] * 600,
            crash_class=LARGE,
            signature=LARGE,
            restarted_as=number + 1,
        )
        await site.rogue.spool(DaemonMessage(crash_report=report))
        await site.taken_in()
    now = site.fleet.controller.app.clock.now()
    told = [s.record for s in site.fleet.state.crashes if s.record.node == "rogue"]
    assert len(told) == 12
    assert all(len(msgspec.json.encode(record)) <= CRASH_BYTES for record in told)
    assert all(record.at <= now and record.received_at <= now for record in told)
    assert all(record.tail for record in told)
    assert site.fleet.record("mine-1").ended_at is None
    kept = InstanceRetentionSection(crashes=4)
    dropped = [
        step.id
        for step in forgotten(site.fleet.state, config=kept, now=now, limit=100)
        if getattr(step, "collection", "") == "crashes"
    ]
    assert len(dropped) == 9
    assert all(id.startswith("mine-1.") for id in dropped), "the crash of the other node stays"
    assert dropped == [record.id for record in sorted(told, key=lambda r: r.received_at)[:9]]


async def test_a_flood_of_crashes_is_stored_at_a_bounded_rate_and_the_newest_one_is_kept(site):
    node, record = site.rogue, site.fleet.record("mine-1")
    for restart in range(1, 301):
        report = wire.CrashReport(
            instance_id="mine-1", group="mine", incarnation=record.incarnation + restart, exit_code=1
        )
        await node.spool(DaemonMessage(crash_report=report))
    await eventually(lambda: not node._spool)
    kept = site.fleet.state.crashes.of_node("rogue")
    surplus = int(site.refused("crash_rate"))
    assert len(kept) + surplus == 300
    assert surplus > 50  # but for what a slow machine earns meanwhile
    assert kept[-1] == f"mine-1.{record.incarnation + 300}"
