"""A node with a valid certificate that speaks of what is not its own: refused, bounded, and nothing moves."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from pretend_node import S

from corral.cli.failure import Refused
from corral.controller.collections import INSTANCES, NODE_LEDGERS, SEQUENCES, instance_decisions
from corral.controller.instances.forgetting import forgotten
from corral.controller.instances.sequence import RESTORE_LEAP
from corral.controller.instances.wire_values import CRASH_BYTES
from corral.domain.instance_records import SequenceRecord
from corral.errors import Code, CorralError
from corral.system.config_schema import InstanceRetentionSection
from corral.testing.scripted_peers import ScriptedDaemon
from corral.testing.waiting import eventually
from corral.wire.handshake_portions import MOST_RUNNING
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import module_pb2 as modules
from corral.wire.v1 import node_pb2 as nodes
from corral.wire.v1 import plan_pb2 as plans
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage

VICTIM = "lobby-1"
STATES = [value for value in S.values() if value]
NUMBERS = [0, 1, 1024, 1025, 2048, 2**40, 2**53, 2**63 - 1, 2**64 - 1]
NAMES = [VICTIM, "world-1", "ghost-1", "../../x", "a\0b", "x" * 20_000, ""]
LARGE = "y" * 20_000
PORTION = 50
YEAR_9999 = 253_402_300_799_000


@dataclasses.dataclass
class Site:
    """A node with two instances of its own, and a rogue with one."""

    fleet: Any
    honest: Any
    rogue: Any

    def documents(self) -> dict[tuple[str, str], Any]:
        """Everything in the store but how far the rogue's spool was taken in."""
        found = {}
        for mirror in self.fleet.state._mirrors.values():
            for id, stored in mirror.items():
                if mirror.collection.name != "spools":
                    found[mirror.collection.name, id] = stored.record
        return found

    def moments(self) -> tuple[Any, ...]:
        """What is known beside the store: consoles, orders that wait for an answer, figures of runs."""
        rings = self.fleet.term.http.consoles.rings
        return (
            {run: ring.end for run, ring in rings._rings.items()},
            {id: sending.answered for id, sending in self.fleet.term.instances.dispatcher._sendings.items()},
            self.fleet.term.workload.vitals.find(VICTIM),
        )

    async def taken_in(self) -> None:
        """Everything that the rogue has sent is read, and what is stored of it is."""
        await self.rogue.spool(DaemonMessage(daemon_log_record=nodes.DaemonLogRecord(level="INFO")))
        await eventually(lambda: not self.rogue._spool)

    def refused(self, kind: str) -> float:
        counter = self.fleet.term._fleet.refused._counter
        return counter.labels(node="rogue", kind=kind)._value.get()


@pytest.fixture
async def site(fleet) -> Site:
    await fleet.begin()
    honest = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.group("world", static=True)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    await fleet.reaches("world-1", "RUNNING")
    await fleet.controller.call("POST", "/api/v1/instances/world-1/stop", {})
    await fleet.reaches("world-1", "STOPPED")
    rogue = await fleet.node("rogue")
    await fleet.group("mine", nodes=["rogue"], min=1)
    await fleet.running(1, "mine")
    await eventually(lambda: not honest._spool and not rogue._spool)
    return Site(fleet, honest, rogue)


