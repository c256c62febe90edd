"""What a plan depends on beside the records: the players of instances, and the ends of waits by the monotonic clock.

The reconciler, dry runs and `why` ask the same object, so that they plan the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from corral.controller.instances.crash_loops import pause_left
from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.rollout_timers import RolloutTimers
from corral.controller.instances.serving_counts import stored_serving_count
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import DEPLOYMENTS, GROUPS, INSTANCES, NODES
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.drift import Drift
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    NOT_YET_RUNNING,
    GroupRecord,
    InstanceRecord,
    LastScale,
    ScaleFloor,
    is_draining,
    is_present,
    live,
)
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.domain.planning.holds import Players
from corral.domain.planning.player_loads import InstancePlayers, PlayerLoads
from corral.domain.planning.scaling import (
    GroupLoad,
    ScalingVerdict,
    load_need,
    load_verdict,
    wanted_count,
)
from corral.domain.planning.schedules import ScheduledValues, scheduled
from corral.domain.planning.signals import RolloutClock, Signals
from corral.domain.planning.stops import UNKNOWN_IS_EMPTY_SECONDS
from corral.domain.records import BootMoment
from corral.store.port import Commit
from corral.system.clock import Clock, boot_id

_PLAYERS_SECONDS: Final = 300.0
"""After so long a workload that has reported no players to this leader counts as one without any."""
_SAME: Final = dt.timedelta(seconds=1)
_LONGEST_FLOOR: Final = dt.timedelta(days=7)


Metric = Callable[[str, str], float | None]
"""The last value of a metric of an instance, by id and name; None: it was not reported in this run."""


class _Waits(NamedTuple):
    """The waits of one group by the monotonic clock, and the records that began them."""

    scale: LastScale | None
    floor: ScaleFloor | None
    scaled_at: float
    floor_ends: float


_NO_WAITS: Final = _Waits(scale=None, floor=None, scaled_at=0.0, floor_ends=0.0)


class GroupScaling(NamedTuple):
    """What decides about the number of a group's instances at one moment."""

    values: ScheduledValues
    wanted: int
    verdict: ScalingVerdict | None
    load: GroupLoad
    floor: ScaleFloor | None
    """An operator's lower bound, while it lasts."""
    cooldown_until: dt.datetime | None


