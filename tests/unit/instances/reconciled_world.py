"""A world with the real reconciler: operators, nodes and time act on it, one after the other.

What nodes report is folded as sessions fold it, what operators ask for is described as the API describes it. There is
no store and no loop: a commit is applied at once, and the reconciler has its turns when the test says so.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from world import NOW, TICKETS, World, spec

from corral.controller.instances import group_changes
from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.order_answers import fold_start_answer
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_crash, fold_report
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.lost_nodes import Observation
from corral.controller.state.collections import EVERY_DECISION, NODES
from corral.controller.workload.vitals import Vitals
from corral.domain.events import Cursor, Draft, Event, EventType
from corral.domain.groups.instance_records import DecisionRecord, InstanceRecord, Readiness, live
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission, NodeState
from corral.domain.records import BootMoment
from corral.errors import Rejected
from corral.store.port import Entry
from corral.system.clock import boot_id
from corral.system.controller_config import ReconcileSection
from corral.testing.scripted_peers import ticketed
from corral.wire.v1 import instance_pb2 as wire

T = TypeVar("T")
BOOT = boot_id()
FLOOR = 1_000_000
"""Seconds between two looks at every group: never here. Events alone have to explain what happens."""


class ModelClock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1.0
        self.offset = dt.timedelta()
        """How far the wall clock was set."""

    def now(self) -> dt.datetime:
        return NOW + dt.timedelta(seconds=self.seconds) + self.offset

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.seconds


class ReconciledWorld(World):
    """A `World` of two nodes that are connected, and a reconciler that follows its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ModelClock()
        self.now = self.clock.now()
        self.requests: set[str] = set()
        self.connected: set[str] = {"n1", "n2"}
        self.add_node(NodeId("n2"))
        self.counted: dict[tuple[str, int], int] = {}
        """The players of runs, as nodes have counted them last."""
        self.slow_to_stop: set[str] = set()
        """Instances that nodes have not stopped yet, whatever is ordered."""
        self._untold = False
        """What nodes know of players is on its way to the leader."""
        self.begin_term()
        for node in sorted(self.connected):
            self.reconciler.inventory_complete(NodeId(node))
        self.settle()

    boot = BOOT
    """The boot of the machine whose controller leads."""

    def change_leader(self, *, told: bool) -> None:
        """Another controller leads. Nodes connect to it with what they run; `told`: and report their players."""
        self.begin_term()
        for node in sorted(self.connected):
            if self.state.nodes.find(node) is not None:
                self._connect(node, with_runs=True)
        self._untold = True
        if told:
            self.tell_players()

    def begin_term(self) -> None:
        """A leader begins: what the last one had only in memory is lost."""
        self.vitals = Vitals(self.state, monotonic=self.clock.monotonic)
        self.signals_of_term = signals = PlanSignals(
            self.state,
            clock=self.clock,
            drift=DriftView(self.state),
            players=self.vitals.players_of,
            metric=self.vitals.metric_of,
        )
        instances = SimpleNamespace(
            signals=signals,
            placing=asyncio.Lock(),
            workspace=self.workspace,
            numbers=SimpleNamespace(refill=_nothing),
        )
        self.reconciler = Reconciler(
            ledger=SimpleNamespace(state=self.state, commit=self._commit),
            instances=instances,
            sessions=SimpleNamespace(find=lambda node: node if node in self.connected else None),
            observation=Observation([]),
            config=ReconcileSection(floor_seconds=FLOOR, offline_after_seconds=5.0),
            clock=self.clock,
        )
        self.vitals.players_changed = signals.players_changed
        signals.begin()
        self.reconciler.begin()
        self.vitals.emptied = self.reconciler.instance_emptied
        signals.observing = False
        self.followers[:] = [self.vitals.follow, signals.follow, self.reconciler.follow]

    def boot_moment(self) -> BootMoment:
        return BootMoment(boot=self.boot, seconds=self.clock.boottime())

    def steady(self) -> dt.datetime:
        return NOW + dt.timedelta(seconds=self.clock.seconds)

    async def _commit(self, *steps: Any) -> None:
        self.apply(steps)

    # time and the reconciler

    def settle(self) -> None:
        """Turns of the reconciler until nothing is left to do at this moment."""
        for _ in range(200):
            finished(self.reconciler._turn())
            if not self.reconciler._dirty:
                if self.reconciler._pause() > 0.25:
                    return
                self.wait(0.2)  # groups that are short of something are looked at so often at most
        raise AssertionError("the reconciler does not come to rest")

    def look_at_everything(self) -> None:
        """The periodic look at every group is due."""
        self.reconciler._floor_at = 0.0

    def wait(self, seconds: float) -> None:
        if self._untold and seconds >= 1:
            self.tell_players()
        self.clock.seconds += seconds
        self.now = self.clock.now()

    def live_on(self, seconds: float) -> None:
        """Let time pass: nodes do what is ordered, and the reconciler has its turns whenever something is due."""
        end = self.clock.seconds + seconds
        while True:
            known = -1
            while known != len(self.events):
                known = len(self.events)
                self.settle()
                for node in sorted(self.connected):
                    self.obey(node)
            if (left := end - self.clock.seconds) <= 0:
                return
            self.wait(min(left, max(0.2, self.reconciler._pause())))

    def set_clock(self, seconds: float) -> None:
        """The wall clock is set."""
        self.clock.offset += dt.timedelta(seconds=seconds)
        self.now = self.clock.now()

    # operators

    def ask(self, change: Callable[..., Any], *args: Any, **named: Any) -> None:
        """A request of an operator; a refusal is recorded where it says so, and else changes nothing."""
        request = f"req-{len(self.requests) + 1}"
        self.requests.add(request)
        ws = self.workspace("token:ada", request)
        try:
            change(ws, *args, **named)
        except Rejected as refused:
            self.apply(getattr(refused, "steps", ()))
        else:
            self.apply(ws.steps())

    def create(self, name: str, **fields: Any) -> None:
        self.ask(group_changes.create_group, spec(name, **fields))

    def configure_node(self, node: str, admission: Admission) -> None:
        stored = self.state.nodes.find(node)
        if stored is not None and stored.record.admission is not admission:
            record = msgspec.structs.replace(stored.record, admission=admission)
            opened = admission is Admission.OPEN
            type = EventType.NODE_UNCORDONED if opened else EventType.NODE_CORDONED
            self._put_node(node, record, Draft(type=type, subject=node, data={}))

    # nodes

    def _put_node(self, node: str, record: Any, event: Draft) -> None:
        self.apply([NODES.put(node, record, expect=self.state.nodes.revision(node)), event])

    def _state_of(self, node: str, state: NodeState, type: EventType) -> None:
        stored = self.state.nodes.find(node)
        if stored is not None:
            away = None if state is NodeState.ONLINE else stored.record.lost_at or self.now
            record = msgspec.structs.replace(stored.record, state=state, state_since=self.now, lost_at=away)
            self._put_node(node, record, Draft(type=type, subject=node, data={}))

    def drop(self, node: str) -> None:
        """Its stream ends."""
        if node in self.connected:
            self.connected.discard(node)
            self._state_of(node, NodeState.DISCONNECTED, EventType.NODE_DISCONNECTED)

    def come_back(self, node: str, *, with_runs: bool, adopted: str = "") -> None:
        """It connects with what it ran, or with nothing; `adopted`: and with a run that the store has forgotten."""
        if node in self.connected or self.state.nodes.find(node) is None:
            return
        self.connected.add(node)
        self._untold = True
        self._connect(node, with_runs=with_runs, adopted=adopted)

    def _connect(self, node: str, *, with_runs: bool, adopted: str = "") -> None:
        here = [each.record for each in self.state.instances.of_node(node) if live(each.record.state)]
        listed = [_listed(each) for each in here if with_runs and _has_run(each)]
        if adopted and self.state.instances.find(adopted) is None:
            run = wire.RunningInstance(
                instance_id=adopted,
                group=adopted.rpartition("-")[0],
                incarnation=5_000 * 1024,
                state=wire.INSTANCE_STATE_RUNNING,
                readiness=wire.READINESS_READY,
            )
            listed.append(ticketed(TICKETS, run, node=node, serial=10_000))
        self._state_of(node, NodeState.ONLINE, EventType.NODE_ONLINE)
        self.open(NodeId(node), *listed)
        self.reconcile_listed(NodeId(node), *listed)
        self.reconciler.inventory_complete(NodeId(node))

    def forget(self, node: str) -> None:
        """An operator removes it from the cluster."""
        if node not in self.connected and self.state.nodes.find(node) is not None:
            event = Draft(type=EventType.NODE_REMOVED, subject=node, data={})
            self.apply([NODES.delete(node, expect=self.state.nodes.revision(node)), event])

    def obey(self, node: str) -> None:
        """It does what was ordered: what is to run runs and is ready, what is to stop has stopped."""
        if node not in self.connected:
            return
        for stored in list(self.state.instances.of_node(node)):
            record = stored.record
            if not live(record.state):
                continue
            if record.wanted is Wanted.STOP:
                if record.id in self.slow_to_stop:
                    continue
                self.report(record, InstanceState.STOPPED, exit=_exit("stopped"))
            elif record.state not in (InstanceState.RUNNING, InstanceState.DRAINING):
                self.report(record, InstanceState.RUNNING, readiness=Readiness.READY)

    def serving(self, group: str) -> int:
        return self.workspace().tally(group).serving

    def enter(self, id: str) -> None:
        """A player."""
        self.count_players(id, 1)

    def leave(self, id: str) -> None:
        """The last player."""
        if self.vitals.players_of(id):
            self.count_players(id, 0)

    def count_players(self, id: str, count: int | None) -> None:
        """Its node reports its players; None: it cannot count them any more."""
        stored = self.state.instances.find(id)
        if stored is None or not live(stored.record.state) or stored.record.node not in self.connected:
            return
        run = stored.record.incarnation
        if stored.record.started_at is None:
            return  # it does not run yet
        if count is None:
            self.counted.pop((id, run), None)
            self.vitals.players(id, run, count=None, maximum=0, by_node=True)
        else:
            self.counted[id, run] = count
            self.vitals.players(id, run, count=count, maximum=0)

    def tell_players(self) -> None:
        """Each node that is connected reports the players that it knows of, as it does when it connects."""
        self._untold = False
        for (id, run), count in list(self.counted.items()):
            stored = self.state.instances.find(id)
            present = (
                stored is not None and stored.record.incarnation == run
            )  # no node counts a run that has ended
            if stored is not None and present and stored.record.node in self.connected:
                self.vitals.players(id, run, count=count, maximum=0)

    def report(self, record: InstanceRecord, state: InstanceState, **facts: Any) -> None:
        said = RunReport(
            id=record.id, incarnation=record.incarnation, state=state, started_at=self.now, **facts
        )
        self._reported(record, fold_report, said)

    def end(self, record: InstanceRecord) -> None:
        """It ends by itself, without a fault."""
        self.report(record, InstanceState.STOPPED, exit=_exit("ended"))

    def crash(self, record: InstanceRecord, *, restarted: bool) -> None:
        said = wire.CrashReport(
            instance_id=record.id,
            group=record.group,
            incarnation=record.incarnation,
            exit_code=1,
            exit=_exit("crashed"),
            restarted_as=record.incarnation + 1 if restarted else 0,
        )
        self._reported(record, fold_crash, said)

    def refuse(self, record: InstanceRecord, *, permanent: bool) -> None:
        """Its node refuses to start it."""
        kinds = wire.START_FAILURE_DISPOSITION_PERMANENT, wire.START_FAILURE_DISPOSITION_TRANSIENT
        said = wire.StartInstanceAck(
            instance_id=record.id,
            incarnation=record.incarnation,
            accepted=False,
            error_code="IO",
            error_message="no",
            failure_disposition=kinds[0] if permanent else kinds[1],
        )
        self._reported(record, fold_start_answer, said)

    def _reported(self, record: InstanceRecord, fold: Callable[..., Any], said: Any) -> None:
        if record.node in self.connected and live(record.state):
            ws = self.workspace(f"report of node '{record.node}'")
            fold(ws, NodeId(record.node), said)
            self.apply(ws.steps())

    # what was decided

    def made(self) -> list[DecisionRecord]:
        """Every decision, the first first."""
        found: dict[str, DecisionRecord] = {}
        for entry in self.decisions:
            if entry.journal.startswith(EVERY_DECISION.name):
                record = EVERY_DECISION.decode(entry.body)
                found.setdefault(record.id, record)
        return list(found.values())


