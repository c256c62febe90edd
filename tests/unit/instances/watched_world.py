"""A world that watches each commit: what must never happen is found where it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from reconciled_world import ReconciledWorld

from corral.controller.instances import group_changes, instance_changes
from corral.controller.state.collections import INSTANCES
from corral.controller.state.ledger import Step
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.instance_records import (
    AfterStop,
    DecisionRecord,
    GroupRecord,
    InstanceRecord,
    is_present,
    is_ready,
    live,
    stays,
)
from corral.domain.groups.probes import ProbeKind
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.stops import UNKNOWN_IS_EMPTY_SECONDS
from corral.store.port import Append, Put

ORDERED = frozenset({Rule.OPERATOR, Rule.HOLD_STOP})
"""Rules by which an operator's order is carried out."""
_BY_HAND = (instance_changes.stop_instance, instance_changes.kill_instance)
_BRINGS_BACK = (
    instance_changes.start_instance,
    instance_changes.restart_instance,
    group_changes.create_group,
)


class WatchedWorld(ReconciledWorld):
    """Each commit is compared with the state before it."""

    def __init__(self) -> None:
        self._counted_since: dict[tuple[str, int], tuple[float, int | None]] = {}
        self.stopped: dict[str, int] = {}
        """Instances that an operator stopped, with the run, as long as no operator has brought them back."""
        self._brings_back = False
        super().__init__()

    def begin_term(self) -> None:
        self._counted_since.clear()  # what is remembered of players is lost with the leader
        super().begin_term()

    def ask(self, change: Any, *args: Any, **named: Any) -> None:
        if change in _BY_HAND:
            record = self.record(args[0])
            if live(record.state):
                self.stopped[record.id] = record.incarnation
        if change is instance_changes.remove_instance and not live(self.record(args[0]).state):
            self.stopped.pop(args[0], None)  # its id is free again
        if change is group_changes.create_group:  # ids of an earlier group of this name may be given again
            gone = [id for id in self.stopped if id.rpartition("-")[0] == args[0].name]
            self.stopped = {id: run for id, run in self.stopped.items() if id not in gone}
        self._brings_back = change in _BRINGS_BACK
        super().ask(change, *args, **named)
        self._brings_back = False
        if (
            change is instance_changes.restart_instance
            and self.record(args[0]).after_stop is AfterStop.RESTART
        ):
            self.stopped.pop(args[0], None)  # it is brought back when it has stopped

    def count_players(self, id: str, count: int | None) -> None:
        super().count_players(id, count)
        self._note_players(id)

    def tell_players(self) -> None:
        super().tell_players()
        for id, _ in self.counted:
            self._note_players(id)

    def _note_players(self, id: str) -> None:
        stored = self.state.instances.find(id)
        if stored is None:
            return
        key, count = (id, stored.record.incarnation), self.vitals.players_of(id)
        _, before = self._counted_since.get(key, (0.0, -1))
        if count != before and not (before and count):
            self._counted_since[key] = self.clock.seconds, count

    # commits

    def apply(self, steps: Sequence[Step]) -> None:
        decisions = {
            each.id: each
            for step in steps
            if isinstance(step, Append)
            for each in [msgspec.json.decode(step.body, type=DecisionRecord)]
        }
        changed = [step for step in steps if isinstance(step, Put) and step.collection == INSTANCES.name]
        records = [msgspec.json.decode(step.body, type=InstanceRecord) for step in changed]
        for new in records:
            stored = self.state.instances.find(new.id)
            old = stored.record if stored is not None else None
            decision = decisions.get(new.decision)
            stops = old is not None and old.wanted is not Wanted.STOP and new.wanted is Wanted.STOP
            if old is not None and stops and decision is not None:
                self._may_stop(old, decision)
            if old is None or old.incarnation < new.incarnation:
                self._may_start(new, decision)
        grown = {each.group for each in records}
        before = {name: self._serving(name) for name in grown}
        super().apply(steps)
        starts = (DecisionKind.START, DecisionKind.PROMOTE, DecisionKind.UNDRAIN, DecisionKind.RESTART)
        if any(each.kind in starts for each in decisions.values()):
            for name in grown:
                self._within_max(name, before[name])

    def _serving(self, name: str) -> int:
        return sum(
            is_present(each.record) and not each.record.warm for each in self.state.instances.of_group(name)
        )

    def _present(self, group: GroupRecord) -> int:
        """Those that serve; one of a static group that is stopping is waited for."""
        name = group.spec.name
        return self.state.instances.counts(name).live if group.spec.static else self._serving(name)

    def _within_max(self, name: str, before: int) -> None:
        """I6: no start makes more serve than are allowed."""
        group = self.state.groups.find(name)
        if group is None:
            return
        most = scheduled(group.record.spec, self.now).max
        assert most is None or self._serving(name) <= max(most, before), f"I6: {name} has more than {most}"

    def _may_start(self, new: InstanceRecord, decision: DecisionRecord | None) -> None:
        """I8: what an operator stopped stays stopped, whatever the node and the group do."""
        run = self.stopped.get(new.id)
        if run is None or decision is None or decision.subject != new.id:
            return
        if self._brings_back or new.incarnation <= run:
            self.stopped.pop(new.id)
            return
        raise AssertionError(f"I8: {new.id} was stopped by hand and runs again: {decision}")

    def _may_stop(self, old: InstanceRecord, decision: DecisionRecord) -> None:
        """I7: players are cut only by an operator, and load stops only what is known to be empty."""
        if decision.rule in ORDERED:
            return
        known = self.vitals.players_of(old.id)
        runs = old.state in (InstanceState.RUNNING, InstanceState.DRAINING)
        text = f"{old.id} is stopped by {decision.rule} with {known} players: {decision.reason}"
        assert not known, f"I7: {text}"
        assert old.state is not InstanceState.OFFLINE, f"I7: out of reach, and {text}"
        since, count = self._counted_since.get((old.id, old.incarnation), (self._began(), None))
        lasted = self.clock.seconds - since
        group = self.group(old.group)
        if decision.rule == Rule.IDLE_DOWN:
            idle = group.spec.scaling.idle_seconds
            assert (known, count) == (0, 0), f"idle: {text}"
            assert lasted >= idle, f"idle for {lasted} of {idle} s: {text}"
        elif known is None and runs:
            really = self.counted.get((old.id, old.incarnation), 0)
            patient = old.wanted is Wanted.DRAIN and lasted >= UNKNOWN_IS_EMPTY_SECONDS
            counts_none = not counts(group)
            assert patient or (counts_none and not really), f"I7: unknown, {really} there: {text}"

    def _began(self) -> float:
        return self.signals_of_term._began

    # rest

    def short_groups(self) -> list[GroupRecord]:
        """Groups that have fewer instances than their minimum."""
        return [
            each.record
            for each in self.state.groups
            if not each.record.deleting
            and not each.record.spec.abstract
            and self._present(each.record) < scheduled(each.record.spec, self.now).min
        ]

    def numbers(self) -> dict[str, tuple[int, int]]:
        """By group, how many serve, and how many of these are ready."""
        found = {}
        for stored in self.state.groups:
            name = stored.record.spec.name
            records = [each.record for each in self.state.instances.of_group(name)]
            ready = sum(is_ready(each) and not each.warm and stays(each) for each in records)
            found[name] = (self._serving(name), ready)
        return found


def counts(group: GroupRecord) -> bool:
    """Does the node count the players of this group?"""
    return any(probe.kind is ProbeKind.MINECRAFT for probe in group.spec.probes)
