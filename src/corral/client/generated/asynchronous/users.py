"""Methods of `users`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request, entity_tag


class AsyncUsers:
    """Operations of `/api/v1/users`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> models.UserPage:
        """List users.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/users`, permission `users.read`.
        """
        return await self._calls.call(
            Request[models.UserPage](
                "GET", "/api/v1/users", models.UserPage, query={"limit": limit, "cursor": cursor}
            )
        )

    def all(self, *, limit: int | None = None) -> AsyncIterator[models.User]:
        """List users: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/users`, permission `users.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, cursor=position))

    async def create(
        self,
        *,
        name: str,
        display_name: str | UnsetType = UNSET,
        bindings: Sequence[models.BindingInput] | UnsetType = UNSET,
        password: str | UnsetType | None = UNSET,
        must_change_password: bool | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.User:
        """Create a user, with no more rights than the caller has.

        - `name`: Name of the user: 1 to 63 of a-z, 0-9, `.`, `_`, `@`, `+` and `-`; it never changes.
        - `display_name`: The name for people; may be empty.
        - `bindings`: The roles of the user, each with its scope; nobody gives more than he has. Default: `()`.
        - `password`: Password of the user: 12 to 256 characters, and not what everybody tries first; null: it cannot log in by one.
        - `must_change_password`: Whether the first login has to set another one; true unless given. Default: `true`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/users`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "POST",
                "/api/v1/users",
                models.User,
                json={
                    "name": name,
                    "display_name": display_name,
                    "bindings": bindings,
                    "password": password,
                    "must_change_password": must_change_password,
                },
                keyed=True,
                key=idempotency_key,
            )
        )

    async def get(self, name: str) -> models.User:
        """Show a user.

        - `name`: Name of the template.

        `GET /api/v1/users/{name}`, permission `users.read`.
        """
        return await self._calls.call(
            Request[models.User]("GET", f"/api/v1/users/{segment(name)}", models.User)
        )

    async def update(
        self,
        name: str,
        *,
        display_name: str | UnsetType = UNSET,
        bindings: Sequence[models.BindingInput] | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.User:
        """Change the name or the bindings of a user; its open streams end when its rights change.

        - `name`: Name of the template.
        - `display_name`: The new name for people.
        - `bindings`: All roles of the user from now on, each with its scope.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/users/{name}`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "PATCH",
                f"/api/v1/users/{segment(name)}",
                models.User,
                json={"display_name": display_name, "bindings": bindings},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Remove a user with all its tokens.

        - `name`: Name of the template.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/users/{name}`, permission `users.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/users/{segment(name)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def lock(
        self, name: str, *, reason: str, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.User:
        """Refuse everything that a user and its tokens ask for; open streams end at once.

        - `name`: Name of the template.
        - `reason`: Why; the user's requests are refused with it being locked.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/users/{name}/lock`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "POST",
                f"/api/v1/users/{segment(name)}/lock",
                models.User,
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def unlock(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.User:
        """End the lock of a user.

        - `name`: Name of the template.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/users/{name}/unlock`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "POST",
                f"/api/v1/users/{segment(name)}/unlock",
                models.User,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def password(
        self,
        name: str,
        *,
        password: str,
        must_change_password: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.User:
        """Give a user another password; all its sessions end.

        - `name`: Name of the template.
        - `password`: The password from now on: 12 to 256 characters, and not what everybody tries first.
        - `must_change_password`: Whether the next login has to set another one; true unless given. Default: `true`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/users/{name}/password`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "POST",
                f"/api/v1/users/{segment(name)}/password",
                models.User,
                json={"password": password, "must_change_password": must_change_password},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete_totp(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.User:
        """Remove the second factor of a user who has lost it.

        - `name`: Name of the template.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/users/{name}/totp`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "DELETE",
                f"/api/v1/users/{segment(name)}/totp",
                models.User,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def reset_delay(self, name: str, *, idempotency_key: str | None = None) -> models.User:
        """End the delay that follows from failed logins.

        - `name`: Name of the template.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/users/{name}/reset-delay`, permission `users.manage`.
        """
        return await self._calls.call(
            Request[models.User](
                "POST",
                f"/api/v1/users/{segment(name)}/reset-delay",
                models.User,
                keyed=True,
                key=idempotency_key,
            )
        )
