"""Caches of nodes: their content, and prefetching for instances to come."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.distribution.node_caches import CacheReport
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.route_table import Act, Read, Route, path_id
from corral.controller.http.pipeline.scoping import not_there
from corral.controller.http.pipeline.template_scopes import covers_template
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.http.resources.templates.template_versions import SyncShape
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.access import ANY, Access
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_TEMPLATE: Final = "template/"
"""Begins the subject of a failure that is about a template."""


class Prewarm(RequestBody, frozen=True, kw_only=True):
    group: (
        Annotated[str, msgspec.Meta(max_length=63, description="Without: what all groups need.")] | None
    ) = None


async def get_cache(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[None, NoQuery]
) -> CacheReport:
    node = state.nodes.require(call.path["id"]).record
    return _within_scope(state, call.caller.access, await distribution.cache_status(node.id))


async def prewarm_node(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[Prewarm, NoQuery]
) -> Mutation:
    node = state.nodes.require(call.path["id"]).record
    if not call.caller.access.allows_everywhere(Permission.NODES_MANAGE):
        _refuse_outside(state, call, node.id)
    group = _group(state, call)
    report = await distribution.prewarm(node.id, group)
    return Mutation(
        action="nodes.prewarm",
        subject=node.id,
        steps=(),
        body=_within_scope(state, call.caller.access, report),
        after={"group": group, "failures": {each.subject: each.code for each in report.failures}},
    )


async def prewarm_all(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[Prewarm, NoQuery]
) -> Mutation:
    group = _group(state, call)
    answers = await distribution.prewarm_all(group)
    return Mutation(
        action="nodes.prewarm",
        subject="nodes",
        steps=(),
        body=SyncShape(items=list(answers)),
        after={"group": group, "nodes": {answer.node: answer.code for answer in answers}},
    )


def _group(state: ClusterState, call: ApiCall[Prewarm, NoQuery]) -> str | None:
    name = call.body.group
    return None if name is None else state.groups.require(name).record.spec.name


def _within_scope(state: ClusterState, access: Access, report: CacheReport) -> CacheReport:
    """The report without templates that only groups outside of the caller's scope use."""
    permission = Permission.NODES_READ
    if access.allows_everywhere(permission):
        return report

    def covered(name: str) -> bool:
        return covers_template(access, permission, state, name)

    return msgspec.structs.replace(
        report,
        templates=tuple(each for each in report.templates if covered(each.name)),
        failures=tuple(
            each
            for each in report.failures
            if not each.subject.startswith(_TEMPLATE) or covered(each.subject.removeprefix(_TEMPLATE))
        ),
    )


def _refuse_outside(state: ClusterState, call: ApiCall[Prewarm, NoQuery], node: str) -> None:
    """FORBIDDEN for groups whose instances on this node would be outside of the caller's scope; NOT_FOUND."""
    permission, group = Permission.NODES_MANAGE, call.body.group
    if not call.caller.access.allows_on_instance(permission, ANY if group is None else group, node):
        named = "all groups" if group is None else f"group '{group[:80]}'"
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is not granted for {named} on node '{node}'",
            hint="name a group within the scope of the token; 'corral whoami' shows it",
            field="group",
        )
    if group is not None and state.groups.find(group) is None:
        raise not_there("group", group)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/nodes/{id}/cache",
        permission=Permission.NODES_READ,
        summary="Show what a connected node holds in its cache",
        response=CacheReport,
        handler=get_cache,
    ),
    Act(
        method="POST",
        path="/api/v1/nodes/{id}/cache/prewarm",
        permission=Permission.NODES_MANAGE,
        summary="Let a node fetch what a group needs; answered when it has, or could not",
        body=Prewarm,
        response=CacheReport,
        handler=prewarm_node,
        action="nodes.prewarm",
        subject=path_id,
    ),
    Act(
        method="POST",
        path="/api/v1/nodes/cache/prewarm",
        permission=Permission.NODES_MANAGE,
        summary="Let every connected node fetch what a group needs",
        body=Prewarm,
        response=SyncShape,
        handler=prewarm_all,
        action="nodes.prewarm",
        subject=lambda _: "nodes",
    ),
)
