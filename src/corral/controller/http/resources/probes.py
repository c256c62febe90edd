"""Probes for load balancers and scrapers, in any role: liveness, readiness, ping and metrics."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.accounts.roles import missing_roles
from corral.controller.http.messages.responses import ApiResponse, shaped
from corral.controller.http.pipeline.api_context import CurrentTerm, ProcessContext
from corral.controller.http.pipeline.route_table import PUBLIC, Probe, Route
from corral.controller.http.server.metrics import CONTENT_TYPE
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.domain.permissions import Permission
from corral.errors import Code, Retryable, counted


class HealthShape(msgspec.Struct, frozen=True, kw_only=True):
    status: str


class ReadyShape(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    role: str
    epoch: int
    notes: list[str] = []
    """Limitations of a controller that serves: what it does without, and why."""


class PingShape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`status`, `node_id`, `cluster_name` and `master` are Universe's names."""

    pong: bool
    version: str
    build: str
    cluster: str | None
    status: str
    node_id: str
    cluster_name: str | None
    master: bool


async def health(setting: ProcessContext, gate: CurrentTerm) -> ApiResponse:
    """The process lives; nothing else is checked."""
    del setting, gate
    return shaped(HealthShape(status="ok"))


async def ready(setting: ProcessContext, gate: CurrentTerm) -> ApiResponse:
    """Whether this controller would take a write now; 503 with the reason when not."""
    leading = gate()
    if leading is None:
        raise setting.not_leading()
    if not leading.writer.healthy:
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"the store takes no writes: {leading.writer.reason}",
            hint="see the controller's log",
            retry_after=1.0,
        )
    epoch = leading.cluster.leader().epoch
    return shaped(
        ReadyShape(
            status="ready",
            role="leader",
            epoch=epoch,
            notes=notes_of(setting, leading.state, leading.modules, leading.nodes),
        )
    )


def notes_of(setting: ProcessContext, state: ClusterState, modules: Modules, nodes: LiveNodes) -> list[str]:
    """Limitations of a controller that serves, as texts."""
    notes = []
    if not modules.enabled:
        notes.append("modules are switched off: modules.enabled is false, or --no-modules was given")
    unreadable = len(state.quarantine)
    if unreadable:
        notes.append(
            f"{counted(unreadable, 'document')} of the store cannot be read: see `corral cluster status`"
        )
    if ahead := len(nodes.ahead_of_store):  # their names are for those who may list events
        notes.append(
            f"the store has lost what it had confirmed to {counted(ahead, 'node')}: it is older than they know; the events "
            "STORE_OLDER_THAN_NODE name them"
        )
    if setting.oidc is not None and (missing := missing_roles(state, setting.oidc.bindings)):
        notes.append(  # their names are in the log alone: anybody may ask whether a controller is ready
            f"oidc.bindings gives {counted(len(missing), 'role')} that cannot be found: see oidc_binding.skipped in the log"
        )
    return notes


async def ping(setting: ProcessContext, gate: CurrentTerm) -> ApiResponse:
    leading = gate()
    cluster = leading.state.identity.id if leading else None
    return shaped(
        PingShape(
            pong=True,
            version=setting.version,
            build=setting.build,
            cluster=cluster,
            status="ok",
            node_id=setting.holder,
            cluster_name=cluster,
            master=leading is not None,
        )
    )


async def metrics(setting: ProcessContext, gate: CurrentTerm) -> ApiResponse:
    del gate
    return ApiResponse(body=await setting.metrics.exposition(), content_type=CONTENT_TYPE)


ROUTES: Final[tuple[Route, ...]] = (
    Probe(
        method="GET",
        path="/health",
        permission=PUBLIC,
        summary="Is the process alive",
        response=HealthShape,
        handler=health,
    ),
    Probe(
        method="GET",
        path="/ready",
        permission=PUBLIC,
        summary="Would a write be taken now",
        response=ReadyShape,
        handler=ready,
    ),
    Probe(
        method="GET",
        path="/api/ping",
        permission=PUBLIC,
        summary="Version and cluster",
        response=PingShape,
        handler=ping,
    ),
    Probe(
        method="GET",
        path="/metrics",
        permission=Permission.METRICS_READ,
        open_to_scrapers=True,
        summary="Metrics for Prometheus",
        content_type=CONTENT_TYPE.decode(),
        handler=metrics,
    ),
)