def _has_run(record: InstanceRecord) -> bool:
    """Has its node run it, as far as the records say?"""
    return bool(record.started_at or record.restarts or record.adopted)


def _listed(record: InstanceRecord) -> wire.RunningInstance:
    return wire.RunningInstance(
        instance_id=record.id,
        group=record.group,
        incarnation=record.incarnation,
        state=wire.INSTANCE_STATE_RUNNING,
        readiness=wire.READINESS_READY,
    )


def _exit(outcome: str) -> wire.ExitStatus:
    return wire.ExitStatus(known=True, code=int(outcome == "crashed"), outcome=outcome, summary=outcome)


async def _nothing() -> None:
    return


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of something that waits for nothing here."""
    try:
        work.send(None)
    except StopIteration as over:
        return over.value
    work.close()
    raise AssertionError("it waits for something")


class KeptReads:
    """What a store with this history answers that keeps only the last of it."""

    def __init__(self, world: World, *, dropped_events: int = 0, decisions: int = 1_000_000) -> None:
        """`decisions`: the most that are kept in a journal."""
        self._events = world.events[dropped_events:]
        self._dropped = dropped_events
        self._journals: dict[str, list[Entry]] = {}
        for append in world.decisions:
            entries = self._journals.setdefault(append.journal, [])
            entries.append(Entry(journal=append.journal, number=len(entries) + 1, at=NOW, body=append.body))
            del entries[:-decisions]

    async def entries(self, journal: str, *, limit: int, newest: bool) -> list[Entry]:
        assert newest
        return self._journals.get(journal, [])[-limit:]

    async def cursor_at(self, sequence: int) -> Cursor:
        return Cursor(1, max(sequence, self._dropped))

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        return [each for each in self._events if each.cursor.sequence > after.sequence][:limit]
