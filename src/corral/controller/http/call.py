"""What a handler sees of a request: who calls, and what was asked, already checked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec

from corral.controller.state.ledger import Actor
from corral.domain.records import ApiTokenRecord

B = TypeVar("B")
Q = TypeVar("Q")


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies: strict, so that a typo is refused and not ignored."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of query strings. A field of a tuple type may be given several times."""


class NoQuery(Query, frozen=True, kw_only=True):
    """Takes no parameters."""


class Confirmed(Query, frozen=True, kw_only=True):
    """Of what may give up instances or worlds."""

    confirm: Annotated[
        str,
        msgspec.Meta(
            max_length=80,
            description="The name of the group or node once more: then instances and worlds are given up that "
            "CONFIRMATION_REQUIRED named.",
        ),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. `credential` is the token's text, for sealing what only he may see."""

    token: ApiTokenRecord
    address: str
    credential: str = ""

    @property
    def actor(self) -> Actor:
        return Actor(name=f"token:{self.token.id}", address=self.address, label=self.token.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[B, Q]):
    """One request to one route."""

    caller: Caller
    path: Mapping[str, str]
    body: B
    query: Q
    now: dt.datetime
    last_event_id: str | None = None
    request: str = ""
    """The id of the request."""
