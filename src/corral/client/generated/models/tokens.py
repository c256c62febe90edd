"""Structures of `tokens`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.generated.models.shared import Role, Scope, Token


class TokenPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Token, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class NewToken(Struct, frozen=True, kw_only=True):
    """A token with its text, which is shown this once. `warning` is set when it allows more than its role."""

    id: str
    """Id of the token, `tok-…`; it is no secret."""
    name: str
    """What it is called."""
    role: Role
    """What it may do: VIEWER, OPERATOR or ADMIN."""
    owner: str
    """The user whose rights it has, as far as it does not narrow them."""
    permissions: tuple[str, ...] | None
    """Of the permissions of its role, the ones that it has; null: all of them."""
    scope: Scope
    """Where it may do so; what lies outside is not there for it."""
    created_at: str
    """When it was made, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    expires_at: str | None
    """When it stops being valid, in UTC; null: never."""
    last_used_at: str | None
    """When a request last carried it, since this controller leads; null: not since then."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
    token: str
    """Its text, shown this once."""
    warning: str = ""
    """Why it allows more than its role; empty: it does not."""
