"""A transaction as the planner sees it: the stored state with the changes that the transaction makes."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from corral.controller.instances.node_candidates import UNPREPARED
from corral.controller.instances.revisions import find_revision, resolved_by
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, is_present, live
from corral.domain.groups.plan_resolution import ResolvedPlan, check_instance_variables
from corral.domain.groups.revisions import RevisionRecord, started_spec
from corral.domain.ids import InstanceId, instance_number
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.drain_progress import drain_text
from corral.domain.planning.elsewhere import is_movable
from corral.domain.planning.group_plans import is_held
from corral.domain.planning.node_loss import grace_seconds
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.signals import Signals
from corral.domain.planning.start_requests import StartRequest, revision_for_start
from corral.domain.planning.tallies import GroupTally
from corral.errors import Rejected


class WorkspaceView:
    """The `PlanView` of a transaction."""

    def __init__(self, ws: Workspace, signals: Signals | None = None, *, without: str = "") -> None:
        """`without`: an instance that is about to get another run in place of its present one."""
        self._ws = ws
        self._signals = signals or Signals()
        self.players_settled = self._signals.players_settled
        self.pause_over = self._signals.pause_over
        self.players = self._signals.players
        self.idle_seconds = self._signals.idle_seconds
        self.unknown_seconds = self._signals.unknown_seconds
        self.load = self._signals.load
        self.floor = self._signals.floor
        self.floor_left = self._signals.floor_left
        self.cooldown_left = self._signals.cooldown_left
        self.outdated = self._signals.outdated
        self.ready_seconds = self._signals.ready_seconds
        self.unready_seconds = self._signals.unready_seconds
        self.draining_seconds = self._signals.draining_seconds
        self.metric = self._signals.metric
        self.rollout_clock = self._signals.rollout_clock
        self.is_silent = self._signals.is_silent
        self.inventory_complete = self._signals.inventory_complete
        self._without = ws.instance(without) if without else None
        self._nodes: list[NodeView] | None = None
        self._plans: dict[tuple[str, int], tuple[GroupSpec, ResolvedPlan | PlacementRefusal]] = {}
        """By group and revision."""
        self._movable: dict[str, bool] = {}
        """By node that is emptied."""
        self._started: dict[tuple[str, int], tuple[GroupRecord, GroupRecord]] = {}

    @property
    def now(self) -> dt.datetime:
        return self._ws.now

    @property
    def steady(self) -> dt.datetime:
        return self._ws.steady

    @property
    def cpu_overcommit(self) -> float:
        return self._ws.cpu_overcommit

    def group(self, name: str) -> GroupRecord | None:
        return self._ws.group(name)

    def tally(self, group: str) -> GroupTally:
        return self._ws.tally(group)

    def instances_of(self, group: str) -> Sequence[InstanceRecord]:
        return self._ws.instances_of(group)

    def deployment(self, id: str) -> DeploymentRecord | None:
        return self._ws.deployment(id)

    def is_closed(self, node: str) -> bool:
        record = self._ws.node(node)
        return record is None or record.admission is not Admission.OPEN

    def is_online(self, node: str) -> bool:
        record = self._ws.node(node)
        return record is not None and record.state is NodeState.ONLINE

    @property
    def emptied(self) -> frozenset[str]:
        return self._ws.emptied

    def has_movable(self, node: str) -> bool:
        if node not in self._movable:  # once for all instances there, of all groups
            names = {each.group for each in self._ws.on_node(node) if live(each.state)}
            self._movable[node] = any(is_movable(self, name, node) for name in names)
        return self._movable[node]

    def drain_decision(self, node: str) -> str:
        record = self._ws.node(node)
        return record.drain.decision if record is not None and record.drain is not None else ""

    def drain_text(self, node: str) -> str:
        return drain_text(self._ws.require_node(node))

    def grace_left(self, spec: GroupSpec, node: str) -> float | None:
        away, stored = self._signals.away_seconds(node), self._ws.state.nodes.find(node)
        if away is None or stored is None:
            return None
        grace = grace_seconds(spec.disconnect, stored.record.reconnect_max_seconds)
        return None if grace is None else grace - away

    def unreadable_of(self, group: str) -> Sequence[str]:
        return self._ws.unreadable_of(group)

    def nodes(self) -> Sequence[NodeView]:
        views, own = self._ws.nodes(), self._without
        if own is None or own.state not in UNPREPARED:
            return views
        group = self._ws.group(own.group)
        disk = group.spec.disk_mb if group is not None else 0
        return [
            msgspec.structs.replace(view, preparing_disk_mb=max(0, view.preparing_disk_mb - disk))
            if view.id == own.node
            else view
            for view in views
        ]

    def runs_by_node(self, group: str) -> Mapping[str, int]:
        runs, own = self._ws.runs_by_node(group), self._without
        if own is None or own.group != group or not is_present(own):
            return runs
        return {node: count - (node == own.node) for node, count in runs.items()}

    def start_requests(self, group: GroupRecord, *, reason: str) -> Iterator[StartRequest]:
        return next_requests(self._ws, group, reason=reason)

    def unstartable(self, group: GroupRecord, request: StartRequest) -> PlacementRefusal | None:
        """Why there can be no plan for such a run, whatever the nodes are. What a plan draws by chance is drawn when
        the run is started: here the first of each is taken."""
        if request.claimed_by:
            return PlacementRefusal.claimed(request.id, request.claimed_by)
        key = group.spec.name, revision_for_start(group, request)
        found = self._plans.get(key)
        if found is None or found[0] is not group.spec:
            found = self._plans[key] = group.spec, self._resolved(group.spec, key[1])
        resolved = found[1]
        if isinstance(resolved, PlacementRefusal):
            return resolved
        try:
            check_instance_variables(resolved.plan, request.variables)
        except Rejected as error:
            return PlacementRefusal.without_plan(error)
        return None

    def _resolved(self, spec: GroupSpec, revision: int) -> ResolvedPlan | PlacementRefusal:
        try:
            return resolved_by(self._ws, spec, revision, draw=lambda _: 0)
        except Rejected as error:
            return PlacementRefusal.without_plan(error)

    def revision(self, group: str, number: int) -> RevisionRecord | None:
        return find_revision(self._ws, group, number)

    def as_started(self, group: GroupRecord, request: StartRequest) -> GroupRecord:
        number = revision_for_start(group, request)
        if not number:
            return group
        key = group.spec.name, number
        known = self._started.get(key)
        if known is None or known[0] is not group:
            revision = self.revision(*key)
            spec = started_spec(group.spec, revision) if revision is not None else group.spec
            known = self._started[key] = group, msgspec.structs.replace(group, spec=spec)
        return known[1]

    def home_of(self, group: GroupRecord, request: StartRequest) -> str:
        return home_of(self._ws, group, request)

    def chosen_node(self, request: StartRequest) -> str | None:
        """The node that the instance is bound to, unless it was removed: then nothing would ever start there."""
        known = request.only is not None and self._ws.state.nodes.find(request.only) is not None
        return request.only if known else None


def plan_run(
    ws: Workspace, group: GroupRecord, variables: Mapping[str, str], revision: int = 0
) -> ResolvedPlan | PlacementRefusal:
    """The plan of a run with these variables of its own, as of now; changes nothing. `revision`: instead of the present
    document."""
    try:
        resolved = resolved_by(ws, group.spec, revision)
        check_instance_variables(resolved.plan, variables)
    except Rejected as error:
        return PlacementRefusal.without_plan(error)
    return resolved


def home_of(ws: Workspace, group: GroupRecord, request: StartRequest) -> str:
    """The node of the instance's directory, as long as it is a member: on another node the instance would
    start with an empty directory."""
    kept = group.spec.static and ws.state.nodes.find(request.home) is not None
    return request.home if kept else ""


def next_requests(
    ws: Workspace, group: GroupRecord, *, reason: str, by_hand: bool = False
) -> Iterator[StartRequest]:
    """The next instances of a group. Those of a static group are its ordinals: the lowest that does not run
    comes first, under its own id, so that each directory is used again. Of records that an earlier group of
    the same name left, only the place of the directory is used. Instances that an operator stopped are
    started only `by_hand`."""
    if not group.spec.static:
        yield from (StartRequest(id=id, reason=reason) for id in free_instance_ids(ws, group.spec))
        return
    for each in _ordinals(ws, group, reason=reason):
        record = ws.instance(each.id)
        if by_hand or record is None or not is_held(group, record):
            yield _unless_claimed(ws, each)


def free_instance_ids(ws: Workspace, spec: GroupSpec) -> Iterator[InstanceId]:
    """The ids of a group in ascending order, without those that a record has or a node lists as running. A static name
    is free again when its run has ended; its record keeps the earlier runs."""
    unreadable = ws.unreadable_of(spec.name)
    return (
        InstanceId(id)
        for id in _ordinal_ids(ws, spec, ended=False)
        if id not in unreadable and not ws.claimant(id)
    )


def _ordinal_ids(ws: Workspace, spec: GroupSpec, *, ended: bool) -> Iterator[str]:
    """The ids of a group, without an end. The first are its `static_names` that do not run, the others `GROUP-N` in
    ascending order, those that no record has; with `ended` also those whose run has ended."""
    for id in spec.static_names:
        record = ws.instance(id)
        if record is None or (record.group == spec.name and not _may_run(ws, record, given_up=not ended)):
            yield id
    first = len(spec.static_names) + 1
    changed = (instance_number(id) for id in ws.changed_instances())
    own = sorted(number for prefix, number in changed if number >= first and prefix == spec.name)
    stored = ws.state.instances.numbers(spec.name, live=ended).free(first)
    for number, _ in itertools.groupby(heapq.merge(own, stored)):
        record = ws.instance(id := f"{spec.name}-{number}")
        if record is None or (ended and not live(record.state)):
            yield id


def _may_run(ws: Workspace, record: InstanceRecord, *, given_up: bool) -> bool:
    """May a process of it exist? `given_up`: also where its node was removed before its end was known."""
    unknown = given_up and record.exit is not None and not record.exit.known
    return live(record.state) or (unknown and ws.state.nodes.find(record.node) is None)


def _ordinals(ws: Workspace, group: GroupRecord, *, reason: str) -> Iterator[StartRequest]:
    unreadable = ws.unreadable_of(group.spec.name)
    for id in _ordinal_ids(ws, group.spec, ended=True):
        if id in unreadable:
            continue  # it may be running
        record = ws.instance(id)
        if record is None:
            yield StartRequest(id=InstanceId(id), reason=reason)
        elif record.created_at < group.created_at:
            yield StartRequest(id=record.id, reason=reason, home=record.home)
        else:
            yield StartRequest.after(record, reason=reason)


def _unless_claimed(ws: Workspace, request: StartRequest) -> StartRequest:
    """Hold back the start where a node lists a run of it and its directory may be on that node. An instance
    whose directory is known to be on another node is not held back: otherwise any node could prevent any
    instance from starting."""
    node = ws.claimant(request.id)
    if not node or request.home not in ("", node):
        return request
    return msgspec.structs.replace(request, claimed_by=node)
