"""A world whose nodes have lives of their own: what they run goes on while they are cut off, and ends unseen.

The real reconciler, signals and folds of reports act on it in virtual time. After each second it is checked that no id runs
twice, whatever the records say.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import itertools
from types import SimpleNamespace
from typing import Any

from reconciled_world import FLOOR, ReconciledWorld, _exit, _nothing
from world import TICKETS

from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.node_inventory import ListedRuns, add_listed
from corral.controller.instances.order_answers import fold_stop_answer
from corral.controller.instances.orders import Order, OrderKind, order_for
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.lost_nodes import Observation, awaited_nodes
from corral.controller.workload.vitals import Vitals
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import DecisionRecord, InstanceRecord, Readiness, live
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.system.controller_config import ReconcileSection
from corral.wire.v1 import instance_pb2 as wire

SILENT_SECONDS = 90
"""Three pongs are missed."""
OBSERVE_SECONDS = 15
BOOT_SECONDS = 2
ORDERED = ("operator", "hold.stop")


@dataclasses.dataclass
class Run:
    """A process on a node."""

    id: str
    group: str
    incarnation: int
    ready_at: float
    started_at: dt.datetime
    players: int | None = None
    alive: bool = True
    crashed: bool = True
    """Once it is not alive."""
    reported_players: int = 0
    """The number that its leader knew before the last second."""
    told: bool = False
    """Its end was reported."""
    version: str | None = None
    """What its plan says, once somebody has looked."""


class LossyWorld(ReconciledWorld):
    """Three nodes, a leader, and what really runs."""

    def __init__(self) -> None:
        super().__init__()
        self.add_node(NodeId("n3"))
        self.runs: dict[str, dict[str, Run]] = {node: {} for node in ("n1", "n2", "n3")}
        self.reachable = set(self.runs)
        """Nodes whose line to the leader is not cut."""
        self.unnoticed: dict[str, float] = {}
        """Cut nodes whose silence the leader has not noticed, with the time at which it does."""
        self.counts_players = True
        self.holds_back: set[str] = set()
        """Nodes whose inventory does not become complete."""
        self.connected = set()
        self.lead()
        self.pass_time(1)

    # leaders

    def lead(self) -> None:
        """Another leader takes over, with nothing but the store."""
        self.connected.clear()
        self.unnoticed.clear()
        for stored in list(self.state.nodes):
            if stored.record.state is NodeState.ONLINE:
                self._state_of(stored.record.id, NodeState.DISCONNECTED, EventType.NODE_DISCONNECTED)
        self.vitals = Vitals(self.state, monotonic=self.clock.monotonic)
        self.signals_now = PlanSignals(
            self.state, clock=self.clock, drift=DriftView(self.state), players=self.vitals.players_of
        )
        self.vitals.players_changed = self.signals_now.players_changed
        self.observation = Observation(awaited_nodes(self.state))
        self.reconciler = Reconciler(
            ledger=SimpleNamespace(state=self.state, commit=self._commit),
            instances=SimpleNamespace(
                signals=self.signals_now,
                placing=asyncio.Lock(),
                workspace=self.workspace,
                numbers=SimpleNamespace(refill=_nothing),
            ),
            sessions=SimpleNamespace(find=lambda node: node if node in self.connected else None),
            observation=self.observation,
            config=ReconcileSection(floor_seconds=FLOOR, offline_after_seconds=5.0),
            clock=self.clock,
        )
        self.signals_now.begin()
        self.reconciler.begin()
        self.reconciler._floor_at = 0.0
        self.observed_at = self.clock.seconds + OBSERVE_SECONDS
        self.followers[:] = [self.vitals.follow, self.signals_now.follow, self.reconciler.follow]

    # time

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.wait(1)
            self._tick()

    def until(self, seconds: float) -> None:
        """Until so many seconds after `mark`."""
        self.pass_time(round(self.marked + seconds - self.clock.seconds))

    def mark(self) -> None:
        self.marked = self.clock.seconds

    def settle(self) -> None:
        """Turns of the reconciler; time passes by seconds only."""
        for _ in range(200):
            before = len(self.decisions)
            super_turn(self.reconciler)
            resting = self.reconciler.observing or not self.reconciler._dirty
            if resting and len(self.decisions) == before:
                return
        raise AssertionError("the reconciler does not come to rest")

    def _tick(self) -> None:
        for node, at in list(self.unnoticed.items()):
            if self.clock.seconds >= at:
                del self.unnoticed[node]
                self.connected.discard(node)
                self._state_of(node, NodeState.UNREACHABLE, EventType.NODE_UNREACHABLE)
        for node in sorted(self.reachable - self.connected):
            self._join(node)
        if not self.observation.awaited or self.clock.seconds >= self.observed_at:
            self.signals_now.observing = False
        self.settle()
        for node in sorted(self.reachable & self.connected):
            self._obey(node)
            self._report(node)
        self.settle()
        self.check_ids()

    # nodes

    def cut(self, node: str, *, silent: bool = False) -> None:
        """The line to a node is cut; `silent`: nothing tells the leader."""
        self.reachable.discard(node)
        if silent and node in self.connected:
            self.unnoticed.setdefault(node, self.clock.seconds + SILENT_SECONDS)
        elif node in self.connected:
            self.drop(node)

    def mend(self, node: str) -> None:
        self.reachable.add(node)
        if self.unnoticed.pop(node, None) is not None:
            self.connected.discard(node)  # the daemon opens another session in place of the silent one

    def kill(self, node: str) -> None:
        """Everything on a node dies with it; nobody there knows how."""
        self.cut(node)
        self.runs[node].clear()

    def alive(self) -> dict[str, list[str]]:
        """Where each id really runs."""
        found: dict[str, list[str]] = collections.defaultdict(list)
        for node, runs in self.runs.items():
            for run in runs.values():
                if run.alive:
                    found[run.id].append(node)
        return dict(found)

    def check_ids(self) -> None:
        twice = {id: nodes for id, nodes in self.alive().items() if len(nodes) > 1}
        assert not twice, f"live twice: {twice}"

    def run_of(self, id: str) -> Run:
        return next(run for runs in self.runs.values() for run in runs.values() if run.id == id and run.alive)

    def die(self, id: str, *, cleanly: bool = False) -> None:
        """A process crashes, or ends by itself; its node reports it when it can."""
        run = self.run_of(id)
        run.alive, run.crashed = False, not cleanly

    def _join(self, node: str) -> None:
        """A session opens: its list, then its spool, then the inventory is complete."""
        self.connected.add(node)
        self._state_of(node, NodeState.ONLINE, EventType.NODE_ONLINE)
        listed = [_entry(run, self.clock.seconds) for run in self.runs[node].values() if run.alive]
        ws = self.workspace(f"handshake of node '{node}'")
        opening = ListedRuns(NodeId(node), TICKETS, bar=ws.ledger(node).serial)
        by_id: dict[str, list[wire.RunningInstance]] = {}
        add_listed(by_id, listed)
        strays = [stray for runs in by_id.values() for stray in opening.fold(ws, runs)]
        self.apply(ws.steps())
        for stray in strays:
            if stray.stop:
                self._end(node, stray.id)
        self._report_ends(node)
        self.reconcile_listed(NodeId(node), *listed)
        if node not in self.holds_back:
            self.reconciler.inventory_complete(NodeId(node))

    def _end(self, node: str, id: str) -> None:
        self.runs[node][id].alive = False

    def _obey(self, node: str) -> None:
        for stored in list(self.state.instances.of_node(node)):
            order = order_for(stored.record)
            if order is None:
                continue
            run = self.runs[node].get(stored.record.id)
            if order.kind is OrderKind.START and (run is None or run.incarnation != order.incarnation):
                self._start(node, stored.record, order)
            elif order.kind is OrderKind.STOP and (run is None or run.incarnation != order.incarnation):
                self._answer_unknown(node, stored.record)
            elif order.kind is OrderKind.STOP and run is not None and run.alive:
                self._check_players(run, stored.record)
                run.alive = False
                self._told(node, run, InstanceState.STOPPED, exit=_exit("stopped"))

    def _start(self, node: str, record: InstanceRecord, order: Order) -> None:
        self.runs[node][record.id] = Run(
            record.id,
            record.group,
            order.incarnation,
            self.clock.seconds + BOOT_SECONDS,
            self.now,
            players=0 if self.counts_players else None,
        )

    def _answer_unknown(self, node: str, record: InstanceRecord) -> None:
        """It does not have the run that it is to stop."""
        ack = wire.StopInstanceAck(
            instance_id=record.id, incarnation=record.incarnation, accepted=False, error_code="NOT_FOUND"
        )
        ws = self.workspace(f"report of node '{node}'")
        fold_stop_answer(ws, NodeId(node), ack)
        self.apply(ws.steps())

    def _check_players(self, run: Run, record: InstanceRecord) -> None:
        """Nobody but an operator stops an instance that is known to have players."""
        decided = next(each for each in reversed(self.made()) if each.id == record.decision)
        known = (self.vitals.players_of(run.id) or 0) > 0 and run.reported_players
        assert not known or decided.rule in ORDERED, f"'{run.id}' is stopped with players: {decided}"

    def _report(self, node: str) -> None:
        for run in list(self.runs[node].values()):
            if run.alive:
                ready = Readiness.READY if self.clock.seconds >= run.ready_at else Readiness.WAITING
                self._told(node, run, InstanceState.RUNNING, readiness=ready)
                if run.players is not None:
                    self.vitals.players(run.id, run.incarnation, count=run.players, maximum=20)
                    run.reported_players = run.players
        self._report_ends(node)

    def _report_ends(self, node: str) -> None:
        for run in list(self.runs[node].values()):
            if not run.alive and not run.told:
                state = InstanceState.CRASHED if run.crashed else InstanceState.STOPPED
                self._told(node, run, state, exit=_exit("crashed" if run.crashed else "ended"))

    def _told(self, node: str, run: Run, state: InstanceState, **facts: Any) -> None:
        run.told = not live(state)
        ws = self.workspace(f"report of node '{node}'")
        report = RunReport(
            id=run.id, incarnation=run.incarnation, state=state, started_at=run.started_at, **facts
        )
        fold_report(ws, NodeId(node), report)
        if steps := ws.steps():
            self.apply(steps)

    # the records

    def there(self, group: str = "lobby") -> list[InstanceRecord]:
        return [each.record for each in self.state.instances.of_group(group) if live(each.record.state)]

    def states(self, group: str = "lobby") -> dict[str, str]:
        """The live instances of a group, by their states; a lost one is `lost`."""
        return {each.id: "lost" if each.lost else each.state.value for each in self.there(group)}

    def by_rule(self, rule: str) -> list[DecisionRecord]:
        return [each for each in self.made() if each.rule == rule]

    def changes(self) -> list[DecisionRecord]:
        waits = (DecisionKind.SKIP, DecisionKind.REFUSE)
        return [each for each in self.made() if each.kind not in waits]

    def home_of_group(self, node: str, group: str = "lobby") -> list[str]:
        return sorted(each.id for each in self.there(group) if each.node == node)


def super_turn(reconciler: Reconciler) -> None:
    """One turn, which waits for nothing here."""
    work = reconciler._turn()
    for _ in itertools.count():
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("it waits for something")


def _entry(run: Run, now: float) -> wire.RunningInstance:
    ready = wire.READINESS_READY if now >= run.ready_at else wire.READINESS_WAITING
    return wire.RunningInstance(
        instance_id=run.id,
        group=run.group,
        incarnation=run.incarnation,
        state=wire.INSTANCE_STATE_RUNNING,
        readiness=ready,
    )
