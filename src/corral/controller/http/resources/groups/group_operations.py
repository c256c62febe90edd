"""Operations on groups: how many instances, a crash loop that is over, a restart of all, a hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, GivenText, NoQuery, RequestBody
from corral.controller.http.pipeline.route_table import Mutate, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import (
    ConfirmedOrDry,
    DryRunQuery,
    DryRunShape,
    deployment_described,
    described,
    dry_mutation,
    hold_described,
    restart_described,
)
from corral.controller.http.resources.groups.deployment_schemas import RestartOrder
from corral.controller.http.resources.groups.deployments import refuse_unplanned
from corral.controller.http.resources.groups.group_changes import changing, the_group
from corral.controller.http.resources.groups.group_schemas import GroupShape
from corral.controller.http.resources.instances.instance_changes import caller_name, placing, workspace
from corral.controller.instances import deployments, group_changes, instance_changes
from corral.controller.instances.player_cuts import before_all_restart, before_players_are_cut
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.permissions import Permission
from corral.domain.spec import Count, invalid


class Scale(RequestBody, frozen=True, kw_only=True):
    count: Count
    for_seconds: Annotated[int, msgspec.Meta(ge=1, le=604_800)] | None = None
    """For so long at least `count` are kept, where the load decides (scaling.mode DYNAMIC)."""


class HoldOrder(RequestBody, frozen=True, kw_only=True):
    reason: GivenText
    when_empty: bool = False


def scale_group(
    state: ClusterState, instances: InstanceControl, workload: Workloads, call: ApiCall[Scale, DryRunQuery]
) -> Mutation:
    name, order = call.path["name"], call.body

    def change(ws: Workspace) -> GroupRecord:
        return group_changes.scale_group(ws, name, order.count, seconds=order.for_seconds)

    if not call.query.dry_run:
        return changing(state, instances, call, "groups.scale", change)
    ws = workspace(instances, call, "groups.scale")
    change(ws)
    return dry_mutation("groups.scale", name, described(ws, instances.signals, workload))


def unpause_group(state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]) -> Mutation:
    name = call.path["name"]
    return changing(
        state, instances, call, "groups.unpause", lambda ws: group_changes.unpause_group(ws, name)
    )


def hold_group(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[HoldOrder, DryRunQuery],
) -> Mutation:
    name, order, by = call.path["name"], call.body, caller_name(call)
    return _held_or_released(
        state,
        instances,
        workload,
        call,
        "groups.hold",
        lambda ws: group_changes.hold_group(
            ws, name, by=by, reason=order.reason, when_empty=order.when_empty
        ),
    )


def release_group(
    state: ClusterState, instances: InstanceControl, workload: Workloads, call: ApiCall[None, DryRunQuery]
) -> Mutation:
    name, by = call.path["name"], caller_name(call)
    return _held_or_released(
        state,
        instances,
        workload,
        call,
        "groups.release",
        lambda ws: group_changes.release_group(ws, name, by=by),
    )


def _held_or_released(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Any, DryRunQuery],
    action: str,
    change: Callable[[Workspace], GroupRecord],
) -> Mutation:
    if not call.query.dry_run:
        return changing(state, instances, call, action, change)
    ws = workspace(instances, call, action)
    name = change(ws).spec.name
    return dry_mutation(action, name, hold_described(ws, instances.signals, workload, name))


def restart_group(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[RestartOrder, ConfirmedOrDry],
) -> Mutation:
    """By a deployment to a revision with the same contents; `at_once`: all of its instances that are wanted."""
    if call.body.at_once:
        return _restart_at_once(state, instances, workload, call)
    name, order, by = call.path["name"], call.body, caller_name(call)

    def begin(ws: Workspace) -> DeploymentRecord:
        refuse_unplanned(ws, name)
        return deployments.restart_revision(ws, name, by=by, reason=order.reason, options=order.given())

    def restart(ws: Workspace) -> GroupRecord:
        record = begin(ws)
        before_players_are_cut(ws, instances.signals.view(ws), record, call.query.confirm)
        return ws.require_group(record.group)

    if not call.query.dry_run:
        return changing(state, instances, call, "groups.restart", restart)
    ws = workspace(instances, call, "groups.restart")
    record = begin(ws)
    return dry_mutation("groups.restart", name, deployment_described(ws, instances.signals, workload, record))


def _restart_at_once(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[RestartOrder, ConfirmedOrDry],
) -> Mutation:
    name = call.path["name"]
    if call.body.reason or call.body.given():
        raise invalid("at_once", "a restart of all at once is no deployment", "leave out reason and options")

    def restart(ws: Workspace) -> GroupRecord:
        record = ws.require_group(name)
        instance_changes.refuse_abstract(record)
        running = instance_changes.to_restart(ws, record)
        before_all_restart(instances.signals.view(ws), record, running, call.query.confirm)
        if instance_changes.restart_all(ws, record, reason="the group is restarted"):
            ws.put_group(record)  # the revision in the answer is the group's own
        return record

    if not call.query.dry_run:
        return changing(state, instances, call, "groups.restart", restart)
    ws = workspace(instances, call, "groups.restart")
    group = ws.require_group(name)
    instance_changes.refuse_abstract(group)
    running = instance_changes.to_restart(ws, group)
    instance_changes.restart_all(ws, group, reason="the group is restarted")
    return dry_mutation("groups.restart", name, restart_described(workload, group, running))


def _operation(verb: str, summary: str, handler: Callable[..., Mutation], **more: Any) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/groups/{{name}}/{verb}",
        permission=Permission.GROUPS_MANAGE,
        summary=summary,
        response=GroupShape,
        handler=handler,
        revises=the_group,
        **more,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _operation(
        "scale",
        "How many instances a group shall have",
        scale_group,
        body=Scale,
        query=DryRunQuery,
        dry_run=DryRunShape,
    ),
    _operation("unpause", "Try a crash-looping group again now", unpause_group),
    _operation(
        "restart",
        "Replace every instance of a group by a deployment; with `at_once` restart all at the same time",
        restart_group,
        body=RestartOrder,
        query=ConfirmedOrDry,
        dry_run=DryRunShape,
        turn=placing,
    ),
    _operation(
        "hold",
        "Stop every instance of a group and keep all stopped",
        hold_group,
        body=HoldOrder,
        query=DryRunQuery,
        dry_run=DryRunShape,
    ),
    _operation(
        "release", "Let a held group run again", release_group, query=DryRunQuery, dry_run=DryRunShape
    ),
)
