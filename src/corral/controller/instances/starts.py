"""A start as one transaction: record, reservation, plan, decision and event, or none of them."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.controller.state.instance_mirror import number_of
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import (
    GroupRecord,
    InstanceRecord,
    LeasedPort,
    Reservation,
    StartFailure,
    earlier_starts,
    live,
)
from corral.domain.groups.plan_resolution import ResolvedPlan, check_instance_variables
from corral.domain.ids import DecisionId, GroupName, InstanceId, NodeId, same_start
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.node_usage import port_keys
from corral.domain.planning.node_views import BUSY, refused_ports
from corral.domain.planning.placement import Placement, PlacementRefusal, place
from corral.errors import Rejected

_EXTENSIONS: Final = 5
"""The most extensions without a contribution that are recorded with a start; the limit leaves room for nodes.
"""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a start before it is placed."""

    id: InstanceId
    kind: DecisionKind = DecisionKind.START
    reason: str
    only: str | None = None
    avoid: str | None = None
    prefer: str | None = None
    attempts: int = 0
    failure: StartFailure | None = None
    created_at: dt.datetime | None = None
    """When the first run under this id was created; None: this is the first."""
    variables: Mapping[str, str] = {}
    """The instance's own variables, a layer above the group's."""
    pinned: bool = False
    """The operator chose the node."""
    home: str = ""
    """The node with the directory of a static instance that has run before."""
    last_ports: tuple[LeasedPort, ...] = ()
    """The ports of the previous run; a static instance gets them again while they are free."""
    claimed_by: str = ""
    """A node that lists a run of this id. The instance is not started as long as the node does."""
    carries_on: str = ""
    """The id of an earlier request that this start completes: a restart, once its stop is done."""

    @classmethod
    def after(cls, record: InstanceRecord, **facts: Any) -> StartRequest:
        """A further run under the id of an earlier one, with what belongs to the id."""
        return cls(
            id=record.id,
            created_at=record.created_at,
            variables=record.variables,
            pinned=record.pinned,
            home=record.home,
            last_ports=record.ports,
            **{"only": record.node if record.pinned else None, **facts},
        )


def free_instance_ids(ws: Workspace, group: GroupName) -> Iterator[InstanceId]:
    """The ids `GROUP-N` in ascending order, without those that a record has or a node lists as running."""
    unreadable = ws.unreadable_of(group)
    return (
        InstanceId(id)
        for id in _ordinal_ids(ws, group, ended=False)
        if id not in unreadable and not ws.claimant(id)
    )


def _ordinal_ids(ws: Workspace, group: str, *, ended: bool) -> Iterator[str]:
    """The ids `GROUP-N` that no record has, in ascending order, without an end; with `ended` also those whose run has
    ended."""
    changed = (number_of(id) for id in ws.changed_instances())
    own = sorted(number for prefix, number in changed if number and prefix == group)
    stored = ws.state.instances.numbers(group, live=ended).free(1)
    for number, _ in itertools.groupby(heapq.merge(own, stored)):
        record = ws.instance(id := f"{group}-{number}")
        if record is None or (ended and not live(record.state)):
            yield id


def next_requests(
    ws: Workspace, group: GroupRecord, *, reason: str, by_hand: bool = False
) -> Iterator[StartRequest]:
    """The next instances of a group. Those of a static group are its ordinals: the lowest that does not run
    comes first, under its own id, so that each directory is used again. Of records that an earlier group of
    the same name left, only the place of the directory is used. Instances that an operator stopped are
    started only `by_hand`."""
    name = group.spec.name
    if not group.spec.static:
        yield from (StartRequest(id=id, reason=reason) for id in free_instance_ids(ws, GroupName(name)))
        return
    for each in _ordinals(ws, group, reason=reason):
        record = ws.instance(each.id)
        if by_hand or record is None or not is_held(group, record):
            yield _unless_claimed(ws, each)


def is_held(group: GroupRecord, record: InstanceRecord) -> bool:
    """Has the instance ended and been held stopped by an operator? Records that an earlier group of the same
    name left do not count."""
    ours = group.spec.static and record.created_at >= group.created_at
    return ours and bool(record.held) and not live(record.state)


