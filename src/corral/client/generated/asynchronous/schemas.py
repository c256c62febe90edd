"""Methods of `schemas`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from typing import Any

from corral.client.async_calls import AsyncCalls
from corral.client.requests import Request


class AsyncSchemas:
    """Operations of `/api/v1/schemas`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def group(self) -> dict[str, Any]:
        """The JSON schema of a group's document.

        `GET /api/v1/schemas/group`, permission `groups.read`.
        """
        return await self._calls.call(Request[dict[str, Any]]("GET", "/api/v1/schemas/group", dict[str, Any]))
