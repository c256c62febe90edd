"""Principals: whom a token stands for now, and what it may do.

A caller keeps its id for as long as a request or a stream lasts. What it may do is looked up again whenever accounts
change, so that a stream ends when its rights do.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.state.api_tokens import is_expired
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access, access_of_role
from corral.domain.events import EventType
from corral.domain.ids import CallerId
from corral.domain.records import ApiTokenRecord

ACCOUNT_EVENTS: Final = frozenset({EventType.TOKEN_REVOKED})
"""Events after which somebody may do less than before."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may call the API at this moment."""

    id: CallerId
    name: str
    """As the audit names it: `token:ID`."""
    label: str
    access: Access
    expires_at: dt.datetime | None = None


def token_principal(record: ApiTokenRecord) -> Principal:
    return Principal(
        id=CallerId(record.id),
        name=f"token:{record.id}",
        label=record.name,
        access=access_of_role(record.role),
        expires_at=record.expires_at,
    )


class Principals:
    """All who may call the API, by the ids of their credentials."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def find(self, id: CallerId, now: dt.datetime) -> Principal | None:
        """The principal as it is now; None: its credential is not valid any more."""
        stored = self._state.tokens.find(id)
        if stored is None or is_expired(stored.record, now):
            return None
        return token_principal(stored.record)
