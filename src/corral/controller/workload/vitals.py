"""Transient values of running instances: players, metrics, the progress of a start.

They are kept only in memory and are reported again by nodes and workloads after a change of leaders. Every
value belongs to one start of an instance and is dropped when that start ends, so the number is bounded by
what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.domain.groups.instance_records import InstanceRecord, is_ready, live
from corral.domain.ids import Incarnation, same_start
from corral.domain.instance_states import InstanceState
from corral.errors import Code, Rejected
from corral.store.port import Commit

MAX_METRICS: Final = 64
"""The most metrics kept of one instance; this is no metrics database."""
METRIC_SECONDS: Final = 60.0
"""A value that is older says nothing about now."""
_PREPARED: Final = (InstanceState.SCHEDULED, InstanceState.PREPARING)
"""States in which a start has stages."""


class Vital(msgspec.Struct, frozen=True, kw_only=True):
    """The latest values of one start. None: not reported."""

    incarnation: int
    ready: bool = False
    """Reported by the workload itself."""
    players: int | None = None
    counted_by_node: bool = False
    """The number of players is from a probe of the node, and not from the workload."""
    players_before: int | None = None
    """While its node is out of reach: what the workload had reported, if there were any."""
    max_players: int | None = None
    metrics: dict[str, float] = {}
    reported_at: dict[str, float] = {}
    """When each of them was reported, by the monotonic clock."""
    stage: str = ""
    """The node's present stage of preparing it."""
    waits_for: str = ""
    """The condition that this stage (without one: readiness) waits for, as the node reported it; empty for nothing.
    """