def _unless_claimed(ws: Workspace, request: StartRequest) -> StartRequest:
    """Hold back the start where a node lists a run of it and its directory may be on that node. An instance
    whose directory is known to be on another node is not held back: otherwise any node could prevent any
    instance from starting."""
    node = ws.claimant(request.id)
    if not node or request.home not in ("", node):
        return request
    return msgspec.structs.replace(request, claimed_by=node)


def _ordinals(ws: Workspace, group: GroupRecord, *, reason: str) -> Iterator[StartRequest]:
    name = group.spec.name
    unreadable = ws.unreadable_of(name)
    for id in _ordinal_ids(ws, name, ended=True):
        if id in unreadable:
            continue  # it may be running
        record = ws.instance(id)
        if record is None:
            yield StartRequest(id=InstanceId(id), reason=reason)
        elif record.created_at < group.created_at:
            yield StartRequest(id=record.id, reason=reason, home=record.home)
        else:
            yield StartRequest.after(record, reason=reason)


def start_run(ws: Workspace, group: GroupRecord, request: StartRequest) -> InstanceRecord | PlacementRefusal:
    """Plan, place and reserve a new run. Without a plan or a node nothing is changed."""
    if request.claimed_by:
        return PlacementRefusal.claimed(request.id, request.claimed_by)
    resolved = plan_run(ws, group, request.variables)
    if isinstance(resolved, PlacementRefusal):
        return resolved
    home = home_of(ws, group, request)
    only = home or _chosen(ws, request)
    found = place(
        group.spec,
        ws.nodes(),
        only=only,
        avoid=request.avoid,
        prefer=request.prefer,
        last_ports=request.last_ports if group.spec.static else (),
    )
    if isinstance(found, PlacementRefusal):
        return found.at_home(request.id, home) if home else found
    try:
        incarnation = ws.next_incarnation()
    except Rejected as error:  # the counter is exhausted: the other folded changes must not be lost
        return PlacementRefusal.without_number(error)
    decision = _decide(ws, group, request, resolved, found)
    record = InstanceRecord(
        id=request.id,
        group=GroupName(group.spec.name),
        node=NodeId(found.node),
        incarnation=incarnation,
        serial=ws.ledger(found.node).serial + 1,
        state=InstanceState.SCHEDULED,
        wanted=Wanted.RUN,
        ports=found.ports,
        memory_mb=group.spec.memory_mb,
        plan_hash=resolved.record.hash,
        decision=decision,
        reason=request.reason,
        created_at=request.created_at or ws.now,
        start_failure=request.failure,
        attempts=request.attempts,
        pinned=request.pinned and only is not None,
        variables=dict(request.variables),
        home=home or _world_left(ws, request),
        earlier=earlier_starts(ws.instance(request.id)),
        request=ws.request or request.carries_on,
    )
    ws.put_plan(resolved.record)
    _schedule(ws, record, cpu=group.spec.cpu)
    return record


def plan_run(
    ws: Workspace, group: GroupRecord, variables: Mapping[str, str]
) -> ResolvedPlan | PlacementRefusal:
    """The plan of a run with these variables of its own, as of now; changes nothing."""
    try:
        resolved = ws.resolve(group.spec)
        check_instance_variables(resolved.plan, variables)
    except Rejected as error:
        return PlacementRefusal.without_plan(error)
    return resolved


def _decide(
    ws: Workspace, group: GroupRecord, request: StartRequest, resolved: ResolvedPlan, found: Placement
) -> DecisionId:
    """Record the placement decision, with its inputs."""
    return ws.decide(
        request.kind,
        group=group.spec.name,
        instance=request.id,
        reason=f"{request.reason}; node '{found.node}' scores best",
        inputs={
            "node": found.node,
            "score": found.score,
            "memory_mb": group.spec.memory_mb,
            "ports": ", ".join(f"{port.name}={port.port}/{port.protocol}" for port in found.ports),
            "plan": resolved.record.hash,
            "attempts": request.attempts,
            **({"picks": ", ".join(resolved.picks)} if resolved.picks else {}),
            **_brought(resolved),
        },
        rejected=[*resolved.passed_over[:_EXTENSIONS], *passed_over(found)],
        request=request.carries_on,
    )


