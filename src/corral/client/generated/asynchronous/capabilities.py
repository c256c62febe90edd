"""Methods of `capabilities`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request


class AsyncCapabilities:
    """Operations of `/api/v1/capabilities`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> models.CapabilityPage:
        """List capabilities, and requirements that nothing meets.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/capabilities`, permission `modules.read`.
        """
        return await self._calls.call(
            Request[models.CapabilityPage](
                "GET", "/api/v1/capabilities", models.CapabilityPage, query={"limit": limit, "cursor": cursor}
            )
        )

    def all(self, *, limit: int | None = None) -> AsyncIterator[models.Capability]:
        """List capabilities, and requirements that nothing meets: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/capabilities`, permission `modules.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, cursor=position))
