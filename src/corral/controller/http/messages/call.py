"""Call of a handler: the caller, the decoded body and query, and the field types that bodies and queries share."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from corral.controller.http.messages.request import HttpRequest
from corral.controller.state.ledger import Actor
from corral.domain.access import Access
from corral.domain.ids import CallerId, UserName, UserSessionId

NAME_MAX = 64
TEXT_MAX = 500

_PRINTABLE = (
    r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff]"
)
"""Neither control characters nor what turns, breaks or hides the text around it: one name must not look like another."""


def pattern_rule(rule: str, hint: str) -> dict[str, str]:
    """The `extra` of a type with a pattern: what a value that does not match is refused with, instead of the pattern."""
    return {"rule": rule, "hint": hint}


_PRINTABLE_RULE = pattern_rule(
    "it has a line break, or a control or invisible character",
    "write it on one line, in characters that can be seen",
)

Name = Annotated[
    str,
    # Python's `$` also matches before a last line feed, which JSON Schema's does not: hence the look-ahead
    msgspec.Meta(min_length=1, max_length=NAME_MAX, pattern=rf"^{_PRINTABLE}+(?!\n)$", extra=_PRINTABLE_RULE),
]
"""A short text for people, without control characters."""

Text = Annotated[
    str, msgspec.Meta(max_length=TEXT_MAX, pattern=rf"^{_PRINTABLE}*(?!\n)$", extra=_PRINTABLE_RULE)
]
"""A line for people; may be empty."""

GivenText = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=TEXT_MAX, pattern=rf"^{_PRINTABLE}+(?!\n)$", extra=_PRINTABLE_RULE),
]
"""The same, never empty."""


B = TypeVar("B")
Q = TypeVar("Q")
OtherB = TypeVar("OtherB")
OtherQ = TypeVar("OtherQ")


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies: strict, so that a typo is refused and not ignored."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of query strings. A field of a tuple type may be given several times."""

    never_empty: ClassVar[frozenset[str]] = frozenset()
    """Parameters that are refused when they are empty; others then count as not given."""


class NoQuery(Query, frozen=True, kw_only=True):
    """Takes no parameters."""


class TicketedQuery(Query, frozen=True, kw_only=True):
    """Of streams and downloads, which browsers open without headers of their own."""

    ticket: Annotated[str, msgspec.Meta(max_length=200, description="Instead of a token.")] | None = None


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
    """An authenticated caller: who it is, what it may do, where it is. `credential` is the secret that it showed, for
    encrypting what only this caller may see; a caller with a ticket has shown none."""

    id: CallerId
    user: UserName
    """Whose rights it has."""
    actor: Actor
    access: Access
    credential: str = ""
    expires_at: dt.datetime | None = None
    session: UserSessionId | None = None
    """The session that it has logged in to; None: it has a token."""

    @property
    def noun(self) -> str:
        """Whose limits count for it, in sentences."""
        return "token" if self.session is None else "user"

    @property
    def limit_key(self) -> str:
        """Whose limits count for it: those of the token, or of the user in all of its sessions."""
        return self.id if self.session is None else f"user:{self.user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCall(Generic[Q]):
    """One request to a route that some workloads may use as well as callers."""

    path: Mapping[str, str]
    query: Q
    now: dt.datetime
    access: Access | None = None
    """That of the caller; None: a workload, which sees everything here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[B, Q]):
    """One request to one route."""

    caller: Caller
    path: Mapping[str, str]
    body: B
    query: Q
    now: dt.datetime
    last_event_id: str | None = None
    request: str = ""
    """The id of the request."""
    raw: bytes = b""
    """The body as it was sent, where it was read whole: a document is kept as it was written."""
    http: HttpRequest | None = None
    """The request itself, for cookies and the agent of a browser."""

    def with_body(self, body: OtherB) -> ApiCall[OtherB, Q]:
        """The same request with another body: that of the route whose handler answers it."""
        changed: ApiCall[Any, Q] = self
        return dataclasses.replace(changed, body=body)

    def with_query(self, query: OtherQ) -> ApiCall[B, OtherQ]:
        """The same with another query."""
        changed: ApiCall[B, Any] = self
        return dataclasses.replace(changed, query=query)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginCall(Generic[B, Q]):
    """One request of somebody who is not known yet."""

    body: B
    query: Q
    now: dt.datetime
    http: HttpRequest
