"""A node with a valid certificate that speaks of what is not its own: refused, bounded, and nothing moves."""

from __future__ import annotations

from typing import Any

import pytest
from hostile_site import LARGE, NAMES, NUMBERS, PORTION, STATES, VICTIM, YEAR_9999, exit_of
from pretend_node import S

from corral.controller.state.collections import instance_decisions
from corral.errors import Code, CorralError
from corral.wire.frames import CONSOLE_BLOCKS
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import module_pb2 as modules
from corral.wire.v1 import node_pb2 as nodes
from corral.wire.v1 import plan_pb2 as plans
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage


def statuses() -> list[DaemonMessage]:
    return [
        DaemonMessage(
            instance_status=wire.InstanceStatusUpdate(
                instance_id=id,
                incarnation=number,
                state=state,
                exit=exit_of(),
                players_known=True,
                player_count=500,
                stage=stage,
                reason=LARGE if number == 1 else "forged",
                started_at_ms=YEAR_9999,
            )
        )
        for id in NAMES
        for number in NUMBERS
        for state in STATES
        for stage in (0, wire.START_PREPARATION_STAGE_TEMPLATE_APPLY)
        if number in (0, 1, 1024) or state == S.INSTANCE_STATE_RUNNING
    ]


def crashes() -> list[DaemonMessage]:
    return [
        DaemonMessage(
            crash_report=wire.CrashReport(
                instance_id=id,
                group=group,
                incarnation=number,
                exit_code=99,
                exit=exit_of(),
                log_tail=["FORGED"],
                restarted_as=number + 1 if number < 2**63 else 0,
                ticket=ticket,
            )
        )
        for id in NAMES
        for group in ("lobby", "world", "mine", LARGE)
        for number in NUMBERS
        for ticket in ("", "ct1.9.p.AAAA")
    ]


def start_answers() -> list[DaemonMessage]:
    return [
        DaemonMessage(
            start_instance_ack=wire.StartInstanceAck(
                instance_id=id,
                incarnation=number,
                accepted=accepted,
                state=S.INSTANCE_STATE_RUNNING,
                error_code="PORT_IN_USE",
                error_message=LARGE if number == 1 else "port 1 to 65535",
            )
        )
        for id in NAMES
        for number in NUMBERS
        for accepted in (True, False)
    ]


def stop_answers() -> list[DaemonMessage]:
    return [
        DaemonMessage(
            stop_instance_ack=wire.StopInstanceAck(instance_id=id, incarnation=number, error_code=code)
        )
        for id in NAMES
        for number in NUMBERS
        for code in ("NOT_FOUND", "STALE_INCARNATION")
    ]


def console_lines() -> list[DaemonMessage]:
    return [
        DaemonMessage(
            console_output=wire.ConsoleOutput(instance_id=id, incarnation=number, line="forged", offset=7)
        )
        for id in (*NAMES, "mine-1")
        for number in NUMBERS
        if id != "mine-1" or number > 10 * 1024
    ]


def console_blocks() -> list[DaemonMessage]:
    blocks = [
        wire.ConsoleBlock(instance_id=id, incarnation=number, offset=offset, data=b"forged")
        for id in (*NAMES, "mine-1")
        for number in NUMBERS
        for offset in (0, 2**40, 2**63)
        if id != "mine-1" or number > 10 * 1024
    ]
    return [DaemonMessage(console_batch=wire.ConsoleBatch(blocks=blocks))]


def answers(**fields: list[Any]) -> list[DaemonMessage]:
    """Answers to what another was asked, or nobody."""
    return [DaemonMessage(**{kind: one}) for kind, each in fields.items() for one in each]


