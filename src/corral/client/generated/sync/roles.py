"""Methods of `roles`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.generated import models
from corral.client.requests import Request, entity_tag
from corral.client.sync_calls import SyncCalls


class Roles:
    """Operations of `/api/v1/roles`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(self) -> models.RoleList:
        """List roles and what they grant.

        `GET /api/v1/roles`, permission `roles.read`.
        """
        return self._calls.call(Request[models.RoleList]("GET", "/api/v1/roles", models.RoleList))

    def create(
        self,
        *,
        name: str,
        permissions: Sequence[models.Permission],
        description: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.RoleShape:
        """Create a role, with no permission that the caller does not have.

        - `name`: Name of the role, in lower case.
        - `permissions`: What it grants; nobody gives more than he has.
        - `description`: What it is for; may be empty.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/roles`, permission `roles.manage`.
        """
        return self._calls.call(
            Request[models.RoleShape](
                "POST",
                "/api/v1/roles",
                models.RoleShape,
                json={"name": name, "permissions": permissions, "description": description},
                keyed=True,
                key=idempotency_key,
            )
        )

    def get(self, name: str) -> models.RoleShape:
        """Show a role.

        - `name`: Name of the template.

        `GET /api/v1/roles/{name}`, permission `roles.read`.
        """
        return self._calls.call(
            Request[models.RoleShape]("GET", f"/api/v1/roles/{segment(name)}", models.RoleShape)
        )

    def update(
        self,
        name: str,
        *,
        permissions: Sequence[models.Permission] | UnsetType = UNSET,
        description: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.RoleShape:
        """Change what a role grants; open streams of those who have it end.

        - `name`: Name of the template.
        - `permissions`: All that it grants from now on.
        - `description`: What it is for.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/roles/{name}`, permission `roles.manage`.
        """
        return self._calls.call(
            Request[models.RoleShape](
                "PATCH",
                f"/api/v1/roles/{segment(name)}",
                models.RoleShape,
                json={"permissions": permissions, "description": description},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def delete(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Remove a role that nobody has.

        - `name`: Name of the template.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/roles/{name}`, permission `roles.manage`.
        """
        self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/roles/{segment(name)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )
