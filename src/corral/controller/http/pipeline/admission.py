"""Admission of a request to its handler: the term, the caller, the permission and the input, in this order.

`If-Match` is read here, too: the revision of the resource that the caller requires.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from corral.controller.http.messages.call import ApiCall, Caller
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.request_decoder import BodyDecoder, QueryDecoder, query_pairs
from corral.controller.http.pipeline.api_context import CurrentTerm, ProcessContext, TermContext
from corral.controller.http.pipeline.authentication import authenticate, authorise, redeem
from corral.controller.http.pipeline.idempotency import Guard, guard_of
from corral.controller.http.pipeline.route_table import Route
from corral.controller.http.pipeline.scoping import check_scope
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import shown_to
from corral.errors import Code, Rejected

T = TypeVar("T")

_TAG: Final = re.compile(r'(W/)?"([!#-~]*)"')
_MAX_TAGS: Final = 20
_CONDITIONS: Final = (b"if-match", b"if-none-match")


TicketFinder = Callable[[HttpRequest], str | None]
"""The ticket that stands in for a token; None when there is none."""


class IfMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The revisions a caller accepts; None accepts any, as long as the resource exists."""

    tags: frozenset[str] | None

    def require(self, revision: int) -> None:
        if self.tags is None or str(revision) in self.tags:
            return
        raise Rejected(
            Code.REVISION_MISMATCH,
            f"the revision is {revision} now, not {' or '.join(sorted(self.tags)) or 'that of a weak tag'}",
            hint="read it again and repeat the change",
        )


