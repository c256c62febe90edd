"""Structures of `workload`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct


class WorkloadToken(Struct, frozen=True, kw_only=True):
    """The next token of this run. It may be renewed after `expires_at`, too, as long as the run lives."""

    token: str
    """The next token of this run; the former one goes on for a short time."""
    expires_at: str
    """When it should be renewed, in UTC; a living run may renew it later, too."""
