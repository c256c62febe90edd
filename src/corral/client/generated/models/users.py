"""Structures of `users`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from corral.client.generated.models.shared import Permission, Scope, ScopeInput


class UserPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[User, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class User(Struct, frozen=True, kw_only=True):
    """A user; `permissions` are those that its bindings grant anywhere."""

    name: str
    """Name of the user; it never changes."""
    display_name: str
    """The name for people."""
    bindings: tuple[Binding, ...]
    """The roles of the user, each with its scope."""
    permissions: tuple[Permission, ...]
    """What these grant, be it in a scope; nothing while the user is locked."""
    locked: Lock | None
    """The lock of an administrator, under which nothing of the user is accepted; null: there is none."""
    provider: str
    """Issuer of OpenID Connect that vouches for the user; empty: a local one."""
    provider_bindings: tuple[Binding, ...]
    """The roles that the groups of its last login with the provider brought."""
    has_password: bool
    """Whether the user can log in by password."""
    must_change_password: bool
    """Whether the next login has to set another password."""
    has_totp: bool
    """Whether logins of the user need a second factor."""
    login_delayed_seconds: int
    """How long logins from new addresses are delayed, after failed ones; 0: they are not."""
    sessions: int
    """How many sessions the user has."""
    tokens: int
    """How many API tokens the user owns."""
    created_at: str
    """When it was made, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Binding(Struct, frozen=True, kw_only=True):
    """A role within a scope."""

    role: str
    """A fixed role (ADMIN, OPERATOR, VIEWER) or one of `GET /api/v1/roles`."""
    scope: Scope | UnsetType = UNSET
    """Where the role holds; left out: everywhere."""


class BindingInput(Struct, frozen=True, kw_only=True):
    """A role within a scope."""

    role: str
    """A fixed role (ADMIN, OPERATOR, VIEWER) or one of `GET /api/v1/roles`."""
    scope: ScopeInput | UnsetType = UNSET
    """Where the role holds; left out: everywhere."""


class Lock(Struct, frozen=True, kw_only=True):
    """An administrator's lock."""

    by: str
    """Who locked the user."""
    reason: str
    """Why the user was locked."""
    at: str
    """When, in UTC."""