HOSTILE = {
    "instance_status": statuses(),
    "crash_report": crashes(),
    "start_instance_ack": start_answers(),
    "stop_instance_ack": stop_answers(),
    "console_output": console_lines(),
    "console_batch": console_blocks(),
    "send_command_ack": answers(send_command_ack=[wire.SendCommandAck(request_id="cmd-x", accepted=True)]),
    "console_query_failed": answers(console_query_failed=[wire.ConsoleQueryFailed(request_id=LARGE)]),
    "save_files_failed": answers(
        save_files_failed=[wire.SaveFilesFailed(request_id="x", error_message=LARGE)]
    ),
    "instance_file_tree": answers(instance_file_tree=[wire.InstanceFileTree(request_id="x")]),
    "instance_files_answer": answers(
        instance_files_answer=[wire.InstanceFilesAnswer(request_id="x", error=LARGE, sha256=LARGE)]
    ),
    "node_command_result": answers(
        node_command_result=[nodes.NodeCommandResult(request_id="x", lines=[LARGE], error_code=LARGE)]
    ),
    "instance_file_content": answers(instance_file_content=[wire.InstanceFileContent(request_id=LARGE)]),
    "cache_status": answers(cache_status=[plans.CacheStatus(request_id="x"), plans.CacheStatus()]),
    "module_state_update": answers(
        module_state_update=[
            modules.ModuleStateUpdate(module_id=id, state="ACTIVE", last_error=LARGE, updated_at_ms=2**62)
            for id in NAMES
        ]
    ),
    "event_publish": answers(
        event_publish=[
            modules.EventPublish(module_id=id, event_type="x", payload_json=b"{}") for id in ("ghost", LARGE)
        ]
    ),
    "capability_result": answers(capability_result=[modules.CapabilityResult(call_id="x")]),
    "shutdown_node_ack": answers(shutdown_node_ack=[nodes.ShutdownNodeAck(running_instances=2**31 - 1)]),
    "pong": answers(pong=[nodes.Pong(sequence=2**62), nodes.Pong(sequence=-1)]),
    "ping": answers(ping=[nodes.Ping(sequence=2**62), nodes.Ping(sequence=-1)]),
    "node_status": answers(node_status=[nodes.NodeStatus(used_ports=[-1, 70_000] * 9, total_memory_mb=-1)]),
    "module_metrics": answers(module_metrics=[modules.ModuleMetrics()]),
}
ELSEWHERE = {
    "handshake": "test_hostile_handshakes.py",
    "handshake_portion": "test_handshake_portions.py",
    "batch": "test_controller_hardening.py: a batch in a batch, too many messages",
    "certificate_request": "test_controller_hardening.py",
    "daemon_log_record": "written into the node's own log alone",
    "error_report": "test_controller_hardening.py: a share of the events a node",
    "template_request": "what a node may ask for",
    "event_subscribe": "what a node may ask for",
    "event_unsubscribe": "its own subscriptions alone",
    "capability_call": "what a node may ask for",
    "run_ends": "test_reports.py: ends that it was asked for, and of its own runs alone",
}


def test_every_message_of_a_node_is_in_the_table():
    payload = DaemonMessage.DESCRIPTOR.oneofs_by_name["payload"]
    assert {field.name for field in payload.fields} == HOSTILE.keys() | ELSEWHERE.keys()


@pytest.mark.trap("T65")
@pytest.mark.parametrize("spooled", [True, False])
async def test_nothing_that_a_node_says_of_others_moves_anything(site, spooled, capsys):
    """Each message of the protocol × instances, groups, numbers, sizes and times that are not the node's."""
    before, moments = site.documents(), site.moments()
    for kind, messages in HOSTILE.items():
        for start in range(0, len(messages), PORTION):
            batch = [
                DaemonMessage.FromString(message.SerializeToString())
                for message in messages[start : start + PORTION]
            ]
            if spooled:
                for message in batch:
                    await site.rogue.spool(message)
            else:
                await site.rogue.tell(DaemonMessage(batch=DaemonBatch(messages=batch)))
            await site.taken_in()
        assert site.documents() == before, kind
        assert site.moments() == moments, kind
    for kind in ("instance_status", "crash_report", "start_instance_ack", "stop_instance_ack"):
        assert site.refused(kind) > 0
    journal = await site.fleet.controller.app.store.reads.entries(instance_decisions(VICTIM).name, limit=500)
    assert len(journal) == 1, "the decision to start it"
    written = capsys.readouterr().out.count("reports.refused")
    assert written <= 2, "a line a minute, not one a message"


