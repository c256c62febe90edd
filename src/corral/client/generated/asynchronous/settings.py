"""Methods of `settings`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request


class AsyncSettings:
    """Operations of `/api/v1/settings`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def get(self) -> models.Settings:
        """The settings of the controller that leads, without secrets.

        `GET /api/v1/settings`, permission `settings.read`.
        """
        return await self._calls.call(Request[models.Settings]("GET", "/api/v1/settings", models.Settings))
