"""One message that cannot be dealt with: told, passed, confirmed where it must be; the link and the rest go on."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from corral.controller.sessions.commit_faults import QUICK_CONFLICTS, conflict_pause
from corral.controller.sessions.frame_receivers import FrameReceivers, ModuleTraffic, NodeReports, Reported
from corral.controller.sessions.node_frames import NodeFrames
from corral.controller.sessions.spool_intake import Intake
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import SPOOLS
from corral.controller.state.ledger import Ledger, Step
from corral.domain.events import START
from corral.domain.ids import NodeId, SessionId
from corral.domain.records import SpoolPosition
from corral.errors import CorralError
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import Commit, Refusal, Store, Transaction
from corral.store.store_errors import Conflict
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.frame_table import NodeFrame, node_frame
from corral.wire.v1.instance_pb2 import CrashReport, InstanceStatusUpdate
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.module_pb2 import EventPublish, ModuleStateUpdate
from corral.wire.v1.node_pb2 import DaemonLogRecord, Handshake, Pong

NODE = NodeId("n1")
POISON = "poison"
FAST = "fast"


class BadReports:
    """Understands every report but those of one instance; on request not even handshakes."""

    def __init__(self, *, handshakes: bool = True) -> None:
        self._handshakes = handshakes
        self.done: list[str] = []

    def _handshake(self) -> Reported:
        if not self._handshakes:
            raise ZeroDivisionError("handshake")
        return Reported()

    async def opening(self, *_: Any) -> AsyncIterator[Reported]:
        yield self._handshake()

    async def unaccounted(self, *_: Any) -> list[Any]:
        return []

    async def complete_inventory(self, *_: Any) -> AsyncIterator[Reported]:
        yield self._handshake()

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> Reported:
        if any(frame.message.crash_report.instance_id == POISON for frame in frames):
            raise ZeroDivisionError(POISON)
        return Reported()

    def stored(self, node_id: NodeId, reported: Reported) -> None: ...

    def opened(self, node_id: NodeId) -> None:
        self.done.append("opened")

    def inventory_complete(self, node_id: NodeId, session_id: SessionId) -> None:
        self.done.append("complete")


class BadModules:
    """The same, for modules. Events of FAST come too fast."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.folded: set[int] = set()

    def too_fast(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[NodeFrame]:
        self.counted += [frame.sequence for frame in frames]
        return [frame for frame in frames if frame.message.event_publish.module_id == FAST]

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[Step]:
        if any(frame.message.module_state_update.module_id == POISON for frame in frames):
            raise ZeroDivisionError(POISON)
        self.folded |= {frame.sequence for frame in frames}
        return []

    def fold_inventory(self, node_id: NodeId, hello: Handshake) -> list[Step]:
        return []


class IntakeBench:
    """An intake over a real store; what it confirms is in `confirmed`."""

    def __init__(self, store: Store, ledger: Ledger, reports: BadReports, *, head: int = 0) -> None:
        self.store = store
        self.state = ledger.state
        self.confirmed: list[int] = []
        self.reports = reports
        self.modules = BadModules()
        self.intake = Intake(
            ledger=ledger,
            clock=SystemClock(),
            node_id=NODE,
            session_id=SessionId("s1"),
            hello=Handshake(spool_id="spool", spool_head=head),
            reports=cast("NodeReports", reports),
            modules=cast("ModuleTraffic", self.modules),
            confirm=self.confirmed.append,
            ask=lambda _: False,
        )

    async def told(self) -> list[dict[str, Any]]:
        return [event.data for event in await self.store.reads.events(START, limit=1000)]


@contextlib.asynccontextmanager
async def intake_bench(directory: Any, **options: Any) -> AsyncIterator[IntakeBench]:
    reports = options.pop("reports", None) or BadReports()
    store = await open_store("sqlite", data=directory)
    term = await Leadership(store.leases, clock=SystemClock(), holder="bench", uncontested=True).acquire()
    state = ClusterState()
    state.load(await store.reads.snapshot(state.collections))
    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        on_commit=state.apply,
        on_fenced=lambda fenced: None,
        on_fatal=lambda error: None,
    )
    async with writer:
        bench = IntakeBench(
            store, Ledger(options.pop("committer", lambda w: w)(writer), state), reports, **options
        )
        running = asyncio.create_task(bench.intake.run(), name="bench/intake")
        try:
            yield bench
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    await store.close()


