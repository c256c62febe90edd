"""A lossy world whose nodes are emptied and whose groups come to other revisions, by the real reconciler.

Each commit is compared with the state before it: nobody who plays is cut off before a deadline, as many instances stay
healthy as a group is to keep, nothing is started on a node that is emptied, and a node counts as empty only when nothing
runs there. What a run runs by is read in its plan, and not in what the records say of revisions.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from lossy_world import LossyWorld, Run, super_turn

from corral.controller.instances import group_changes
from corral.controller.instances.node_drains import DrainOrder, drain_node, undrain_node
from corral.controller.instances.order_answers import fold_start_answer
from corral.controller.instances.orders import Order
from corral.controller.state.collections import INSTANCES
from corral.controller.state.ledger import Step
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.available_floor import available_floor
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import (
    DecisionRecord,
    GroupRecord,
    InstanceRecord,
    Readiness,
    is_present,
    live,
)
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission
from corral.domain.planning.scaling import wanted_count
from corral.domain.planning.schedules import scheduled
from corral.store.port import Append, Put
from corral.wire.v1 import instance_pb2 as wire

BAD = "bad"
"""Versions that begin with it crash as soon as they are ready."""
LADDER_SECONDS = 60
"""So long after its deadline a node is empty that is connected: stops take a second here, and a new leader observes."""
_ORDERED = frozenset({Rule.OPERATOR, Rule.HOLD_STOP, Rule.DRAIN_DEADLINE})
"""Rules by which players may be cut off."""
_BY_DRAIN = frozenset({Rule.DRAIN_MOVE})
_BY_DEPLOYMENT = frozenset({"deploy.start", "deploy.retire", "deploy.rollback", "deploy.fail"})


class LeaderGone(Exception):
    """The leader dies after a commit."""


class ChangingWorld(LossyWorld):
    """`lead_after`: the leader dies after so many further commits of its reconciler; 0: it does not."""

    def __init__(self) -> None:
        self.lead_after = 0
        self.drained_by: dict[str, float] = {}
        """By node that is emptied with a deadline, when it has to be empty if it stays connected."""
        self.versions_made = 0
        super().__init__()

    # operators

    def drain(self, node: str, *, deadline: int | None, shutdown: bool = False) -> None:
        order = DrainOrder(reason="test", deadline_seconds=deadline, shutdown=shutdown)
        before = self.node(node).drain
        self.ask(drain_node, node, order)
        after = self.node(node).drain
        if after != before or node not in self.drained_by:
            self.drained_by.pop(node, None)
            if after is not None and deadline is not None:
                self.drained_by[node] = self.clock.seconds + deadline

    def undrain(self, node: str) -> None:
        self.ask(undrain_node, node, reason="test")
        self.drained_by.pop(node, None)

    def edit(self, version: str, group: str = "lobby") -> None:
        self.ask(group_changes.patch_group, group, {"env": {"VERSION": version}})

    def deployment(self, group: str = "lobby") -> DeploymentRecord | None:
        """The active one."""
        id = self.group(group).deployment
        return self.state.deployments.require(id).record if id else None

    def node(self, node: str) -> Any:
        return self.state.nodes.require(node).record

    # leaders

    async def _commit(self, *steps: Any) -> None:
        await super()._commit(*steps)
        if self.lead_after:
            self.lead_after -= 1
            if not self.lead_after:
                raise LeaderGone

    def settle(self) -> None:
        for _ in range(300):
            before = len(self.decisions)
            try:
                super_turn(self.reconciler)
            except LeaderGone:
                self.lead()
                return
            resting = self.reconciler.observing or not self.reconciler._dirty
            if resting and len(self.decisions) == before:
                return
        raise AssertionError("the reconciler does not come to rest")

    def lead(self) -> None:
        super().lead()
        for node in self.drained_by:  # it learns of everything anew
            self.drained_by[node] = max(self.drained_by[node], self.clock.seconds)

    # nodes

    def _join(self, node: str) -> None:
        self._crash_bad_ones(node)
        super()._join(node)
        if node in self.drained_by:
            self.drained_by[node] = max(self.drained_by[node], self.clock.seconds)

    def _start(self, node: str, record: InstanceRecord, order: Order) -> None:
        """A daemon that follows the drain of its node starts nothing."""
        if self.node(node).drain is None:
            super()._start(node, record, order)
            return
        said = wire.StartInstanceAck(
            instance_id=record.id,
            incarnation=record.incarnation,
            accepted=False,
            error_code="NODE_DRAINING",
            error_message="the node is emptied",
            failure_disposition=wire.START_FAILURE_DISPOSITION_TRANSIENT,
        )
        ws = self.workspace(f"report of node '{node}'")
        fold_start_answer(ws, NodeId(node), said)
        self.apply(ws.steps())

    def _report(self, node: str) -> None:
        self._crash_bad_ones(node)
        super()._report(node)

    def _crash_bad_ones(self, node: str) -> None:
        """Before anybody is told that they are ready."""
        for run in self.runs[node].values():
            if run.alive and self.clock.seconds >= run.ready_at and self.version_of(run).startswith(BAD):
                run.alive, run.crashed = False, True

    def version_of(self, run: Run) -> str:
        """What the plan of a run says."""
        record = self.state.instances.find(run.id)
        if run.version is None and record is not None and record.record.incarnation == run.incarnation:
            plan = self.state.plans.require(record.record.plan_hash).record
            run.version = json.loads(plan.body)["env"].get("VERSION", "")
        return run.version or ""

    def versions(self, group: str = "lobby") -> dict[str, str]:
        """What really runs of a group, by instance."""
        found = [run for runs in self.runs.values() for run in runs.values() if run.alive]
        return {run.id: self.version_of(run) for run in found if run.group == group}

    # what has to hold

    def _tick(self) -> None:
        super()._tick()
        for stored in self.state.nodes:
            node = stored.record.id
            if node not in self.connected & self.reachable:
                continue
            if stored.record.admission is Admission.DRAINED:
                there = [run.id for run in self.runs[node].values() if run.alive]
                assert not there, f"{node} is DRAINED, and {there} run"
            elif node in self.drained_by:
                late = self.clock.seconds - self.drained_by[node]
                assert late <= LADDER_SECONDS, f"I15: {node} is to be empty since {late} s: {self._on(node)}"

    def _on(self, node: str) -> list[tuple[str, str, str, str]]:
        records = [each.record for each in self.state.instances.of_node(node) if live(each.record.state)]
        return [(each.id, each.state.value, each.wanted.value, each.reason) for each in records]

    def _check_players(self, run: Run, record: InstanceRecord) -> None:
        """I7: who plays is cut off only by an operator, a deadline, or after `drain_seconds`."""
        decided = next(each for each in reversed(self.made()) if each.id == record.decision)
        known = (self.vitals.players_of(run.id) or 0) > 0 and run.reported_players
        if not known or decided.rule in _ORDERED:
            return
        waits = self._drain_seconds(record)
        since = record.drain.since if record.drain is not None else None
        waited = since is not None and waits is not None and self.now >= since + dt.timedelta(seconds=waits)
        allowed = decided.rule in _BY_DEPLOYMENT and waited
        assert allowed, f"I7: '{run.id}' is stopped with players: {decided}"

    def _drain_seconds(self, record: InstanceRecord) -> int | None:
        found = self.state.deployments.find(record.retired_by) if record.retired_by else None
        return found.record.options.drain_seconds if found is not None else None

    def apply(self, steps: Sequence[Step]) -> None:
        decisions: dict[str, DecisionRecord] = {}
        records: list[InstanceRecord] = []
        for step in steps:
            if isinstance(step, Append):
                made = msgspec.json.decode(step.body, type=DecisionRecord)
                decisions[made.id] = made
            elif isinstance(step, Put) and step.collection == INSTANCES.name:
                records.append(msgspec.json.decode(step.body, type=InstanceRecord))
        taken = self._taken(records, decisions)
        grown = {each.group for each in records} & {self._started(each) for each in decisions.values()}
        before = {name: self._serving(name) for name in grown}
        super().apply(steps)
        for decision, group in taken:
            self._enough_stay(decision, group)
        for name, count in before.items():
            self._not_too_many(name, count)

    def _taken(
        self, records: Sequence[InstanceRecord], decisions: dict[str, DecisionRecord]
    ) -> list[tuple[DecisionRecord, GroupRecord]]:
        """The healthy instances that a drain or a deployment takes out of service, by the decisions."""
        found = []
        for new in records:
            stored = self.state.instances.find(new.id)
            old = stored.record if stored is not None else None
            if old is None or old.incarnation < new.incarnation:
                node = self.state.nodes.find(new.node)
                closed = node is not None and node.record.admission in (
                    Admission.DRAINING,
                    Admission.DRAINED,
                )
                assert not closed or new.adopted, f"{new.id} is started on {new.node}, which is emptied"
                continue
            decision = decisions.get(new.decision)
            leaves = old.wanted is Wanted.RUN and new.wanted is not Wanted.RUN
            group = self.state.groups.find(new.group)
            if decision is None or not leaves or group is None or not self.healthy(old):
                continue
            if decision.kind in (DecisionKind.DRAIN, DecisionKind.STOP):
                found.append((decision, group.record))
        return found

    def _started(self, decision: DecisionRecord) -> str:
        """The group in which a decision starts an instance; empty: it does not."""
        return decision.subject.rpartition("-")[0] if decision.kind is DecisionKind.START else ""

    def _serving(self, name: str) -> int:
        return sum(is_present(each) and not each.warm for each in self.there(name))

    def _not_too_many(self, name: str, before: int) -> None:
        """I6: no start makes more serve than are wanted and the surge, of which drains have one at least."""
        group = self.group(name)
        wanted = self.signals_now.wanted(group)
        deployment = self.deployment(name)
        update = deployment.options if deployment is not None else group.spec.update
        surge = max(1, update.surge(wanted, group.spec.static))
        most = max(before, wanted + surge)
        assert self._serving(name) <= most, f"I6: more than {wanted} and {surge} serve: {self.states(name)}"

    def healthy(self, record: InstanceRecord) -> bool:
        """Is it ready and watched, and for long enough by what really runs?"""
        group = self.state.groups.find(record.group)
        run = self.runs.get(record.node, {}).get(record.id)
        if group is None or run is None or not run.alive or run.incarnation != record.incarnation:
            return False
        ready = record.state is InstanceState.RUNNING and record.readiness is Readiness.READY
        least = group.record.spec.update.min_healthy_seconds
        lasted = self.clock.seconds - run.ready_at >= least
        return ready and record.node in self.connected and lasted and record.wanted is Wanted.RUN

    def _enough_stay(self, decision: DecisionRecord, group: GroupRecord) -> None:
        """I10: after a healthy instance is taken out of service as many are left as have to be."""
        spec = group.spec
        wanted = wanted_count(group, scheduled(spec, self.now))  # without what there is on top for a while
        if decision.rule in _BY_DRAIN:
            if spec.static or not self._could_move(group):
                return
            floor = available_floor(spec, wanted)
            moved = any(
                each.moves == decision.subject and self.healthy(each) for each in self.there(spec.name)
            )
            assert moved, f"{decision.subject} leaves before another takes its place: {decision.reason}"
        elif decision.rule in _BY_DEPLOYMENT:
            floor = wanted - spec.update.unavailable(wanted, spec.static)
            if spec.min_available is not None:
                floor = max(floor, available_floor(spec, wanted))
        else:
            return
        left = [each.id for each in self.there(spec.name) if self.healthy(each) and not each.warm]
        assert len(left) >= floor, (
            f"I10: {floor} have to stay healthy, {left} do: {decision.rule} {decision.subject} {decision.reason}"
        )

    def _could_move(self, group: GroupRecord) -> bool:
        return len(group.spec.nodes) != 1
