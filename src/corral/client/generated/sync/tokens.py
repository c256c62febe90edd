"""Methods of `tokens`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.generated import models
from corral.client.requests import Request, entity_tag
from corral.client.sync_calls import SyncCalls


class Tokens:
    """Operations of `/api/v1/tokens`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> models.TokenPage:
        """List API tokens.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/tokens`, permission `tokens.read`.
        """
        return self._calls.call(
            Request[models.TokenPage](
                "GET", "/api/v1/tokens", models.TokenPage, query={"limit": limit, "cursor": cursor}
            )
        )

    def all(self, *, limit: int | None = None) -> Iterator[models.Token]:
        """List API tokens: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/tokens`, permission `tokens.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, cursor=position))

    def create(
        self,
        *,
        name: str,
        role: models.Role,
        expires_in_seconds: int | UnsetType | None = UNSET,
        permissions: Sequence[models.Permission] | UnsetType | None = UNSET,
        scope: models.ScopeInput | UnsetType = UNSET,
        owner: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.NewToken:
        """Create an API token; its text is shown once.

        - `name`: A name for people; several tokens may have the same one.
        - `role`: What it may do: VIEWER, OPERATOR or ADMIN.
        - `expires_in_seconds`: How long it is valid, in seconds; null: until it is revoked.
        - `permissions`: Of the permissions of its role, the ones that it is to have; null: all of them.
        - `scope`: Where it may do so; left out: everywhere that its owner may.
        - `owner`: The user whose rights it narrows; null: the caller's own.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/tokens`, permission `tokens.manage`.
        """
        return self._calls.call(
            Request[models.NewToken](
                "POST",
                "/api/v1/tokens",
                models.NewToken,
                json={
                    "name": name,
                    "role": role,
                    "expires_in_seconds": expires_in_seconds,
                    "permissions": permissions,
                    "scope": scope,
                    "owner": owner,
                },
                keyed=True,
                key=idempotency_key,
            )
        )

    def get(self, id: str) -> models.Token:
        """Show an API token.

        - `id`: Id of the token, `tok-…`; not its text.

        `GET /api/v1/tokens/{id}`, permission `tokens.read`.
        """
        return self._calls.call(Request[models.Token]("GET", f"/api/v1/tokens/{segment(id)}", models.Token))

    def delete(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Revoke an API token at once.

        - `id`: Id of the token, `tok-…`; not its text.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/tokens/{id}`, permission `tokens.manage`.
        """
        self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/tokens/{segment(id)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )
