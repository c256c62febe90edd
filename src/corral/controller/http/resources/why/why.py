"""The routes of why."""

from __future__ import annotations

from typing import Final

from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.resources.why.why_answer import WhyShape
from corral.controller.http.resources.why.why_deployments import why_deployment
from corral.controller.http.resources.why.why_groups import why_group
from corral.controller.http.resources.why.why_instances import why_instance
from corral.controller.http.resources.why.why_modules import why_module
from corral.controller.http.resources.why.why_nodes import why_node
from corral.controller.http.resources.why.why_scope import WhyHandler, within_scope
from corral.domain.permissions import Permission

_COST: Final = 5
"""An answer takes the leader up to some 10 ms: a caller who asks all the time gets a tenth of it."""


def _route(path: str, summary: str, handler: WhyHandler) -> Read:
    return Read(
        method="GET",
        path=path,
        permission=Permission.DECISIONS_READ,
        summary=summary,
        response=WhyShape,
        handler=within_scope(handler),
        cost=_COST,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _route("/api/v1/instances/{id}/why", "Why an instance is as it is", why_instance),
    _route("/api/v1/groups/{name}/why", "Why a group has as many instances as it has", why_group),
    _route("/api/v1/nodes/{id}/why", "Why a node runs what it runs, and refuses what it refuses", why_node),
    _route("/api/v1/modules/{id}/why", "Why a module is in its phase", why_module),
    _route("/api/v1/deployments/{id}/why", "Why a deployment is in its state", why_deployment),
)
