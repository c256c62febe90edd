"""Methods of `sessions`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from corral.client.addresses import segment
from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request, entity_tag


class AsyncSessions:
    """Operations of `/api/v1/sessions`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None, user: str | None = None
    ) -> models.SessionPage:
        """List the sessions of all users.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `user`: Only those of this user.

        `GET /api/v1/sessions`, permission `sessions.read`.
        """
        return await self._calls.call(
            Request[models.SessionPage](
                "GET",
                "/api/v1/sessions",
                models.SessionPage,
                query={"limit": limit, "cursor": cursor, "user": user},
            )
        )

    def all(self, *, limit: int | None = None, user: str | None = None) -> AsyncIterator[models.Session]:
        """List the sessions of all users: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `user`: Only those of this user.

        `GET /api/v1/sessions`, permission `sessions.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, user=user, cursor=position))

    async def delete(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """End a session; its open streams end.

        - `id`: Id of the session, `ses-…`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/sessions/{id}`, permission `sessions.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/sessions/{segment(id)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )
