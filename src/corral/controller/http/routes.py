"""The whole route table."""

from __future__ import annotations

from typing import Final

from corral.controller.http.openapi import with_description
from corral.controller.http.resources import audit, cluster, events, join_tokens, logs, nodes, probes, tokens
from corral.controller.http.route_table import Route

ROUTES: Final[tuple[Route, ...]] = with_description(
    (
        *probes.ROUTES,
        *tokens.ROUTES,
        *join_tokens.ROUTES,
        *nodes.ROUTES,
        *events.ROUTES,
        *logs.ROUTES,
        *audit.ROUTES,
        *cluster.ROUTES,
    )
)
