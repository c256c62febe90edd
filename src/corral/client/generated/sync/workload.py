"""Methods of `workload`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from corral.client.generated import models
from corral.client.requests import Request
from corral.client.sync_calls import SyncCalls


class Workload:
    """Operations of `/api/v1/workload`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def ready(self) -> None:
        """Report that an instance can be used.

        `POST /api/v1/workload/ready`.
        """
        self._calls.call(Request[None]("POST", "/api/v1/workload/ready"))

    def players(self, *, count: int, max: int | UnsetType = UNSET) -> None:
        """Report the players of an instance.

        - `count`: How many play now.
        - `max`: How many could play; 0: not known. Default: `0`.

        `POST /api/v1/workload/players`.
        """
        self._calls.call(Request[None]("POST", "/api/v1/workload/players", json={"count": count, "max": max}))

    def metrics(self, body: Mapping[str, float]) -> None:
        """Report metrics of an instance.

        - `body`: What is sent; left out of it is what is UNSET.

        `POST /api/v1/workload/metrics`.
        """
        self._calls.call(Request[None]("POST", "/api/v1/workload/metrics", json=body))

    def token(self) -> models.WorkloadToken:
        """An instance renews its token.

        `POST /api/v1/workload/token`.
        """
        return self._calls.call(
            Request[models.WorkloadToken]("POST", "/api/v1/workload/token", models.WorkloadToken)
        )