def parse_match(header: str | None) -> IfMatch | None:
    """The header's meaning; BAD_REQUEST when it has none. A weak tag matches nothing (RFC 9110)."""
    if header is None:
        return None
    if header == "*":
        return IfMatch(tags=None)
    parts = [part.strip() for part in header.split(",")]
    found = [_TAG.fullmatch(part) for part in parts]
    if len(parts) > _MAX_TAGS or not all(found):
        raise Rejected(
            Code.BAD_REQUEST,
            f"If-Match {header[:80]!r} is malformed",
            hint='send the ETag of an answer, quotes included, such as If-Match: "42"',
            field="If-Match",
        )
    return IfMatch(tags=frozenset(match[2] for match in found if match is not None and not match[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """A request whose caller may make it. `raw` is its body where the kind of route reads it."""

    leading: TermContext
    call: ApiCall[Any, Any]
    request: HttpRequest
    raw: bytes = b""

    def guard(self, body: bytes) -> Guard | None:
        """The guard of its Idempotency-Key with this body; None without a key. BAD_REQUEST."""
        request = self.request
        return guard_of(
            request.header(b"idempotency-key"),
            caller=self.call.caller,
            method=request.method,
            path=request.path,
            query=request.query,
            body=body,
            conditions=[name + value.encode() for name in _CONDITIONS if (value := request.header(name))],
        )

    def shown(self, value: T) -> T:
        """A value for the answer, as the caller may see it."""
        return shown_to(self.call.caller.access, value)

    def refuse_changed_rights(self) -> None:
        """UNAUTHENTICATED or FORBIDDEN when the caller may not do what it could when it was let in: a body, a password or a
        lock may have taken a while."""
        now = self.leading.setting.clock.now()
        caller = self.call.caller
        found = self.leading.principals.find(caller.id, now)
        if found is None:
            reason = self.leading.principals.reason(caller.id, now)
            raise Rejected(Code.UNAUTHENTICATED, f"nothing was done: {reason}", hint="log in again")
        if found.access != caller.access:
            raise Rejected(
                Code.FORBIDDEN, "nothing was done: what the caller may do has changed", hint="try again"
            )

    def match(self) -> IfMatch | None:
        """The revision that the caller requires. BAD_REQUEST."""
        return parse_match(self.request.header(b"if-match"))

    def refuse_match(self, route: Route) -> None:
        """BAD_REQUEST when the caller requires a revision where there is none."""
        if self.request.header(b"if-match") is not None:
            raise Rejected(Code.BAD_REQUEST, f"If-Match means nothing to {route.name}", field="If-Match")


class RouteAdmission:
    """Admits the requests of one route."""

    def __init__(self, route: Route, *, setting: ProcessContext, gate: CurrentTerm) -> None:
        self._route = route
        self._scoping = route.scoping
        self.setting = setting
        self.gate = gate
        self._query = QueryDecoder(route.query)
        self._body = BodyDecoder(route.body, most_values=route.most_values) if route.body else None

    async def admit(self, request: HttpRequest, *, ticket_of: TicketFinder | None = None) -> AdmittedRequest:
        """A request that is whole: its body was read and decoded."""
        now = self.setting.clock.now()
        leading = self.leading()
        caller = self.caller(leading, request, ticket=ticket_of(request) if ticket_of else None)
        return await self._whole(leading, caller, request, now)

    @contextlib.asynccontextmanager
    async def admit_large(self, request: HttpRequest) -> AsyncIterator[AdmittedRequest]:
        """The same for a route whose bodies may be larger than those of others: a few large ones are held at once, until
        they are answered. RATE_LIMITED, before the body is read."""
        now = self.setting.clock.now()
        leading = self.leading()
        caller = self.caller(leading, request)
        with contextlib.ExitStack() as stack:
            if not request.is_small(self.setting.body_limit):
                stack.enter_context(leading.large_bodies.opened(caller))
            yield await self._whole(leading, caller, request, now)

    async def _whole(
        self, leading: TermContext, caller: Caller, request: HttpRequest, now: dt.datetime
    ) -> AdmittedRequest:
        declared = request.declared_size
        leading.rates.admit_body(caller, declared or 0)
        raw = await self.read_body(request)
        if declared is None:
            leading.rates.admit_body(caller, len(raw))
        body = await self.decode_body(raw)
        if request.method not in ("GET", "HEAD"):  # also without a body: its end may have taken a while
            caller = self._as_of_now(leading, caller, request)
        return AdmittedRequest(
            leading=leading, call=self._call(caller, request, body, now, raw), request=request, raw=raw
        )

    def admit_unread(self, request: HttpRequest) -> AdmittedRequest:
        """A request of which only the head was looked at: its body is still with the caller."""
        now = self.setting.clock.now()
        leading = self.leading()
        caller = self.caller(leading, request)
        return AdmittedRequest(leading=leading, call=self._call(caller, request, None, now), request=request)

    def leading(self) -> TermContext:
        """The present term; NOT_LEADER."""
        leading = self.gate()
        if leading is None:
            raise self.setting.not_leading()
        return leading

    def caller(self, leading: TermContext, request: HttpRequest, *, ticket: str | None = None) -> Caller:
        """The authenticated and authorised caller. UNAUTHENTICATED, RATE_LIMITED, FORBIDDEN."""
        now = self.setting.clock.now()
        try:
            if ticket is not None:
                caller = redeem(leading, request, ticket, now=now)
            else:
                caller = authenticate(leading, request, now=now)
        except Rejected:
            leading.rates.stranger(request.address)
            raise
        request.made_by(caller.actor.name)
        leading.rates.admit(caller, cost=self.cost(request))
        self._authorise(leading, caller, request)
        return caller

    def _authorise(self, leading: TermContext, caller: Caller, request: HttpRequest) -> None:
        permission = self._route.permission
        assert isinstance(permission, Permission), "only probes are public"
        authorise(caller, permission)
        check_scope(self._scoping, caller.access, permission, leading.state, self.path(request))

    def _as_of_now(self, leading: TermContext, caller: Caller, request: HttpRequest) -> Caller:
        """The caller once more, after its body has come, which may have taken a while. UNAUTHENTICATED, FORBIDDEN."""
        now = self.setting.clock.now()
        found = leading.principals.find(caller.id, now)
        if found is None:
            reason = leading.principals.reason(caller.id, now)
            raise Rejected(Code.UNAUTHENTICATED, f"nothing was done: {reason}", hint="log in again")
        if found.access == caller.access:
            return caller
        caller = dataclasses.replace(caller, access=found.access)
        self._authorise(leading, caller, request)
        return caller

    def cost(self, request: HttpRequest) -> int:
        """As how many requests this one counts."""
        each = self._route.items_a_request
        if not each:
            return self._route.cost
        try:
            query = self.query(request)
        except Rejected:  # it is refused for that later, once it is known who asks
            return self._route.cost
        limit: int = query.limit
        extra: int = getattr(query, "extra_cost", 0)
        return self._route.cost + limit // each + extra

    def path(self, request: HttpRequest) -> Mapping[str, str]:
        """The parameters of the path."""
        found: Mapping[str, str] = request.scope.get("path_params", {})
        lowered = self._route.lowered
        if not lowered:
            return found
        return {name: text.lower() if name in lowered else text for name, text in found.items()}

    def query(self, request: HttpRequest) -> Any:
        return self._query.decode(request.query)

    def ticket(self, request: HttpRequest) -> str | None:
        """The ticket in the query, which is decoded once it is known who asks."""
        try:
            return next((value for name, value in query_pairs(request.query) if name == "ticket"), None)
        except Rejected:
            return None

    async def read_body(self, request: HttpRequest) -> bytes:
        """The body's bytes; BAD_REQUEST for one where none is taken, UNSUPPORTED_MEDIA_TYPE."""
        if request.method in ("GET", "HEAD"):
            return b""
        pause = self.setting.limits.body_pause_seconds
        limit = self._route.body_limit or self.setting.body_limit
        raw = await request.read_body(limit=limit, pause_seconds=pause)
        if raw and self._body is None:
            raise Rejected(Code.BAD_REQUEST, f"{self._route.name} takes no body")
        if raw:
            request.require_json()
        return raw

    async def decode_body(self, raw: bytes) -> Any:
        return await self._body.received(raw) if self._body else None

    def _call(
        self, caller: Caller, request: HttpRequest, body: Any, now: dt.datetime, raw: bytes = b""
    ) -> ApiCall[Any, Any]:
        return ApiCall(
            caller=caller,
            path=self.path(request),
            body=body,
            query=self.query(request),
            now=now,
            last_event_id=request.header(b"last-event-id"),
            request=request.id,
            raw=raw,
            http=request,
        )
