"""Methods of `probes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request


class AsyncProbes:
    """Operations of `/`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def health(self) -> models.Health:
        """Is the process alive.

        `GET /health`.
        """
        return await self._calls.call(Request[models.Health]("GET", "/health", models.Health))

    async def ready(self) -> models.Ready:
        """Would a write be taken now.

        `GET /ready`.
        """
        return await self._calls.call(Request[models.Ready]("GET", "/ready", models.Ready))

    async def ping(self) -> models.Ping:
        """Version and cluster.

        `GET /api/ping`.
        """
        return await self._calls.call(Request[models.Ping]("GET", "/api/ping", models.Ping))

    async def metrics(self) -> str:
        """Metrics for Prometheus.

        `GET /metrics`, permission `metrics.read`.
        """
        return await self._calls.call(Request[str]("GET", "/metrics", text=True))
