"""The whole route table."""

from __future__ import annotations

from typing import Final

from corral.controller.http.openapi import with_description
from corral.controller.http.resources import (
    audit,
    cluster,
    consoles,
    crashes,
    decisions,
    events,
    groups,
    instances,
    join_tokens,
    logs,
    nodes,
    probes,
    tokens,
)
from corral.controller.http.route_table import Route

ROUTES: Final[tuple[Route, ...]] = with_description(
    (
        *probes.ROUTES,
        *tokens.ROUTES,
        *join_tokens.ROUTES,
        *nodes.ROUTES,
        *groups.ROUTES,
        *instances.ROUTES,
        *consoles.ROUTES,
        *crashes.ROUTES,
        *decisions.ROUTES,
        *events.ROUTES,
        *logs.ROUTES,
        *audit.ROUTES,
        *cluster.ROUTES,
    )
)
