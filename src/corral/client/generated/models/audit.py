"""Structures of `audit`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class AuditPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Audit, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Audit(Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` hold what it touched. `actor_name` is the name of the token that did it,
    empty in entries from before names were kept. An act with an effect outside the store has two entries."""

    number: int
    """Position in the audit."""
    at: str
    """When it happened, in UTC."""
    actor: str
    """Who did it, for example `token:tok-…`."""
    actor_name: str
    """Name of the token that made the change, at that time; empty in entries from before names were kept."""
    action: str
    """What was done, such as `groups.create`."""
    subject: str
    """Id of what it was done to."""
    address: str
    """Address that the request came from; empty: none."""
    before: dict[str, Any] | None
    """What it touched, as it was; null: it was not there."""
    after: dict[str, Any] | None
    """What it touched, as it is; null: it is gone."""
    request: str
    """Id of the request, by which decisions and log records are found; empty: there was none, or it was not kept yet."""
    outcome: str
    """Of an act with an effect outside the store: `begun` before it, then `ok`, `refused`, `failed` or `unknown`; empty: a change that was stored with this entry."""
    attempt: str
    """The same in the entry from before an effect and in that of its outcome; empty: a change of the store."""