def _brought(resolved: ResolvedPlan) -> dict[str, str]:
    """The contributions of modules to a plan."""
    brought = [f"{each.module}/{each.id}" for each in resolved.plan.extensions if each.module]
    return {"extensions": ", ".join(brought)} if brought else {}


def _schedule(ws: Workspace, record: InstanceRecord, *, cpu: float) -> None:
    """Store the record, its reservation and its event."""
    ws.put_instance(record)
    reserve(ws, record, cpu=cpu)
    ws.event(
        EventType.INSTANCE_SCHEDULED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        decision=record.decision,
    )


def home_of(ws: Workspace, group: GroupRecord, request: StartRequest) -> str:
    """The node of the instance's directory, as long as it is a member: on another node the instance would
    start with an empty directory."""
    kept = group.spec.static and ws.state.nodes.find(request.home) is not None
    return request.home if kept else ""


def _world_left(ws: Workspace, request: StartRequest) -> str:
    """The node with a directory of this id that the group does not use, because it is no longer static."""
    return request.home if ws.state.nodes.find(request.home) is not None else ""


def _chosen(ws: Workspace, request: StartRequest) -> str | None:
    """The node that the instance is bound to, unless it was removed: then nothing would ever start there."""
    known = request.only is not None and ws.state.nodes.find(request.only) is not None
    return request.only if known else None


def settled_home(ws: Workspace, record: InstanceRecord) -> str:
    """The home of a run that its node has prepared: in a static group, that node permanently."""
    group = ws.group(record.group)
    return record.home or (record.node if group is not None and group.spec.static else "")


def passed_over(found: Placement | PlacementRefusal) -> list[Alternative]:
    """The nodes that were not chosen, and why."""
    rejected = [Alternative(subject=f"node/{each.node}", reason=each.reason) for each in found.refusals]
    if isinstance(found, Placement):
        rejected += [
            Alternative(subject=f"node/{id}", reason=_lower(score, found.score)) for id, score in found.others
        ]
    return rejected


def _lower(score: float, best: float) -> str:
    """Why a suitable node ranks lower. Scores are shown with the digits by which they are compared."""
    if score == best:
        return f"scores {score:.6g} as well; of equal ones the first by name is taken"
    return f"scores {score:.6g}, less than {best:.6g}"


def reserve(ws: Workspace, record: InstanceRecord, *, cpu: float) -> None:
    """Reserve memory and ports on the record's node; consumes the serial of its start. The node's ledger is written in
    any case: of two concurrent reservations there, one conflicts."""
    reservation = Reservation(
        instance=record.id,
        incarnation=record.incarnation,
        memory_mb=record.memory_mb,
        cpu=cpu,
        ports=record.ports,
    )
    ws.set_reservation(record.node, record.id, reservation)
    ledger = ws.ledger(record.node)
    ws.put_ledger(msgspec.structs.replace(ledger, serial=max(record.serial, ledger.serial)))
    if record.ports:
        ws.insist_on_neighbours(record.node)


def release(ws: Workspace, record: InstanceRecord) -> None:
    """Release the reservation of the run; does nothing when it has none."""
    held = ws.reservation(record.node, record.id)
    if held is not None and same_start(held.incarnation, record.incarnation):
        ws.set_reservation(record.node, record.id, None)


def refuse_ports(ws: Workspace, node: NodeId, ports: tuple[LeasedPort, ...]) -> None:
    """Mark ports that the node found in use: they are not leased for a while. Expired marks are removed."""
    ledger = ws.ledger(node)
    busy = refused_ports(ledger, ws.now)
    kept = {
        f"{number}/{protocol}": ledger.refused_ports[f"{number}/{protocol}"]
        for number, protocol in busy
        if f"{number}/{protocol}" in ledger.refused_ports
    }
    for port in ports:
        for number, protocol in port_keys(port.port, port.protocol):
            kept[f"{number}/{protocol}"] = ws.now + BUSY
    ws.put_ledger(msgspec.structs.replace(ledger, refused_ports=kept))
