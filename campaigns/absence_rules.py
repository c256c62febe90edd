"""The checker of the campaign of deployments while nodes are away: what has to hold after each commit of a history, at each
moment, and at its end. Runs are counted on the nodes of the model, and not in the records alone."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Final

from corral.domain.events import Event, EventType
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, is_ready, live
from corral.domain.planning.group_plans import is_held
from corral.simulation.simulation import Simulation
from corral.store.port import Commit

_ENDED: Final = {
    EventType.DEPLOYMENT_COMPLETED: "completed",
    EventType.DEPLOYMENT_FAILED: "failed",
    EventType.DEPLOYMENT_ROLLED_BACK: "rolled back",
    EventType.DEPLOYMENT_SUPERSEDED: "superseded",
    EventType.DEPLOYMENT_CANCELLED: "cancelled",
}
_SOON: Final = 10.0
"""So long after a step a deployment says at the latest what it waits for: a new leader observes for 5 s first."""


class AbsenceRules:
    """Everything that is broken is in `violations`. `bad`: the numbers of the versions that never start."""

    def __init__(self, run: Simulation, bad: set[int]) -> None:
        self._run = run
        self._state = run.controller.state
        self._bad = bad
        self.violations: list[str] = []
        self.seen: collections.Counter[str] = collections.Counter()
        self.groups = {name for name, _ in self._state.groups.items()}
        self._most = dict.fromkeys(self.groups, 0)
        """The most instances of each group that were ever wanted."""
        self._live = dict.fromkeys(self.groups, 0)
        self._by_hand = False
        self._silent: dict[str, float] = {}
        """Since when a deployment names no wait."""
        self._homes: dict[str, str] = {}
        """The node of each world."""
        run.controller.store.followers.append(self._follow)

    def _broken(self, rule: str, text: str) -> None:
        at = f"{self._run.clock.monotonic():g} s"
        self.violations.append(f"{rule} at {at}: {text}")

    def _group(self, name: str) -> GroupRecord:
        return self._state.groups.require(name).record

    def _instances(self, name: str) -> list[InstanceRecord]:
        return [each.record for each in self._state.instances.of_group(name)]

    def _states(self, name: str) -> list[str]:
        return [
            f"{each.id} {each.state} {each.wanted} on {each.node} by {each.revision}"
            for each in self._instances(name)
        ]

    @contextlib.contextmanager
    def by_hand(self) -> Iterator[None]:
        """An operator starts worlds, also more of them than are wanted."""
        self._by_hand = True
        try:
            yield
        finally:
            self._by_hand = False

    # after each commit

    def _follow(self, commit: Commit) -> None:
        for name in self.groups:
            self._most[name] = max(self._most[name], self._run.controller.wanted(name))
            if self._group(name).spec.static:
                self._worlds(name)
        for event in commit.events:
            if event.type in _ENDED:
                self.seen[_ENDED[event.type]] += 1
            if event.type is EventType.DEPLOYMENT_COMPLETED:
                self._completed(event)

    def _worlds(self, name: str) -> None:
        """No world more than were ever wanted, none is begun beside enough old ones, and each stays on its node."""
        records = self._instances(name)
        new = [each.id for each in records if each.id not in self._homes]
        if new and not self._by_hand and len(records) > self._run.controller.wanted(name):
            self._broken("new worlds", f"{new} beside enough: {self._states(name)}")
        if len(records) > self._most[name]:
            self._broken(
                "worlds", f"{len(records)}, and {self._most[name]} were wanted: {self._states(name)}"
            )
        alive = sum(live(each.state) for each in records)
        wanted = self._run.controller.wanted(name)
        if not self._by_hand and alive > max(self._live[name], wanted):
            self._broken("live worlds", f"{alive} of {wanted}: {self._states(name)}")
        self._live[name] = alive
        for each in records:
            if self._homes.setdefault(each.id, each.node) != each.node:
                self._broken("homes", f"{each.id} was on {self._homes[each.id]}, and is on {each.node}")

    def _completed(self, event: Event) -> None:
        """As many run by the revision as are wanted, less those that an operator keeps stopped, and one at least."""
        record = self._state.deployments.require(event.subject).record
        group, instances = self._group(record.group), self._instances(record.group)
        healthy = sum(self._is_healthy(record, each) for each in instances)
        held = sum(is_held(group, each) for each in instances)
        wanted = self._run.controller.wanted(record.group)
        if healthy < max(min(wanted, 1), wanted - held):
            self._broken(
                "completed",
                f"{record.id} with {healthy} of {wanted}, {held} held: {self._states(group.spec.name)}",
            )
        if self._is_bad(record.group, record.target):
            self._broken("completed", f"{record.id} brings a version that never starts")

    def _is_healthy(self, record: DeploymentRecord, instance: InstanceRecord) -> bool:
        ready = is_ready(instance) and not instance.warm and record.is_target(instance)
        return ready and self._run.nodes.serves(instance)

    def _is_bad(self, group: str, revision: int) -> bool:
        found = self._state.revisions.numbered(group, revision)
        version = found.spec.command[-1].rpartition("version-")[2] if found is not None else ""
        return version.isdecimal() and int(version) in self._bad

    # at each moment

    def look(self) -> None:
        """No id runs twice, and a deployment that goes on says what it waits for."""
        runs = collections.Counter(each.id for each in self._run.nodes.runs())
        if twice := [id for id, count in runs.items() if count > 1]:
            self._broken("twice", f"{twice}")
        now = self._run.clock.monotonic()
        for name in self.groups:
            id = self._group(name).deployment
            record = self._state.deployments.require(id).record if id else None
            if record is None or record.waiting:
                self._silent.pop(name, None)
            elif now - self._silent.setdefault(name, now) > _SOON:
                self._broken("waits", f"{record.id} is {record.state}, and names no wait")
            if record is not None and "to reconnect" in record.waiting:
                self.seen["moments of waiting for a node"] += 1
            if record is not None and record.state is DeploymentState.ROLLING_BACK:
                self._at_rest(record)

    def _at_rest(self, record: DeploymentRecord) -> None:
        """A deployment does not fail because of a node alone."""
        if all(each in record.outcome for each in ("no progress", "; waits for node", "to reconnect")):
            self._broken("clock", f"{record.id}: {record.outcome}")

    # at the end

    def at_the_end(self) -> None:
        """Every deployment has ended, and all that is wanted runs, by the revision of the last one."""
        for name in sorted(self.groups):
            group = self._group(name)
            last = self._state.deployments.of_group(name)[0].record
            if last.active:
                self._broken("end", f"{last.id} is {last.state}: {last.waiting}: {self._states(name)}")
            there = [each for each in self._instances(name) if live(each.state)]
            ready = [each for each in there if is_ready(each) and self._run.nodes.serves(each)]
            wanted = self._run.controller.wanted(name)
            if not len(there) == len(ready) == wanted:
                self._broken("end", f"{len(ready)} of {wanted}: {group.reason} {self._states(name)}")
            brought = last.target if last.state is DeploymentState.COMPLETED else last.stable
            if last.settled and any(each.revision < brought for each in there):
                self._broken("end", f"{last.id} is {last.state} at {brought}: {self._states(name)}")
