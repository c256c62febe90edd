"""Structures of `roles`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct


class RoleList(Struct, frozen=True, kw_only=True):
    """All roles: there are few, so this is one page."""

    items: tuple[RoleShape, ...]
    """The fixed roles, then the others by name."""
    next: str | None = None
    """Always null: all roles are one page."""


class RoleShape(Struct, frozen=True, kw_only=True):
    """A role; `users` counts those who have it. A fixed one has no revision."""

    name: str
    """Name of the role."""
    fixed: bool
    """Whether it is part of Corral and cannot be changed."""
    description: str
    """What it is for."""
    permissions: tuple[str, ...]
    """What it grants; names of a newer version grant nothing here."""
    users: int
    """How many users have it."""
    created_at: str | None
    """When it was made, in UTC; null: it is fixed."""
    created_by: str
    """Who made it; empty: it is fixed."""
    revision: int
    """Revision for `If-Match`; 0: it is fixed."""