class Vitals:
    """The latest values of every live instance. Reports about another start than the present one are dropped:
    they are late, and about the wrong run."""

    def __init__(self, state: ClusterState, *, monotonic: Callable[[], float]) -> None:
        self._state = state
        self._monotonic = monotonic
        self._known: dict[str, Vital] = {}
        self.emptied: Callable[[str], None] = lambda _: None
        """Called with an instance that has no players any more."""
        self.players_changed: Callable[[str], None] = lambda _: None
        """Called with the id of an instance whose number of players is another than before."""

    def __len__(self) -> int:
        return len(self._known)

    def find(self, id: str) -> Vital | None:
        return self._known.get(id)

    def players_of(self, id: str) -> int | None:
        """The number of players of an instance; None: it was not reported in this run."""
        found = self._known.get(id)
        return found.players if found is not None else None

    def metric_of(self, id: str, name: str) -> float | None:
        """The present value of a metric of an instance; None: it was not reported in this run, or not for a while."""
        found = self._known.get(id)
        if found is None or name not in found.metrics:
            return None
        late = self._monotonic() - found.reported_at[name] > METRIC_SECONDS
        return None if late else found.metrics[name]

    def all_players(self) -> list[tuple[str, str, int]]:
        """Group, instance and number of players, of all that reported it."""
        known = ((id, vital.players) for id, vital in self._known.items() if vital.players is not None)
        found = ((self._state.instances.find(id), id, players) for id, players in known)
        return [(stored.record.group, id, players) for stored, id, players in found if stored is not None]

    def ready(self, id: str, incarnation: int) -> None:
        self._change(id, incarnation, ready=True)

    def not_ready(self, id: str, incarnation: int) -> None:
        self._change(id, incarnation, ready=False)

    def stage(self, id: str, incarnation: int, stage: str, waits_for: str = "") -> None:
        """The stage a start has reached, and what it waits for there; no stage: it runs, and is not ready
        yet."""
        self._change(id, incarnation, stage=stage, waits_for=waits_for)

    def players(
        self, id: str, incarnation: int, *, count: int | None, maximum: int, by_node: bool = False
    ) -> None:
        """The number of players; None: its node does not know it any more."""
        before = self.players_of(id)
        self._change(id, incarnation, players=count, max_players=maximum, counted_by_node=by_node)
        if before != 0 and self.players_of(id) == 0:
            self.emptied(id)
        if self.players_of(id) != before:
            self.players_changed(id)

    def players_reported_before(self, id: str, incarnation: int, *, count: int, maximum: int) -> None:
        """What the workload reported before this session of its node, as the node has kept it. A number that is known
        here is newer; and that there were none says nothing about now."""
        if count and self.players_of(id) is None:
            self.players(id, incarnation, count=count, maximum=maximum)

    def node_lost_count(self, id: str, incarnation: int) -> None:
        """A node has no number of players for this run: one that the node had counted is not true any more. What the
        workload reported itself stays."""
        known = self._known.get(id)
        if known is not None and known.counted_by_node and known.players is not None:
            self.players(id, incarnation, count=None, maximum=known.max_players or 0, by_node=True)

    def metrics(self, id: str, incarnation: int, values: Mapping[str, float]) -> None:
        """Add these metrics to the known ones. INVALID_FIELD when there are too many."""
        vital = self._vital(id, incarnation)
        if vital is None:
            return
        merged = {**vital.metrics, **values}
        if len(merged) > MAX_METRICS:
            raise Rejected(
                Code.INVALID_FIELD,
                f"instance '{id}' would have {len(merged)} figures, and may have {MAX_METRICS}",
                hint="send fewer names; each keeps its latest value",
            )
        at = {**vital.reported_at, **dict.fromkeys(values, self._monotonic())}
        self._known[id] = msgspec.structs.replace(vital, metrics=merged, reported_at=at)

    def follow(self, commit: Commit) -> None:
        """Drop the values of runs that a commit has ended. Never raises: it runs while memory follows the
        store."""
        for change in commit.changes:
            if change.collection == INSTANCES.name and change.id in self._known:
                self._review(change.id)

    def resync(self) -> None:
        """Drop the values of all ended runs."""
        for id in list(self._known):
            self._review(id)

    def _review(self, id: str) -> None:
        vital = self._known[id]
        record = self._living(id, vital.incarnation)
        if record is None or record.incarnation != vital.incarnation:
            del self._known[id]
        elif record.state is InstanceState.OFFLINE and vital.players is not None:
            # Nobody can report a change. What a probe of its node counted is unknown until the node sends it again, and
            # that there were no players says nothing about those who came meanwhile.
            before = None if vital.counted_by_node else vital.players or None
            self._known[id] = msgspec.structs.replace(vital, players=None, players_before=before)
        elif record.state is not InstanceState.OFFLINE and vital.players_before is not None:
            # No newer report was accepted, and there may be players as before: the workload repeats what was refused.
            self._known[id] = msgspec.structs.replace(vital, players_before=None)
            if vital.players is None:
                self._known[id] = msgspec.structs.replace(
                    self._known[id], players=vital.players_before, counted_by_node=False
                )
                self.players_changed(id)
        elif (vital.stage and record.state not in _PREPARED) or (vital.waits_for and is_ready(record)):
            self._known[id] = msgspec.structs.replace(vital, stage="", waits_for="")

    def _change(self, id: str, incarnation: int, **fields: object) -> None:
        vital = self._vital(id, incarnation)
        if vital is not None:
            self._known[id] = msgspec.structs.replace(vital, **fields)

    def _vital(self, id: str, incarnation: int) -> Vital | None:
        """The values so far; None when this start is not the present one, or has ended."""
        record = self._living(id, incarnation)
        if record is None:
            return None
        known = self._known.get(id)
        if known is None or known.incarnation != record.incarnation:
            # A restart by the node is another process: it has no players yet, and is not ready.
            return Vital(incarnation=record.incarnation)
        return known

    def _living(self, id: str, incarnation: int) -> InstanceRecord | None:
        stored = self._state.instances.find(id)
        if stored is None or not live(stored.record.state):
            return None
        same = same_start(stored.record.incarnation, Incarnation(incarnation))
        return stored.record if same else None