def log_line(sequence: int) -> DaemonMessage:
    return DaemonMessage(spool_sequence=sequence, daemon_log_record=DaemonLogRecord(message=str(sequence)))


def poisoned(sequence: int, kind: str) -> DaemonMessage:
    if kind == "module":
        return DaemonMessage(spool_sequence=sequence, module_state_update=ModuleStateUpdate(module_id=POISON))
    return DaemonMessage(spool_sequence=sequence, crash_report=CrashReport(instance_id=POISON, group="g"))


@pytest.mark.parametrize("kind", ["crash", "module"])
async def test_a_record_that_cannot_be_taken_in_is_set_aside_told_and_confirmed(scratch, kind):
    async with intake_bench(scratch) as bench:
        bad = {3, 40, 41}
        with capture_logs() as logs:
            for sequence in range(1, 61):
                message = poisoned(sequence, kind) if sequence in bad else log_line(sequence)
                bench.intake.offer(node_frame(message))
            await eventually(lambda: bench.confirmed[-1:] == [60], state=lambda: bench.confirmed)
        journal = await bench.store.reads.entries(f"log:node:{NODE}", limit=100)
        assert len(journal) == 60 - len(bad)
        assert bench.state.spools.require(NODE).record == SpoolPosition(spool_id="spool", sequence=60)
        told = [event["message"] for event in await bench.told()]
        assert [f"record {sequence} " in line for sequence, line in zip(sorted(bad), told, strict=True)] == [
            True
        ] * 3
        aside = [log["sequence"] for log in logs if log["event"] == "intake_record.failed"]
        assert aside == sorted(bad)


async def test_a_handshake_that_cannot_be_taken_in_is_told_and_the_session_goes_on(scratch):
    reports = BadReports(handshakes=False)
    async with intake_bench(scratch, reports=reports) as bench:
        bench.intake.offer(node_frame(log_line(1)))
        await eventually(lambda: bench.confirmed[-1:] == [1], state=lambda: bench.confirmed)
        assert reports.done == ["opened", "complete"]
        assert [event["context"] for event in await bench.told()] == ["handshake", "handshake"]


class Contested:
    """A writer behind which somebody is always faster, so many times."""

    def __init__(self, writer: Writer, times: int) -> None:
        self._writer = writer
        self.left = times
        self.calls = 0

    async def commit(self, transaction: Transaction) -> Commit:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise Conflict(Refusal(collection=SPOOLS.name, id=NODE, expect=1, found=2))
        return await self._writer.commit(transaction)


async def test_a_conflict_that_lasts_is_tried_ever_more_slowly_and_then_stored(scratch):
    contested: list[Contested] = []

    def between(writer: Writer) -> Contested:
        contested.append(Contested(writer, QUICK_CONFLICTS + 3))
        return contested[0]

    with capture_logs() as logs:
        async with intake_bench(scratch, committer=between) as bench:
            bench.intake.offer(node_frame(log_line(1)))
            await eventually(lambda: bench.confirmed == [1], state=lambda: bench.confirmed)
    assert [log["event"] for log in logs].count("intake_conflict.retried") == 1
    pauses = [conflict_pause(conflicts) for conflicts in range(1, 40)]
    assert pauses[:QUICK_CONFLICTS] == [0.0] * QUICK_CONFLICTS
    assert pauses == sorted(pauses)
    assert 1.0 <= pauses[-1] <= 5.0