def exit_of(code: int = 99) -> wire.ExitStatus:
    return wire.ExitStatus(known=True, code=code, outcome="crashed", summary="forged", ended_at_ms=YEAR_9999)


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
    "node_status": answers(node_status=[nodes.NodeStatus(used_ports=[-1, 70_000] * 9, total_memory_mb=-1)]),
    "module_metrics": answers(module_metrics=[modules.ModuleMetrics()]),
}
ELSEWHERE = {
    "handshake": "the tests below",
    "handshake_portion": "test_handshake_portions.py",
    "batch": "test_controller_hardening.py: a batch in a batch, too many messages",
    "certificate_request": "test_controller_hardening.py",
    "daemon_log_record": "written into the node's own log alone",
    "error_report": "test_controller_hardening.py: a share of the events a node",
    "template_request": "what a node may ask for",
    "event_subscribe": "what a node may ask for",
    "event_unsubscribe": "its own subscriptions alone",
    "capability_call": "what a node may ask for",
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
    journal = await site.fleet.controller.app._store.entries(instance_decisions(VICTIM).name, limit=500)
    assert len(journal) == 1, "the decision to start it"
    written = capsys.readouterr().out.count("reports.refused")
    assert written <= 2, "a line a minute, not one a message"


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
    now = site.fleet.controller.app._clock.now()
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


def forged(id: str, group: str, number: int, **fields: Any) -> wire.RunningInstance:
    settings = {"state": S.INSTANCE_STATE_RUNNING, "memory_mb": 2**40, "started_at_ms": YEAR_9999, **fields}
    return wire.RunningInstance(instance_id=id, group=group, incarnation=number, **settings)


@pytest.mark.trap("T65")
async def test_a_handshake_adopts_nothing_without_a_proof_and_moves_no_counter(site):
    """Groups it never got, a world that is stopped, ids that are none, numbers beyond all."""
    await site.rogue.drop()
    await eventually(lambda: site.fleet.controller.node_state("rogue") == "DISCONNECTED")
    before = site.documents()
    theirs = wire.RunningInstance.FromString(site.honest.runs[VICTIM].SerializeToString())
    listed = [
        *site.rogue.runs.values(),
        theirs,
        *(forged(id, "lobby", number) for id in NAMES for number in NUMBERS),
        *(forged(f"lobby-{n}", "lobby", 2**40 + n * 1024) for n in range(40, 43)),
        forged("lobby-50", "lobby", 4096, ticket=theirs.ticket, plan_hash=theirs.plan_hash),
        forged(VICTIM, "lobby", theirs.incarnation, ticket=theirs.ticket, plan_hash=theirs.plan_hash),
    ]
    await site.rogue.connect(running_instances=listed)
    await site.taken_in()
    await eventually(lambda: site.fleet.term.sessions.live("rogue").stray_count)
    after = site.documents()
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed <= {("nodes", "rogue")}, changed
    shown = await site.fleet.controller.call("GET", "/api/v1/nodes/rogue")
    assert shown["stray_count"] >= 5
    assert len(shown["strays"]) <= 100
    assert {"lobby-40", "ghost-1"} <= {stray["instance"] for stray in shown["strays"]}
    assert {stop.instance_id for stop in site.rogue.stops} <= {VICTIM, "world-1"}, (
        "what nobody knows is left alone; only copies that lost are told to end"
    )
    await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await site.fleet.running(2)


@pytest.mark.trap("T65")
async def test_a_ticket_is_good_for_its_node_its_start_and_once(site):
    """A replay after the record was forgotten, the ticket of another node, of another start."""
    run = site.rogue.runs["mine-1"]
    await site.fleet.controller.call("DELETE", "/api/v1/groups/mine?cascade=true")
    await eventually(
        lambda: site.fleet.record("mine-1") is None or site.fleet.record("mine-1").state == "STOPPED"
    )
    stored = site.fleet.state.instances.find("mine-1")
    if stored is not None:
        await site.fleet.term.ledger.commit(INSTANCES.delete("mine-1", expect=stored.revision))
    await site.rogue.drop()
    ghost = wire.RunningInstance.FromString(run.SerializeToString())
    ghost.state = S.INSTANCE_STATE_RUNNING
    later = wire.RunningInstance.FromString(ghost.SerializeToString())
    later.instance_id, later.incarnation = "mine-2", later.incarnation + 1024
    await site.rogue.connect(running_instances=[ghost, later])
    await eventually(lambda: (live := site.fleet.term.sessions.live("rogue")) and live.stray_count == 2)
    assert site.fleet.record("mine-1") is None
    assert site.fleet.record("mine-2") is None
    assert "used before" in site.fleet.term.sessions.live("rogue").strays[0].reason


@pytest.mark.trap("T65")
async def test_lists_in_a_handshake_are_bounded(site):
    many = [forged(f"g-{n}", "g", n * 1024) for n in range(MOST_RUNNING + 1)]
    for field, value in {
        "running_instances": many,
        "modules": [modules.ModuleSetEntry(module_id=f"m{n}") for n in range(1001)],
    }.items():
        async with ScriptedDaemon(site.rogue.identity, site.rogue.address) as daemon:
            with pytest.raises(CorralError) as caught:
                await daemon.greet(**{field: value})
        assert caught.value.code is Code.INVALID_FIELD
        assert field in str(caught.value)


@pytest.mark.trap("T65")
async def test_numbers_beyond_all_end_no_session_and_a_poisoned_counter_is_mended(site):
    """The counter as an older version left it, after a node had claimed the highest number there is."""
    highest = max(stored.record.incarnation for stored in site.fleet.state.instances) // 1024
    poisoned = SequenceRecord(reserved=2**54)
    await site.fleet.term.ledger.commit(SEQUENCES.put("starts", poisoned, expect=None))
    await site.fleet.controller.app.stop()
    await site.fleet.begin()
    for node in (site.honest, site.rogue):
        await node.drop()
        node.address = site.fleet.controller.grpc_address
        await node.connect()
    await site.fleet.running(1)
    await site.fleet.controller.call("POST", f"/api/v1/instances/{VICTIM}/restart", {})
    ended = await site.fleet.reaches(VICTIM, "STOPPED")
    assert "repair-sequence" in ended.reason
    await eventually(lambda: "repair-sequence" in site.fleet.group_record().reason)
    assert site.fleet.controller.node_state("n1") == "ONLINE"
    with pytest.raises(Refused, match="counter is exhausted"):
        await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "mine"})
    answer = await site.fleet.controller.call("POST", "/api/v1/cluster/repair-sequence")
    assert (answer["before"] >= 2**54, answer["highest_used"], answer["ignored"]) == (True, highest, 0)
    await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "mine"})
    await site.fleet.running(1)
    audit = await site.fleet.controller.call("GET", "/api/v1/audit?limit=100")
    entries = [entry for entry in audit["items"] if entry["action"] == "cluster.repair_sequence"]
    assert [entry["after"]["highest_used"] for entry in entries] == [highest]


