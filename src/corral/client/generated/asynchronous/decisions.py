"""Methods of `decisions`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request


class AsyncDecisions:
    """Operations of `/api/v1/decisions`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        since: str | None = None,
        until: str | None = None,
        subject: str | None = None,
    ) -> models.DecisionPage:
        """List decisions about an instance, a group or a node, the newest first.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `subject`: `instance/ID`, `group/NAME` or `node/ID`.

        `GET /api/v1/decisions`, permission `decisions.read`.
        """
        return await self._calls.call(
            Request[models.DecisionPage](
                "GET",
                "/api/v1/decisions",
                models.DecisionPage,
                query={"limit": limit, "cursor": cursor, "since": since, "until": until, "subject": subject},
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        since: str | None = None,
        until: str | None = None,
        subject: str | None = None,
    ) -> AsyncIterator[models.Decision]:
        """List decisions about an instance, a group or a node, the newest first: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `since`: Only what happened at this time or later.
        - `until`: Only what happened before this time.
        - `subject`: `instance/ID`, `group/NAME` or `node/ID`.

        `GET /api/v1/decisions`, permission `decisions.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit, since=since, until=until, subject=subject, cursor=position
            )
        )
