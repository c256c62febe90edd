"""Methods of `probes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from corral.client.generated import models
from corral.client.requests import Request
from corral.client.sync_calls import SyncCalls


class Probes:
    """Operations of `/`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def health(self) -> models.Health:
        """Is the process alive.

        `GET /health`.
        """
        return self._calls.call(Request[models.Health]("GET", "/health", models.Health))

    def ready(self) -> models.Ready:
        """Would a write be taken now.

        `GET /ready`.
        """
        return self._calls.call(Request[models.Ready]("GET", "/ready", models.Ready))

    def ping(self) -> models.Ping:
        """Version and cluster.

        `GET /api/ping`.
        """
        return self._calls.call(Request[models.Ping]("GET", "/api/ping", models.Ping))

    def metrics(self) -> str:
        """Metrics for Prometheus.

        `GET /metrics`, permission `metrics.read`.
        """
        return self._calls.call(Request[str]("GET", "/metrics", text=True))