async def test_a_record_with_a_number_that_no_cluster_reaches_does_not_count_for_the_repair(site):
    record = msgspec.structs.replace(
        site.fleet.record("world-1"), id="ghost-1", incarnation=2**62, adopted=True, home=""
    )
    await site.fleet.term.ledger.commit(INSTANCES.put("ghost-1", record, expect=None))
    numbers = site.fleet.term.instances.numbers
    coming = numbers.take()
    answer = await site.fleet.controller.call("POST", "/api/v1/cluster/repair-sequence")
    assert (answer["highest_used"], answer["ignored"]) == (coming // 1024, 1)
    assert numbers.take() == coming + 1024, "what was given out and not stored yet is not given out again"


async def test_after_the_epoch_was_raised_numbers_are_left_out(site):
    """A restored store: nodes without tickets may run what comes next, and cannot prove it."""
    before = site.fleet.state.sequences.require("starts").record.reserved
    epoch = (await site.fleet.controller.call("POST", "/api/v1/cluster/raise-epoch"))["epoch"]
    await eventually(lambda: getattr(site.fleet.term, "epoch", 0) == epoch)
    await eventually(lambda: site.fleet.state.sequences.require("starts").record.epoch == epoch)
    assert site.fleet.state.sequences.require("starts").record.reserved >= before + RESTORE_LEAP


@pytest.mark.trap("T65")
async def test_a_restored_store_adopts_what_it_ordered_and_forgot(site):
    """With the ticket of each start; also when something was placed on the node before it was heard."""
    node = site.rogue
    run = node.runs["mine-1"]
    stored, ledger = (
        site.fleet.state.instances.require("mine-1"),
        site.fleet.state.node_ledgers.require("rogue"),
    )
    await node.drop()
    older = msgspec.structs.replace(ledger.record, runs={}, serial=0)
    sequence = site.fleet.state.sequences.revision("starts")
    await site.fleet.term.ledger.commit(
        INSTANCES.delete("mine-1", expect=stored.revision),
        NODE_LEDGERS.put("rogue", older, expect=ledger.revision),
        SEQUENCES.put("starts", SequenceRecord(reserved=2), expect=sequence),
    )
    await site.fleet.controller.app.stop()
    await site.fleet.begin()
    later = site.fleet.term.instances.workspace(cause="test")
    group = msgspec.structs.replace(later.require_group("mine"), target=0)
    later.put_ledger(msgspec.structs.replace(older, serial=5))
    later.put_group(group)
    await site.fleet.term.ledger.commit(*later.steps())
    node.address = site.fleet.controller.grpc_address
    await node.connect(running_instances=[run])
    record = await site.fleet.reaches("mine-1", "RUNNING")
    assert (record.adopted, record.incarnation, record.plan_hash) == (True, run.incarnation, run.plan_hash)
    assert site.fleet.term.instances.numbers.take() > run.incarnation, "its number is not given out again"
    assert node.stops == []


@pytest.mark.trap("T65")
async def test_a_stray_that_comes_again_with_each_handshake_is_decided_once(site):
    """A run that was given up, which its node never ends."""
    run = wire.RunningInstance.FromString(site.rogue.runs["mine-1"].SerializeToString())
    await site.fleet.controller.call("POST", "/api/v1/instances/mine-1/kill", {})
    await eventually(lambda: site.fleet.record("mine-1").state == "STOPPED")
    site.rogue.deaf = True
    for _ in range(3):
        await site.rogue.drop()
        stops = len(site.rogue.stops)
        await site.rogue.connect(running_instances=[run])
        await eventually(lambda stops=stops: len(site.rogue.stops) > stops)
    journal = instance_decisions("mine-1")
    entries = await site.fleet.controller.app._store.entries(journal.name, limit=100)
    reasons = [journal.decode(entry.body).reason for entry in entries]
    assert len([reason for reason in reasons if reason.startswith("the copy")]) == 1, reasons