class PlanSignals:
    """The signals of one term."""

    def __init__(
        self,
        state: ClusterState,
        *,
        clock: Clock,
        drift: DriftView,
        players: Players = lambda _: None,
        metric: Metric = lambda _id, _name: None,
    ) -> None:
        """`players`: the number of players of an instance, where it is known; `metric`: the last value of one of its
        metrics."""
        self._state = state
        self._drift = drift
        self._loads = PlayerLoads()
        self._waits: dict[str, _Waits] = {}
        self._away: dict[str, float] = {}
        """By node that is away, since when: its loss, or the beginning of this term if that came later."""
        self._complete: set[str] = set()
        """Connected nodes that have reported everything that they knew when they connected."""
        self.wake: Callable[[str, str], None] = lambda _group, _instance: None
        """Have a group checked because of the players of an instance."""
        self._clock = clock
        self._boot = boot_id()
        self._began = clock.monotonic()
        self._pauses: dict[str, tuple[dt.datetime, float]] = {}
        self.players = players
        self.metric = metric
        self.timers: Final = RolloutTimers()
        self.observing = False
        """The leader waits for the reports of nodes, and starts nothing until then."""

    @property
    def players_settled(self) -> bool:
        """Have workloads had the time to report their players to this leader?"""
        return self._clock.monotonic() >= self._began + _PLAYERS_SECONDS

    def counts_as_empty_at(self, instance: str) -> dt.datetime | None:
        """When an instance whose players are not known counts as empty; None: they are."""
        if self.players(instance) is not None:
            return None
        unknown = self._loads.unknown_seconds(instance, at=self._clock.monotonic())
        return self._clock.now() + dt.timedelta(seconds=max(0.0, UNKNOWN_IS_EMPTY_SECONDS - unknown))

    def note_pause(self, name: str) -> None:
        """Note when a group's pause ends, by the monotonic clock: the wall clock may be set meanwhile."""
        stored = self._state.groups.find(name)
        paused = stored.record.paused if stored is not None else None
        if stored is None or paused is None:
            self._pauses.pop(name, None)
        elif name not in self._pauses or self._pauses[name][0] != paused.until:
            boot = BootMoment(boot=self._boot, seconds=self._clock.boottime())
            left = pause_left(stored.record, now=self._clock.now(), boot=boot)
            self._pauses[name] = paused.until, self._clock.monotonic() + left

    def pause_deadlines(self) -> Mapping[str, float]:
        """By paused group, the end of its pause on the monotonic clock."""
        return {name: deadline for name, (_, deadline) in self._pauses.items()}

    def pause_over(self, name: str) -> bool:
        """Is its time over, or its cause: is the next start made of something else than those that failed?"""
        self.note_pause(name)
        pause = self._pauses.get(name)
        return pause is None or self._clock.monotonic() >= pause[1] or self._drift.outdates_failures(name)

    def pause_until(self, name: str) -> dt.datetime | None:
        """When the pause ends, as the wall clock is now set; None: the group is not paused."""
        self.note_pause(name)
        pause = self._pauses.get(name)
        if pause is None:
            return None
        until, deadline = pause
        ends = self._clock.now() + dt.timedelta(seconds=max(0.0, deadline - self._clock.monotonic()))
        return until if abs(ends - until) < _SAME else ends

    # the load

    def begin(self) -> None:
        """Read the state before the first commit of this term."""
        for name, _ in self._state.groups.items():
            self._note_group(name)
        for stored in self._state.instances:
            self._note_instance(stored.record.id)
        for node, _ in self._state.nodes.items():
            self._note_node(node)

    def follow(self, commit: Commit) -> None:
        """Note the groups and instances that a commit changed."""
        for change in commit.changes:
            if change.collection == GROUPS.name:
                self._note_group(change.id)
            elif change.collection == INSTANCES.name:
                self._note_instance(change.id)
            elif change.collection == NODES.name:
                self._note_node(change.id)
            elif change.collection == DEPLOYMENTS.name and change.body is None:
                self.timers.forget(change.id)

    def players_changed(self, *ids: str) -> None:
        """The numbers of players of some instances of one group were reported, or are not known any more."""
        stored = self._state.instances.find(ids[0])
        if stored is None:
            return
        group = self._state.groups.find(stored.record.group)
        values = self._values_by_players(group.record.spec) if group is not None else None
        before = self._needs(group.record.spec, values) if group is not None else None
        turned = [id for id in ids if self._note_instance(id)]
        if group is not None and (turned or self._needs(group.record.spec, values) != before):
            self.wake(group.record.spec.name, turned[0] if turned else ids[0])

    def _values_by_players(self, spec: GroupSpec) -> ScheduledValues | None:
        """The present values of a group whose number follows its players; None: it does not."""
        if spec.scaling.mode is not ScalingMode.DYNAMIC and not spec.schedules:
            return None
        values = scheduled(spec, self._clock.now())
        return values if values.mode is ScalingMode.DYNAMIC else None

    def _needs(self, spec: GroupSpec, values: ScheduledValues | None) -> tuple[int, int] | None:
        """The numbers of instances that the players need at least and at most, where that decides."""
        if values is None:
            return None
        load = self._loads.load(spec.name, at=self._clock.monotonic())
        most = load.players + load.unknown * spec.max_players
        return load_need(spec, values, load.players), load_need(spec, values, most)

    def _note_group(self, name: str) -> None:
        stored, at = self._state.groups.find(name), self._clock.monotonic()
        if stored is None:
            self._loads.forget_group(name)
            self._waits.pop(name, None)
            return
        spec = stored.record.spec
        window = float(spec.scaling.window_seconds)
        self._loads.set_group(name, capacity=spec.max_players, window=window, at=at)
        self.waited(stored.record)

    # nodes

    def _note_node(self, id: str) -> None:
        """Note since when a node is away, by the monotonic clock: the wall clock may be set meanwhile."""
        stored = self._state.nodes.find(id)
        if stored is None or stored.record.state is NodeState.ONLINE:
            self._away.pop(id, None)
        else:
            self._away.setdefault(id, self._clock.monotonic())
        if stored is None or id in self._away:
            self._complete.discard(id)

    def note_inventory(self, node: str) -> None:
        """A connected node has reported everything that it knew."""
        self._complete.add(node)

    def away_since(self, node: str) -> float | None:
        return self._away.get(node)

    def inventory_complete(self, node: str) -> bool:
        return node in self._complete

    def _note_instance(self, id: str) -> bool:
        stored = self._state.instances.find(id)
        record = stored.record if stored is not None else None
        self.timers.note_instance(id, record, at=self._clock.monotonic())
        seen = _seen(record, self.players) if record is not None and live(record.state) else None
        return self._loads.set_instance(id, seen, at=self._clock.monotonic())

    def waited(self, group: GroupRecord) -> _Waits:
        """The waits that the record of a group begins, by the monotonic clock. Noted when the record is stored, for the
        wall clock may be set later. What began in the future begins now."""
        scale, floor = group.last_scale, group.floor
        made = self._waits.get(group.spec.name, _NO_WAITS)
        if (made.scale, made.floor) == (scale, floor):
            return made
        now, at = self._clock.now(), self._clock.monotonic()
        if made.scale != scale:
            age = max(0.0, (now - scale.at).total_seconds()) if scale is not None else 0.0
            made = made._replace(scale=scale, scaled_at=at - age)
        if made.floor != floor:
            lasts = min(_LONGEST_FLOOR, floor.until - now) if floor is not None else dt.timedelta()
            made = made._replace(floor=floor, floor_ends=at + lasts.total_seconds())
        stored = self._state.groups.find(group.spec.name)
        if stored is not None and stored.record is group:  # and none that may never be stored
            self._waits[group.spec.name] = made
        return made

    def rollout_clock(self, deployment: DeploymentRecord, *, at: float) -> RolloutClock:
        """The times of a deployment; none passes while the leader observes."""
        stored = self._state.deployments.find(deployment.id)
        if self.observing or stored is None or stored.record is not deployment:
            return RolloutClock()
        return self.timers.clock(deployment, at=at)

    def now(self) -> SignalsNow:
        """The signals of this moment: they do not change during a pass."""
        return SignalsNow(self, self._loads, self._drift, at=self._clock.monotonic())

    def wanted(self, group: GroupRecord) -> int:
        """How many instances of a group are to serve now."""
        return self.scaling(group).wanted

    def scaling(self, group: GroupRecord) -> GroupScaling:
        """What decides about the number of a group's instances now."""
        counts, now = self._state.instances.counts(group.spec.name), self.now()
        values = scheduled(group.spec, self._clock.now())
        serving = stored_serving_count(self._state, group.spec.name)
        verdict = load_verdict(group, values, now, serving=serving, starting=counts.starting)
        left = now.cooldown_left(group)
        return GroupScaling(
            values=values,
            wanted=wanted_count(group, values, verdict),
            verdict=verdict,
            load=now.load(group),
            floor=group.floor if now.floor(group) else None,
            cooldown_until=self._clock.now() + dt.timedelta(seconds=left) if left else None,
        )

    def view(self, ws: Workspace) -> WorkspaceView:
        """The transaction as the planner sees it at this moment."""
        return WorkspaceView(ws, self.now())


