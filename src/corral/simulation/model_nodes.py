"""Nodes of the model: they do what the controller orders, start instances in some time, lose their connection and return.

What they report is folded by the controller's own functions, in the messages of the link. A node without a connection keeps
what has ended for its return, as a daemon does in its spool.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from corral.controller.instances.node_inventory import ListedRuns, add_listed, reconcile_listed
from corral.controller.instances.orders import OrderKind, order_for
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_crash, fold_report
from corral.controller.instances.start_identity import StartTickets
from corral.controller.sessions.handshake import RESTARTED, opened, out_of_reach
from corral.controller.state.collections import INSTANCES, NODES
from corral.controller.state.ledger import Step
from corral.daemon.runs.run_files import RunOutcome
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, Readiness
from corral.domain.ids import NodeId, SessionId
from corral.domain.instance_states import ISOLATED, InstanceState
from corral.domain.node_states import NodeTrigger
from corral.simulation.model_controller import ModelController
from corral.simulation.model_node import Fold, ModelNode, stop_report
from corral.simulation.model_runs import HOST_REBOOTED, ModelRun, Phase, with_node_restart
from corral.simulation.scenario import BootModel, NodeModel
from corral.simulation.virtual_time import Agenda, Chance, VirtualClock
from corral.store.port import Commit
from corral.wire.v1 import instance_pb2 as wire

RECONNECT_SECONDS: Final = 2.0
"""After which nodes find a new leader."""
STOP_SECONDS: Final = 1.0
_PLENTY_MB: Final = 2**40
_TICKETS: Final = StartTickets(lambda: (b"simulation" * 4,))


class ModelNodes:
    """All nodes."""

    def __init__(
        self,
        models: Sequence[NodeModel],
        *,
        clock: VirtualClock,
        agenda: Agenda,
        chance: Chance,
        boot: Callable[[ModelRun], BootModel],
        ended: Callable[[ModelRun], None],
        changed: Callable[[str], None],
    ) -> None:
        """`boot`: how a run starts; `ended`: a run is gone; `changed`: what is known of the players of an instance."""
        self._nodes = {each.id: ModelNode(model=each) for each in models}
        self._clock = clock
        self._agenda = agenda
        self._chance = chance
        self._boot = boot
        self._ended = ended
        self._changed = changed
        self._generators: dict[str, random.Random] = {}
        self._controller: ModelController

    def free_disk_mb(self, node: str) -> int:
        disk = self._nodes[node].model.disk_mb
        return _PLENTY_MB if disk is None else disk

    def join(self, controller: ModelController) -> None:
        """Enrol all nodes, and connect them."""
        self._controller = controller
        controller.store.followers.append(self._follow)
        records = [node.enrolled(self._clock.now()) for node in self._nodes.values()]
        controller.commit([NODES.put(each.id, each, expect=None) for each in records])
        for node in self._nodes.values():
            self._connect(node)

    def connected(self, node: str) -> bool:
        return node in self._controller.sessions.connected

    def serves(self, record: InstanceRecord) -> bool:
        """Does the run of a record take players, and is its node connected?"""
        run = self._nodes[record.node].runs.get(record.id)
        ready = run is not None and run.phase is Phase.READY and run.incarnation == record.incarnation
        return ready and self.connected(record.node)

    def runs(self) -> Iterable[ModelRun]:
        return (run for node in self._nodes.values() for run in node.runs.values())

    # orders

    def _follow(self, commit: Commit) -> None:
        """Have orders carried out that a commit calls for, once it is done."""
        for change in commit.changes:
            if change.collection == INSTANCES.name and change.body is not None:
                self._order(change.id)

    def _order(self, instance: str) -> None:
        stored = self._controller.state.instances.find(instance)
        if stored is not None and order_for(stored.record) is not None and self.connected(stored.record.node):
            self._agenda.add(0.0, lambda: self._obey(instance))

    def _obey(self, instance: str) -> None:
        stored = self._controller.state.instances.find(instance)
        order = order_for(stored.record) if stored is not None else None
        if stored is None or order is None or not self.connected(stored.record.node):
            return
        record, node = stored.record, self._nodes[stored.record.node]
        run = node.runs.get(instance)
        if order.kind is OrderKind.START:
            if run is None:
                self._begin(node, record)
        elif run is None:
            self._fold(
                node, lambda ws: fold_report(ws, record.node, stop_report(record.id, record.incarnation))
            )
        elif run.phase is not Phase.STOPPING:
            run.phase = Phase.STOPPING
            self._agenda.add(STOP_SECONDS, lambda: self._stopped(node, run))

    def _begin(self, node: ModelNode, record: InstanceRecord) -> None:
        run = ModelRun(
            id=record.id,
            group=record.group,
            node=record.node,
            incarnation=record.incarnation,
            ticket=_TICKETS.of(record),
            plan_hash=record.plan_hash,
            began=self._clock.monotonic(),
        )
        self._boot_up(node, run)

    def _boot_up(self, node: ModelNode, run: ModelRun) -> None:
        node.runs[run.id] = run
        self._report(node, run, InstanceState.STARTING)
        model, chance = self._boot(run), self._generator(run.group)
        seconds = chance.uniform(*model.seconds)
        crashes = chance.random() < model.crash
        lasts = chance.random() * seconds
        limit = self._spec(run).startup_timeout_seconds if self._known(run) else 0
        if crashes:
            self._agenda.add(lasts, lambda: self._crash(node, run, "it crashed while it started", "unknown"))
        elif limit and seconds > limit:
            why = f"it was not ready within {limit} s"
            self._agenda.add(float(limit), lambda: self._crash(node, run, why, "never_ready"))
        else:
            self._agenda.add(seconds, lambda: self._ready(node, run))

    def _generator(self, group: str) -> random.Random:
        if group not in self._generators:
            self._generators[group] = self._chance.of(f"boot/{group}")
        return self._generators[group]

    def _known(self, run: ModelRun) -> bool:
        return self._controller.state.groups.find(run.group) is not None

    def _spec(self, run: ModelRun) -> GroupSpec:
        return self._controller.state.groups.require(run.group).record.spec

    # the life of a run

    def _ready(self, node: ModelNode, run: ModelRun) -> None:
        if node.runs.get(run.id) is run and run.phase is Phase.BOOTING:
            run.phase = Phase.READY
            self._report(node, run, InstanceState.RUNNING, readiness=Readiness.READY)

    def _stopped(self, node: ModelNode, run: ModelRun, outcome: str = "stopped") -> None:
        if node.runs.get(run.id) is run:
            self._remove(node, run)
            said = stop_report(run.id, run.incarnation, outcome)
            self._fold(node, lambda ws: fold_report(ws, NodeId(run.node), said))

    def _crash(self, node: ModelNode, run: ModelRun, why: str, crash_class: str) -> None:
        if node.runs.get(run.id) is not run or run.phase is Phase.STOPPING:
            return
        self._remove(node, run)
        if self._known(run):
            self._end_by_crash(node, run, why, crash_class=crash_class)

    def _end_by_crash(
        self, node: ModelNode, run: ModelRun, why: str, *, outcome: str = "crashed", crash_class: str = ""
    ) -> None:
        """Report the end of a run, and start it again if that is the rule."""
        at, fraction = self._clock.monotonic(), self._generator(run.group).random()
        ended = RunOutcome(
            state=InstanceState.CRASHED,
            outcome=outcome,
            summary=why,
            crash_class=crash_class,
            ended_at_ms=0,
        )
        ended = with_node_restart(run, self._spec(run), ended, at=at, fraction=fraction)
        said = run.crash_report(ended)
        self._fold(node, lambda ws: fold_crash(ws, NodeId(run.node), said))
        if ended.restarted_as is not None:
            again = node.runs[run.id] = run.restarted(ended, at)
            if ended.restart_delay_seconds:
                self._agenda.add(ended.restart_delay_seconds, lambda: self._restart(node, again))
            else:
                self._restart(node, again)

    def _restart(self, node: ModelNode, run: ModelRun) -> None:
        """Start a run in place of one that crashed, unless it was stopped meanwhile, or the node lost its power."""
        if node.runs.get(run.id) is run and run.phase is Phase.WAITING:
            run.phase = Phase.BOOTING
            run.began = self._clock.monotonic()
            self._boot_up(node, run)

    def _remove(self, node: ModelNode, run: ModelRun) -> None:
        del node.runs[run.id]
        self._ended(run)

    def _stop_alone(self, node: ModelNode, run: ModelRun) -> None:
        """Have a run end on a node that stays without a controller for as long as its group allows."""
        seconds = self._spec(run).disconnect.stop_after_seconds if self._known(run) else 0
        sessions = node.sessions

        def stop() -> None:
            if node.sessions == sessions and not self.connected(run.node) and node.runs.get(run.id) is run:
                run.phase = Phase.STOPPING
                self._agenda.add(STOP_SECONDS, lambda: self._stopped(node, run, ISOLATED))

        if seconds:
            self._agenda.add(seconds, stop)

    # reports

    def _report(
        self, node: ModelNode, run: ModelRun, state: InstanceState, *, readiness: Readiness | None = None
    ) -> None:
        if self.connected(node.model.id):
            said = RunReport(
                id=run.id,
                incarnation=run.incarnation,
                state=state,
                started_at=self._clock.now(),
                readiness=readiness,
            )
            self._fold(node, lambda ws: fold_report(ws, NodeId(run.node), said))

    def _fold(self, node: ModelNode, fold: Fold) -> None:
        """Have a report taken in; without a connection it waits for one."""
        if not self.connected(node.model.id):
            node.spool.append(fold)
            return
        ws = self._controller.workspace(f"report of node '{node.model.id}'")
        fold(ws)
        self._controller.commit(ws.steps())

    # connections

    def cut(self, id: str, seconds: int | None) -> None:
        """It loses its connection; what runs there goes on. One without power has none to lose."""
        if self._nodes[id].powered:
            self._lose(self._nodes[id], seconds, "its connection was cut")

    def kill(self, id: str, seconds: int | None) -> None:
        """It loses its power, and what it runs."""
        node = self._nodes[id]
        node.powered = False
        self._lose(node, seconds, "it lost its power")
        for run in list(node.runs.values()):
            node.interrupted.append(run)
            self._remove(node, run)

    def _lose(self, node: ModelNode, seconds: int | None, reason: str) -> None:
        node.linked = False
        node.faults += 1
        self._disconnect(node, reason)
        if seconds is not None:
            faults = node.faults
            self._agenda.add(seconds, lambda: self._return(node, faults))

    def _return(self, node: ModelNode, faults: int) -> None:
        if node.faults == faults:
            node.linked = True
            if not node.powered:
                self._boot_node(node)
            self._connect(node)

    def _boot_node(self, node: ModelNode) -> None:
        """It has power again, and starts what it ran by the rules of its daemon."""
        node.powered = True
        node.boots += 1
        interrupted, node.interrupted = node.interrupted, []
        for run in interrupted:
            if run.phase is Phase.STOPPING or not self._known(run):
                said = stop_report(run.id, run.incarnation)
                node.spool.append(lambda ws, said=said: fold_report(ws, NodeId(node.model.id), said))  # type: ignore[misc]
            else:
                self._end_by_crash(node, run, "its node lost its power", outcome=HOST_REBOOTED)

    def drop_all(self) -> None:
        """The leader is another one: all connections end."""
        for node in self._nodes.values():
            self._disconnect(node, RESTARTED)

    def connect_all(self) -> None:
        for node in self._nodes.values():
            if node.linked and not self.connected(node.model.id):
                self._connect(node)

    def _disconnect(self, node: ModelNode, reason: str) -> None:
        id = node.model.id
        if not self.connected(id):
            return
        self._controller.sessions.connected.discard(id)
        for run in node.runs.values():
            self._changed(run.id)
            self._stop_alone(node, run)
        stored = self._controller.state.nodes.require(id)
        record, events = out_of_reach(stored.record, NodeTrigger.STREAM_ENDED, reason, now=self._clock.now())
        self._controller.commit([NODES.put(id, record, expect=stored.revision), *events])

    def _connect(self, node: ModelNode) -> None:
        """Its handshake, its list of runs, what ended meanwhile, and what is missing: in the order of a session."""
        id = NodeId(node.model.id)
        controller = self._controller
        stored = controller.state.nodes.require(id)
        session = SessionId(f"{id}/{controller.state.number}")
        record, events = opened(stored, node.handshake(), session=session, now=self._clock.now())
        steps: list[Step] = [NODES.put(id, record, expect=stored.revision), *events]
        controller.commit(steps)
        controller.sessions.connected.add(id)
        node.sessions += 1
        listed: dict[str, list[wire.RunningInstance]] = {}
        add_listed(listed, [run.listed() for run in node.runs.values()])
        self._take_list(node, listed)
        spool, node.spool = node.spool, []
        for fold in spool:
            self._fold(node, fold)
        ws = controller.workspace(f"the inventory of node '{id}'")
        for each in controller.state.instances.of_node(id):
            reconcile_listed(ws, id, each.record.id, listed.get(each.record.id, ()))
        controller.commit(ws.steps())
        controller.node_reported(id)
        for run in node.runs.values():
            self._changed(run.id)
        for each in controller.state.instances.of_node(id):
            self._order(each.record.id)

    def _take_list(self, node: ModelNode, listed: dict[str, list[wire.RunningInstance]]) -> None:
        id = NodeId(node.model.id)
        ws = self._controller.workspace(f"the list of node '{id}'")
        runs = ListedRuns(id, _TICKETS, bar=ws.ledger(id).serial)
        strays = [stray for each in listed.values() for stray in runs.fold(ws, each)]
        self._controller.commit(ws.steps())
        for stray in strays:
            run = node.runs.get(stray.id)
            if stray.stop and run is not None and run.incarnation == stray.incarnation:
                run.phase = Phase.STOPPING
                self._agenda.add(STOP_SECONDS, lambda run=run: self._stopped(node, run))  # type: ignore[misc]
