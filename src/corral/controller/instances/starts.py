"""A start as one transaction: record, reservation, plan, decision and event, or none of them."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.plan_view import WorkspaceView, plan_run
from corral.controller.instances.revisions import recorded_revision
from corral.controller.instances.serving_counts import serving_count
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import Rule
from corral.domain.events import EventType
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    GroupRecord,
    InstanceRecord,
    LeasedPort,
    NodeLedger,
    Reservation,
    earlier_starts,
)
from corral.domain.groups.plan_resolution import ResolvedPlan
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.ids import DecisionId, GroupName, NodeId, same_start
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.node_usage import port_keys
from corral.domain.planning.node_views import BUSY, refused_ports
from corral.domain.planning.placement import Placement, PlacementChoice
from corral.domain.planning.planner import place_one
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.scaling import wanted_count
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.start_requests import StartRequest, revision_for_start
from corral.errors import Rejected, short_list

GROUP_LEDGER: Final = "@group/"
"""Before the name of a group: the id of the document that its starts have in common with changes of the group."""
_TIES: Final = 3
_EXTENSIONS: Final = 5
"""The most extensions without a contribution that are recorded with a start; the limit leaves room for nodes.
"""


def start_run(
    ws: Workspace,
    group: GroupRecord,
    request: StartRequest,
    found: Placement | None = None,
    *,
    rule: Rule = Rule.OPERATOR,
) -> InstanceRecord | PlacementRefusal:
    """Plan, place and reserve a new run; `found`: it is placed already. Without a plan or a node nothing is changed."""
    if request.claimed_by:
        return PlacementRefusal.claimed(request.id, request.claimed_by)
    view = WorkspaceView(ws, without=request.id)
    revision = revision_for_start(group, request)
    resolved = plan_run(ws, group, request.variables, revision)
    if isinstance(resolved, PlacementRefusal):
        return resolved
    placed = found or place_one(view, group, request)
    if isinstance(placed, PlacementRefusal):
        return placed
    try:
        incarnation = ws.next_incarnation()
    except Rejected as error:  # the counter is exhausted: the other folded changes must not be lost
        return PlacementRefusal.without_number(error)
    spec, basis = view.as_started(group, request).spec, resolved.basis
    if not revision:
        revision, basis = recorded_revision(ws, group, resolved)
    decision = _decide(ws, spec, request, resolved, placed, rule, revision)
    record = InstanceRecord(
        id=request.id,
        group=GroupName(group.spec.name),
        node=NodeId(placed.node),
        incarnation=incarnation,
        serial=ws.ledger(placed.node).serial + 1,
        state=InstanceState.SCHEDULED,
        wanted=Wanted.RUN,
        ports=placed.ports,
        memory_mb=spec.memory_mb,
        plan_hash=resolved.record.hash,
        basis=basis,
        revision=revision,
        decision=decision,
        reason=request.reason,
        created_at=request.created_at or ws.now,
        start_failure=request.failure,
        attempts=request.attempts,
        pinned=request.pinned and bool(view.home_of(group, request) or view.chosen_node(request)),
        variables=dict(request.variables),
        home=request.home if ws.state.nodes.find(request.home) is not None else "",
        earlier=earlier_starts(ws.instance(request.id)),
        request=ws.request or request.carries_on,
        warm=request.warm,
        replaces=request.replaces,
        moves=request.moves,
        moves_run=request.moves_run,
    )
    ws.put_plan(resolved.record)
    _schedule(ws, record, cpu=spec.cpu)
    return record


def _decide(
    ws: Workspace,
    spec: GroupSpec,
    request: StartRequest,
    resolved: ResolvedPlan,
    found: Placement,
    rule: Rule,
    revision: int,
) -> DecisionId:
    """Record the placement decision, with its inputs."""
    return ws.decide(
        request.kind,
        group=spec.name,
        instance=request.id,
        rule=rule,
        node=found.node,
        reason=f"{request.reason}; {_chosen(found, request)}",
        inputs={
            "node": found.node,
            "score": found.score,
            "choice": found.choice.value,
            "memory_mb": spec.memory_mb,
            "ports": ", ".join(f"{port.name}={port.port}/{port.protocol}" for port in found.ports),
            "plan": resolved.record.hash,
            "attempts": request.attempts,
            "revision": revision,
            **({"replaces": request.replaces} if request.replaces else {}),
            **({"moves": request.moves} if request.moves else {}),
            **({"picks": ", ".join(resolved.picks)} if resolved.picks else {}),
            **_brought(resolved),
        },
        rejected=[*resolved.passed_over[:_EXTENSIONS], *found.alternatives()],
        rejected_counts=found.counts(),
        ties=found.ties,
        request=request.carries_on,
        causes=(request.follows,),
    )


def _chosen(found: Placement, request: StartRequest) -> str:
    """Why this node, for people."""
    node = f"node '{found.node}'"
    match found.choice:
        case PlacementChoice.HOME:
            return f"{node} has its directory"
        case PlacementChoice.BOUND:
            return f"{node} was chosen for it"
        case PlacementChoice.KEPT:
            return f"{node} had it before"
        case PlacementChoice.ONLY:
            return f"{node} is the only one that fits"
        case PlacementChoice.ELSEWHERE:
            return f"{node} scores best beside '{request.avoid}', which is avoided"
        case PlacementChoice.TIE:
            tied = short_list((f"'{each}'" for each in found.ties), _TIES)
            return f"{node}: a tie with {tied} at {found.score:.6f}, by hash"
        case PlacementChoice.BEST:
            return f"{node} scores best"


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


def settled_home(ws: Workspace, record: InstanceRecord) -> str:
    """The home of a run that its node has prepared: in a static group, that node permanently."""
    group = ws.group(record.group)
    return record.home or (record.node if group is not None and group.spec.static else "")


def reserve(ws: Workspace, record: InstanceRecord, *, cpu: float | None = None) -> None:
    """Reserve memory, CPU (None: as its group has it) and ports on the record's node; consumes the serial of its start. The node's ledger is written in
    any case: of two concurrent reservations there, one conflicts."""
    if cpu is None:
        group = ws.group(record.group)
        cpu = group.spec.cpu if group is not None else 0.0
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


def insist_on_group(ws: Workspace, name: str) -> None:
    """Make the transaction fail when a group is concurrently started and deleted, held or bounded anew.

    A start of a further instance writes nothing that such a change writes. So both also write a document of their own
    beside the ledgers, and one of two concurrent ones conflicts. The group itself is written only by starts that raise
    its desired number.
    """
    ws.put_ledger(NodeLedger(node=NodeId(f"{GROUP_LEDGER}{name}")))


def keep_number(ws: Workspace, name: str) -> None:
    """Raise the desired number of a group to what serves now, after a start by hand or an adoption, so that it is kept."""
    group, serving = ws.group(name), serving_count(ws, name)
    if group is None:
        return
    values = scheduled(group.spec, ws.now)
    if group.deployment:  # which has some beside those that are wanted
        serving = min(serving, wanted_count(group, values) + 1)
    last = group.last_scale
    if values.mode is ScalingMode.MANUAL and group.target < serving:
        ws.put_group(msgspec.structs.replace(group, target=serving, updated_at=ws.now))
    elif values.mode is ScalingMode.DYNAMIC and group.deployment and last is not None and last.need < serving:
        ws.put_group(msgspec.structs.replace(group, last_scale=msgspec.structs.replace(last, need=serving)))


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
