"""Structures of `sessions`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.generated.models.shared import AuthenticatedBy, SessionKind


class SessionPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Session, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Session(Struct, frozen=True, kw_only=True):
    """A session of a user; `address` and `agent` are those of the login."""

    id: str
    """Id of the session, `ses-…`; it is no secret."""
    kind: SessionKind
    """BROWSER, by a cookie; or COMMAND_LINE, by a token."""
    authenticated_by: AuthenticatedBy
    """How its user proved who it is: PASSWORD, TOTP, RECOVERY_CODE, OIDC or FIRST_ADMIN."""
    address: str
    """Where the login came from."""
    agent: str
    """What the browser or command line called itself."""
    created_at: str
    """When it was made, in UTC."""
    last_used_at: str
    """When it was last used, in UTC; across a change of the leader to within five minutes."""
    expires_at: str
    """When it ends at the latest, in UTC; it ends before after 12 hours without use."""
    user: str
    """Name of its user."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