@pytest.mark.trap("T65")
async def test_blocks_of_consoles_are_few_a_frame_and_each_console_is_confirmed_once(site):
    own = site.fleet.record("mine-1")
    mine = wire.ConsoleBlock(instance_id="mine-1", incarnation=own.incarnation, data=b"x")
    theirs = wire.ConsoleBlock(instance_id=VICTIM, incarnation=1024, data=b"x")
    consoles = site.fleet.term.http.consoles
    confirmed: list[wire.ConsolePosition] = []

    def receive(blocks: list[wire.ConsoleBlock]) -> None:
        consoles.receive("rogue", confirmed.extend, wire.ConsoleBatch(blocks=blocks))

    with pytest.raises(CorralError) as caught:
        receive([mine] + [theirs] * CONSOLE_BLOCKS)
    assert caught.value.code is Code.BAD_REQUEST
    assert not confirmed
    assert consoles.rings.find(("mine-1", own.incarnation)) is None
    receive([mine] * 5 + [theirs] * (CONSOLE_BLOCKS - 5))
    assert [(one.instance_id, one.offset) for one in confirmed] == [("mine-1", 1), (VICTIM, 1)]
    assert site.refused("console_batch") == CONSOLE_BLOCKS - 5


@pytest.mark.trap("T65")
async def test_offsets_that_no_console_has_are_not_believed_and_the_node_comes_back(site):
    own = site.fleet.record("mine-1")
    fields = {"instance_id": "mine-1", "incarnation": own.incarnation}
    gap = wire.ConsoleGap(from_offset=0, to_offset=2**64 - 1)
    blocks = [
        wire.ConsoleBlock(offset=2**64 - 1, data=b"xx", **fields),
        wire.ConsoleBlock(offset=2**63, data=b"xx", **fields),
        wire.ConsoleBlock(gaps=[gap], data=b"xx", **fields),
    ]
    await site.rogue.tell(DaemonMessage(console_batch=wire.ConsoleBatch(blocks=blocks)))
    await site.rogue.tell(
        DaemonMessage(console_output=wire.ConsoleOutput(offset=2**64 - 1, line="x", **fields))
    )
    await site.taken_in()
    assert site.refused("console_batch") == len(blocks)
    assert site.fleet.term.http.consoles.rings.find(("mine-1", own.incarnation)) is None
    await site.rogue.drop()
    await site.rogue.connect()
    await site.taken_in()


@pytest.mark.trap("T65")
@pytest.mark.parametrize("uptime", [2**63 - 1, 80_000_000_000_000])
async def test_a_crash_after_ages_of_life_leaves_the_runs_of_its_instance_readable(site, uptime):
    own = site.fleet.record("mine-1")
    report = wire.CrashReport(
        instance_id="mine-1",
        group="mine",
        incarnation=own.incarnation,
        exit=exit_of(),
        uptime_ms=uptime,
        ticket=site.rogue.runs["mine-1"].ticket,
    )
    await site.rogue.spool(DaemonMessage(crash_report=report))
    await site.taken_in()
    await site.rogue.drop()  # which would not answer what is asked of it
    listed = await site.fleet.controller.call("GET", "/api/v1/instances/mine-1/runs")
    assert [(run["incarnation"], run["state"]) for run in listed["items"]] == [(own.incarnation, "CRASHED")]


@pytest.mark.trap("T65")
async def test_of_the_reasons_for_gaps_a_few_words_are_kept(site):
    own = site.fleet.record("mine-1")
    for offset in range(0, 100, 20):
        gap = wire.ConsoleGap(from_offset=offset, to_offset=offset + 10, reason="y" * 1_000_000)
        block = wire.ConsoleBlock(
            instance_id="mine-1", incarnation=own.incarnation, offset=offset + 10, data=b"x" * 10, gaps=[gap]
        )
        await site.rogue.tell(DaemonMessage(console_batch=wire.ConsoleBatch(blocks=[block])))
    await site.taken_in()
    ring = site.fleet.term.http.consoles.rings.find(("mine-1", own.incarnation))
    kept = ring.span(ring.begin, max_bytes=1000).gaps
    assert [len(gap.reason) for gap in kept] == [500] * len(kept)
    assert len(kept) >= 4
