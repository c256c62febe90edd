"""Restarts that would end in a stop: whether instances could be placed again, before any of them is stopped."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.starts import release, settled_home
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import AfterStop, GroupRecord, InstanceRecord, Reservation
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import NodeState
from corral.domain.planning.counterfactuals import placement_counterfactuals
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.placement import Placement, counts_other_nodes
from corral.domain.planning.planner import place_one
from corral.domain.planning.refusals import PlacementRefusal, listed_refusals
from corral.domain.planning.start_requests import StartRequest
from corral.errors import Rejected

_REMEDIES: Final = 3
_TRIED: Final = 100
"""Each costs a search for a node, and all of them one turn of the event loop."""


class RestartRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that no node could take again."""

    instance: str
    refusal: PlacementRefusal
    remedies: tuple[str, ...]
    """What would let a node take it."""

    @property
    def reason(self) -> str:
        """Why it could not be started again."""
        if self.refusal.cause is not None:
            return self.refusal.summary
        return f"no node could take '{self.instance}' again ({listed_refusals(self.refusal.refusals)})"

    def error(self, subject: str, group: str) -> Rejected:
        """`subject`: what is not restarted."""
        if self.refusal.cause is not None:
            return self.refusal.error(group)
        helps = "; or ".join(self.remedies)
        return Rejected(
            self.refusal.code,
            f"{subject} is not restarted, and nothing is stopped: {self.reason}",
            hint=f"first: {helps}" if helps else self.refusal.summary,
        )


def refused_restart(
    ws: Workspace, group: GroupRecord, records: Iterable[InstanceRecord]
) -> RestartRefusal | None:
    """The first of these instances that no node could take again, were each stopped and started in turn: what it has
    itself is free for it. Of very many only some are tried, of every node first. Changes nothing."""
    mark = ws.mark()
    try:
        for record in _some(records):
            refused = _placed_again(ws, group, record)
            if refused is not None:
                return refused
    finally:
        ws.back_to(mark)
    return None


def _some(records: Iterable[InstanceRecord]) -> list[InstanceRecord]:
    """At most `_TRIED`: the first of each node, then the second, and so on."""
    passed: collections.Counter[str] = collections.Counter()
    turns = []
    for record in records:
        turns.append((passed[record.node], record))
        passed[record.node] += 1
    if len(turns) <= _TRIED:
        return [record for _, record in turns]
    return [record for _, record in sorted(turns, key=lambda turn: turn[0])[:_TRIED]]


def _placed_again(ws: Workspace, group: GroupRecord, record: InstanceRecord) -> RestartRefusal | None:
    ended = msgspec.structs.replace(
        record,
        state=InstanceState.STOPPED,
        home=settled_home(ws, record) if record.started_at else record.home,
    )
    mark, held = ws.mark(), ws.reservation(record.node, record.id)
    release(ws, record)
    ws.put_instance(ended)
    view = _StoppedView(ws, record.node)
    request = StartRequest.after(ended, reason="restart", prefer=record.node)
    found: Placement | PlacementRefusal | None = None
    if not counts_other_nodes(
        group.spec
    ):  # it stays where it was if it can: the others need not be looked at
        found = place_one(_StoppedView(ws, record.node, alone=True), group, request)
    if not isinstance(found, Placement):
        found = place_one(view, group, request)
    if isinstance(found, Placement):
        spec = view.as_started(group, request).spec
        if found.node == record.node and held is not None and _same_room(spec, held):
            ws.back_to(mark)  # it takes what it has: many changes make each look at the nodes slower
        else:
            _take(ws, spec, ended, found)
        return None
    if any(each.waits_for_report for each in found.refusals):
        return None  # it is known by the time that it has stopped
    remedies = placement_counterfactuals(view, group, request, found)
    return RestartRefusal(
        instance=record.id,
        refusal=found,
        remedies=tuple(each.condition for each in remedies if each.at is None)[:_REMEDIES],
    )


def _same_room(spec: GroupSpec, held: Reservation) -> bool:
    needs = spec.memory_mb, spec.cpu, sorted(spec.ports)
    return needs == (held.memory_mb, held.cpu, sorted(port.name for port in held.ports))


def _take(ws: Workspace, spec: GroupSpec, ended: InstanceRecord, found: Placement) -> None:
    """Let the next one see what this one takes."""
    started = msgspec.structs.replace(
        ended, state=InstanceState.SCHEDULED, wanted=Wanted.RUN, after_stop=AfterStop.END, node=found.node
    )
    ws.put_instance(started)
    reserved = Reservation(
        instance=ended.id,
        incarnation=ended.incarnation,
        memory_mb=spec.memory_mb,
        cpu=spec.cpu,
        ports=found.ports,
    )
    ws.set_reservation(found.node, ended.id, reserved)


class _StoppedView(WorkspaceView):
    """A transaction as of the moment at which a run has been stopped: its node is connected then."""

    def __init__(self, ws: Workspace, node: str, *, alone: bool = False) -> None:
        """`alone`: it is the only node."""
        super().__init__(ws)
        self._node = node
        self._alone = alone

    def nodes(self) -> Sequence[NodeView]:
        return [
            msgspec.structs.replace(view, state=NodeState.ONLINE)
            if view.id == self._node and view.state is not NodeState.REVOKED
            else view
            for view in super().nodes()
            if view.id == self._node or not self._alone
        ]