@pytest.mark.trap("T85")
async def test_what_modules_tell_is_counted_once_however_often_it_is_tried_to_be_stored(scratch):
    """And what comes too fast is passed over and confirmed, also as the last of a batch."""

    def event(sequence: int) -> DaemonMessage:
        told = EventPublish(module_id=FAST if sequence in (5, 20) else "guard")
        return DaemonMessage(spool_sequence=sequence, event_publish=told)

    async with intake_bench(scratch, committer=lambda writer: Contested(writer, 3)) as bench:
        for sequence in range(1, 21):
            message = poisoned(sequence, "module") if sequence == 7 else event(sequence)
            bench.intake.offer(node_frame(message))
        await eventually(lambda: bench.confirmed[-1:] == [20], state=lambda: bench.confirmed)
        assert bench.modules.counted == list(range(1, 21))
        assert bench.modules.folded == set(range(1, 21)) - {5, 7, 20}


async def test_a_real_node_s_record_that_the_store_refuses_costs_it_neither_its_session_nor_the_rest(
    cluster, scratch
):
    controller = await cluster.controller()
    identity = await enrolled_identity(
        scratch / "raw", token=await controller.join_token("raw"), node_id="raw"
    )
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        crash = CrashReport(instance_id="nul\0", group="lobby", incarnation=1)
        update = InstanceStatusUpdate(instance_id="nul\0", state=4)
        await daemon.send(DaemonMessage(spool_sequence=1, crash_report=crash))
        await daemon.send(DaemonMessage(spool_sequence=2, instance_status=update))
        await daemon.send(log_line(3))
        while (await daemon.read_until("spool_ack")).spool_ack.sequence < 3:
            pass
        await daemon.send(DaemonMessage(pong=Pong()))
        assert controller.app.role.term.sessions.find(NodeId("raw")) is not None


class BrokenListener:
    """Consoles, files, modules and reports, none of which can deal with anything."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object) -> None:
            raise ZeroDivisionError(name)

        return refuse


class HeldStream:
    """The session that frames come from."""

    def __init__(self) -> None:
        self.facts = types.SimpleNamespace(node_id=NODE)
        self.complaints: list[tuple[str, str]] = []

    def report(self, error: CorralError, *, context: str) -> None:
        self.complaints.append((error.code.name, context))


async def test_a_frame_that_a_listener_cannot_deal_with_is_told_once_and_passed(scratch):
    """Whatever kind it is; and what must not be lost of it is taken in all the same."""
    broken, stream = cast("Any", BrokenListener()), HeldStream()
    async with intake_bench(scratch) as bench:
        frames = NodeFrames(
            cast("Any", stream),
            FrameReceivers(reports=broken, consoles=broken, files=broken, modules=broken),
            intake=bench.intake,
            heartbeat=broken,
            renewal=broken,
            clock=SystemClock(),
        )
        kinds = [field.name for field in DaemonMessage.DESCRIPTOR.oneofs_by_name["payload"].fields]
        told = [kind for kind in kinds if kind not in ("handshake", "batch", "handshake_portion")]
        with capture_logs() as logs:
            for _ in range(20):
                for kind in told:
                    message = DaemonMessage()
                    getattr(message, kind).SetInParent()
                    frames.receive(node_frame(message))
            frames.receive(node_frame(log_line(1)))
            await eventually(lambda: bench.confirmed == [1], state=lambda: bench.confirmed)
        failed = [log["kind"] for log in logs if log["event"] == "session_frame.failed"]
        assert {"console_batch", "cache_status", "event_subscribe", "capability_call"} <= set(failed)
        assert len(failed) < 4 * len(told), "each kind about once a second"
        assert ("INTERNAL", "frame:console_batch") in stream.complaints
        with pytest.raises(CorralError):
            frames.receive(node_frame(DaemonMessage(batch=DaemonBatch())))
