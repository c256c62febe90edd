"""Methods of `schemas`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from typing import Any

from corral.client.requests import Request
from corral.client.sync_calls import SyncCalls


class Schemas:
    """Operations of `/api/v1/schemas`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def group(self) -> dict[str, Any]:
        """The JSON schema of a group's document.

        `GET /api/v1/schemas/group`, permission `groups.read`.
        """
        return self._calls.call(Request[dict[str, Any]]("GET", "/api/v1/schemas/group", dict[str, Any]))