class SignalsNow(Signals):
    """The signals of one moment."""

    def __init__(self, owner: PlanSignals, loads: PlayerLoads, drift: DriftView, *, at: float) -> None:
        self._owner = owner
        self._loads = loads
        self._drift = drift
        self._at = at
        self.players_settled = owner.players_settled

    def pause_over(self, group: str) -> bool:
        return self._owner.pause_over(group)

    def players(self, instance: str) -> int | None:
        return self._owner.players(instance)

    def idle_seconds(self, instance: str) -> float | None:
        return self._loads.idle_seconds(instance, at=self._at)

    def unknown_seconds(self, instance: str) -> float:
        return self._loads.unknown_seconds(instance, at=self._at)

    def is_silent(self, instance: str) -> bool:
        return self._loads.is_silent(instance, at=self._at)

    def ready_seconds(self, instance: str) -> float:
        return self._owner.timers.ready_seconds(instance, ready=True, at=self._at)

    def unready_seconds(self, instance: str) -> float:
        return self._owner.timers.ready_seconds(instance, ready=False, at=self._at)

    def away_seconds(self, node: str) -> float | None:
        since = self._owner.away_since(node)
        return None if since is None else self._at - since

    def inventory_complete(self, node: str) -> bool:
        return self._owner.inventory_complete(node)

    def load(self, group: GroupRecord) -> GroupLoad:
        return self._loads.load(group.spec.name, at=self._at)

    def floor(self, group: GroupRecord) -> int:
        return group.floor.count if group.floor is not None and self.floor_left(group) else 0

    def floor_left(self, group: GroupRecord) -> float:
        return max(0.0, self._owner.waited(group).floor_ends - self._at) if group.floor is not None else 0.0

    def cooldown_left(self, group: GroupRecord) -> float:
        if group.last_scale is None:
            return 0.0
        ends = self._owner.waited(group).scaled_at + group.spec.scaling.cooldown_seconds
        return max(0.0, ends - self._at)

    def draining_seconds(self, instance: str) -> float:
        return self._owner.timers.draining_seconds(instance, at=self._at)

    def metric(self, instance: str, name: str) -> float | None:
        return self._owner.metric(instance, name)

    def rollout_clock(self, deployment: DeploymentRecord) -> RolloutClock:
        return self._owner.rollout_clock(deployment, at=self._at)

    def outdated(self, record: InstanceRecord) -> bool:
        return self._drift.of(record) is Drift.OUTDATED


def _seen(record: InstanceRecord, players: Players) -> InstancePlayers:
    """The players of a live instance. One that does not run yet has none; of one whose node is away they are not known."""
    runs, watched = record.state not in NOT_YET_RUNNING, record.state is not InstanceState.OFFLINE
    reported = players(record.id) if runs and watched else None
    return InstancePlayers(
        group=record.group,
        run=record.incarnation,
        serves=is_present(record) and not record.warm,
        retired=is_draining(record) and bool(record.retired_by),
        watched=watched,
        runs=runs,
        players=reported if runs else 0,
        counted=reported is not None,
        silent=record.state is InstanceState.SCHEDULED and not record.restarts and not record.adopted,
    )
