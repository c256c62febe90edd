"""Deployments: orders that begin one, those that are about one, and the list of all, the newest first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, Confirmed, NoQuery
from corral.controller.http.messages.list_pages import chosen, has_text, named_ids
from corral.controller.http.messages.paging import Page, decode_cursor, encode_cursor
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import (
    ConfirmedOrDry,
    DryRunShape,
    deployment_described,
    dry_mutation,
)
from corral.controller.http.resources.groups.deployment_schemas import (
    DeploymentOrder,
    DeploymentQuery,
    DeploymentReason,
    DeploymentShape,
    audited_deployment,
    deployment_shape,
    present_view,
)
from corral.controller.http.resources.instances.instance_changes import caller_name, placing, workspace
from corral.controller.instances import deployments as changes
from corral.controller.instances.instance_changes import to_restart
from corral.controller.instances.player_cuts import before_players_are_cut
from corral.controller.instances.restart_checks import refused_restart
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.permissions import Permission

_KIND: Final = "deployments"


def the_deployment(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[DeploymentRecord]:
    return state.deployments.require(path["id"])


async def list_deployments(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, DeploymentQuery]
) -> Page[DeploymentShape]:
    query, access = call.query, call.caller.access
    before = decode_cursor(_KIND, query.cursor)
    states = chosen(DeploymentState, query.state, field="state")
    known = state.deployments.of_group(query.group) if query.group else list(state.deployments)
    named = None if query.ids is None else set(named_ids(state.deployments, query.ids))
    found = sorted(
        (
            (_order(stored.record), stored)
            for stored in known
            if (not states or stored.record.state in states)
            and (named is None or stored.record.id in named)
            and (query.q is None or has_text((stored.record.id, stored.record.group), query.q))
            and access.allows_on_group(Permission.DEPLOYMENTS_READ, stored.record.group)
        ),
        key=lambda item: item[0],
        reverse=True,
    )
    left = [item for item in found if before is None or item[0] < before]
    shown = left[: query.limit]
    view = present_view(instances, call.now)
    return Page(
        items=[deployment_shape(instances, stored, call.now, view) for _, stored in shown],
        next=encode_cursor(_KIND, shown[-1][0]) if len(left) > len(shown) else None,
    )


def _order(record: DeploymentRecord) -> str:
    """A key that sorts by the time of creation; the id separates deployments of one moment."""
    return f"{record.created_at.astimezone(dt.UTC).isoformat(timespec='microseconds')} {record.id}"


async def get_deployment(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]
) -> DeploymentShape:
    return deployment_shape(instances, state.deployments.require(call.path["id"]), call.now)


def deploy_group(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[DeploymentOrder, ConfirmedOrDry],
) -> Mutation:
    name, order, by = call.path["name"], call.body, caller_name(call)
    ws = workspace(instances, call, "groups.deploy")
    refuse_unplanned(ws, name, pinned=False)
    record = changes.deploy_group(ws, name, by=by, reason=order.reason, options=order.given())
    if call.query.dry_run:
        shape = deployment_described(ws, instances.signals, workload, record)
        return dry_mutation("groups.deploy", name, shape)
    before_players_are_cut(ws, instances.signals.view(ws), record, call.query.confirm)
    return begun(state, instances, call, ws, "groups.deploy", record)


def refuse_unplanned(ws: Workspace, name: str, *, pinned: bool = True) -> None:
    """Refuse a deployment whose starts could not even be planned; nodes may have room later. `pinned`: they would be by the
    revision that the group is pinned to, if it is pinned."""
    group = ws.require_group(name)
    if not pinned:
        group = msgspec.structs.replace(group, pinned_revision=0)
    refused = refused_restart(ws, group, to_restart(ws, group)[:1])
    if refused is not None and refused.refusal.cause is not None:
        raise refused.error(f"group '{name}'", name)


def begun(
    state: ClusterState,
    instances: InstanceControl,
    call: ApiCall[Any, Any],
    ws: Workspace,
    action: str,
    record: DeploymentRecord,
) -> Mutation:
    """The change that begins a deployment; without steps: it is under way already, with the same target and options."""
    known = state.deployments.find(record.id)
    return Mutation(
        action=action,
        subject=record.group,
        steps=ws.steps(),
        body=deployment_shape(instances, StoredRecord(known.revision if known else 0, record), call.now),
        before=audited_deployment(known.record) if known else None,
        after=audited_deployment(record),
    )


def _ordered(
    verb: str, order: Callable[..., DeploymentRecord], *, reasoned: bool, cuts: bool
) -> Callable[..., Mutation]:
    """The handler of an order about a deployment. `reasoned`: the order takes the reason that was given. `cuts`: other
    instances leave by it, and players may be cut off."""

    def change(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, Any]) -> Mutation:
        stored = state.deployments.require(call.path["id"])
        action = f"deployments.{verb}"
        ws = workspace(instances, call, action)
        given = {"reason": call.body.reason} if reasoned else {}
        record = order(ws, stored.record.id, by=caller_name(call), **given)
        if cuts:
            before_players_are_cut(ws, instances.signals.view(ws), record, call.query.confirm)
        known = state.deployments.find(record.id)
        return Mutation(
            action=action,
            subject=stored.record.id,
            steps=ws.steps(),
            body=deployment_shape(instances, StoredRecord(known.revision if known else 0, record), call.now),
            before=audited_deployment(stored.record),
            after=audited_deployment(record),
        )

    return change


def _operation(
    verb: str,
    summary: str,
    order: Callable[..., DeploymentRecord],
    body: Any = None,
    *,
    query: Any = NoQuery,
) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/deployments/{{id}}/{verb}",
        permission=Permission.DEPLOYMENTS_MANAGE,
        summary=summary,
        body=body,
        query=query,
        response=DeploymentShape,
        handler=_ordered(verb, order, reasoned=body is not None, cuts=query is Confirmed),
        revises=the_deployment,
        turn=placing,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Mutate(
        method="POST",
        path="/api/v1/groups/{name}/deploy",
        permission=Permission.DEPLOYMENTS_MANAGE,
        summary="Bring the instances of a group to its present document, templates and programs",
        body=DeploymentOrder,
        query=ConfirmedOrDry,
        response=DeploymentShape,
        handler=deploy_group,
        dry_run=DryRunShape,
        turn=placing,
    ),
    Read(
        method="GET",
        path="/api/v1/deployments",
        permission=Permission.DEPLOYMENTS_READ,
        scope=Scoping.FILTERS,
        summary="List deployments, the newest first",
        query=DeploymentQuery,
        response=Page[DeploymentShape],
        handler=list_deployments,
    ),
    Read(
        method="GET",
        path="/api/v1/deployments/{id}",
        permission=Permission.DEPLOYMENTS_READ,
        summary="Show a deployment and how far it is",
        response=DeploymentShape,
        handler=get_deployment,
    ),
    _operation("pause", "Let a deployment rest; healing goes on", changes.pause_deployment),
    _operation("resume", "Let a paused deployment go on", changes.resume_deployment),
    _operation("promote", "Let all other instances follow the canaries now", changes.promote_deployment),
    _operation(
        "rollback",
        "Bring the instances back to the stable revision, and pin the group to it",
        changes.roll_back_deployment,
        DeploymentReason,
        query=Confirmed,
    ),
    _operation(
        "cancel",
        "End a deployment where it is; what it started stays",
        changes.cancel_deployment,
        DeploymentReason,
    ),
)
