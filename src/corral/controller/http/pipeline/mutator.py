"""Mutations of the API: precondition, description, one transaction, response.

There are two ways. `commit` gets a description and commits it with its audit entry and its idempotency record; on a
conflict with a concurrent change, everything is evaluated again from the new state: a caller who required a revision
is then refused, for any other caller the change is described again. Contents that a change names are stored before:
only the change itself is repeated. `act` is for effects outside the store: it does them one at a time for each key, or
returns the stored response.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.http.messages.responses import REPLAYED, ApiResponse, Headers, revision_of, shaped
from corral.controller.http.pipeline.admission import AdmittedRequest, IfMatch
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.handler_parameters import bound
from corral.controller.http.pipeline.idempotency import Guard
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import CommitRoute, Route
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.ledger import Mutation, RecordedRefusal, Step, audit
from corral.domain.records import IdempotencyRecord
from corral.errors import Code, Rejected, Retryable
from corral.store.store_errors import Conflict

_NOT_AWAITED: Final = "the change was made, and its end is no longer waited for"
_ATTEMPTS: Final = 20
_PATIENCE: Final = 10.0
"""Seconds that a start waits, once, for a node that has just disconnected."""
_AT_ONCE: Final = contextlib.nullcontext()

Do = Callable[[Attempt], Awaitable[ApiResponse]]
"""Has the effect and records it."""


class AnsweredMutation(NamedTuple):
    """The body of an answer as a value, and the answer."""

    body: Any
    answer: ApiResponse


class BoundChange:
    """A route that commits a description, with its hooks bound to the parts of the term that they declare."""

    def __init__(self, route: CommitRoute) -> None:
        self.route = route
        self.effect = bound(route.effect, given=1) if route.effect is not None else None
        self.settle = bound(route.settle, given=2) if route.settle is not None else None
        self.turn = bound(route.turn, given=1) if route.turn is not None else None


async def commit(
    change: BoundChange,
    admitted: AdmittedRequest,
    describe: Describe,
    *,
    guard: Guard | None,
    match: IfMatch | None,
) -> ApiResponse:
    """Commit what is described. Every error leaves the store as it was."""
    leading, call = admitted.leading, admitted.call
    if change.settle is None or getattr(call.query, "wait", None) is None:
        return (await _attempts(change, admitted, describe, guard=guard, match=match)).answer
    # A wait is one of the token's streams; whether it may have one is known before anything is changed.
    with leading.streams.opened(call.caller) as stream:
        body, answered = await _attempts(change, admitted, describe, guard=guard, match=match)
        settling = change.settle(leading, call, body)
        settled = await leading.streams.within(stream, settling, otherwise=_NOT_AWAITED)
    return shaped(admitted.shown(settled), status=answered.status, headers=_kept(answered))


async def act(route: Route, admitted: AdmittedRequest, do: Do, *, guard: Guard | None) -> ApiResponse:
    """Act, unless it was done. A second request with the same key waits and gets the same response."""
    attempts, call = admitted.leading.attempts, admitted.call
    async with attempts.in_turn(guard):
        attempt = attempts.attempt(
            caller=call.caller,
            now=call.now,
            guard=guard,
            refuse_changed_rights=admitted.refuse_changed_rights,
        )
        if guard is not None and attempt.answered is not None:
            return _replay(route, admitted, guard, attempt.answered).answer
        async with attempt.concluded():
            return await do(attempt)


def replayed(route: Route, admitted: AdmittedRequest, guard: Guard | None) -> AnsweredMutation | None:
    """The answer that is stored under the request's key."""
    if guard is None:
        return None
    stored = guard.find(admitted.leading.state, admitted.call.now)
    return None if stored is None else _replay(route, admitted, guard, stored)


def require(route: CommitRoute, admitted: AdmittedRequest, match: IfMatch | None) -> None:
    """The resource exists and has the revision that the caller requires; NOT_FOUND, REVISION_MISMATCH."""
    if route.revises is None:
        if match is not None:
            raise Rejected(
                Code.BAD_REQUEST,
                f"If-Match means nothing to {route.name}: it changes nothing that exists",
                field="If-Match",
            )
        return
    if route.creates and match is None:
        return
    try:
        resource = route.revises(admitted.leading.state, admitted.call.path)
    except Rejected as error:
        if not route.creates or error.code.status != 404:
            raise
        raise Rejected(
            Code.REVISION_MISMATCH, f"{error.message}, so it has no revision", hint="leave If-Match out"
        ) from None
    if match is not None:
        match.require(resource.revision)


async def record(
    admitted: AdmittedRequest, mutation: Mutation, *, guard: Guard | None, attempt: Attempt | None = None
) -> AnsweredMutation:
    """Commit a mutation with its audit entry and its answer. `attempt`: at the act that it describes; the entry is its
    outcome."""
    leading, call = admitted.leading, admitted.call
    steps: list[Step] = list(mutation.steps)
    body = mutation.body
    outcome = None
    if attempt is not None:
        outcome = attempt.recorded(before=mutation.before, after=mutation.after)
    if outcome is not None:
        steps.append(outcome)
    elif steps:
        steps.append(
            audit(
                call.caller.actor,
                mutation.action,
                mutation.subject,
                before=mutation.before,
                after=mutation.after,
                request=call.request,
            )
        )
    if mutation.steps and revision_of(body) is not None:
        body = msgspec.structs.replace(body, revision=0)  # known only when it is stored
    if guard is not None and mutation.remembered:
        steps.append(
            guard.keep(
                state=leading.state,
                status=mutation.status,
                body=b"" if body is None else msgspec.json.encode(body),
                now=call.now,
                entropy=leading.setting.entropy,
            )
        )
    if steps:
        committed = await leading.ledger.commit(*steps)
        body = _filled(body, committed.number)
        if attempt is not None:
            attempt.settled()
    answer = shaped(admitted.shown(body), status=mutation.status, headers=mutation.headers)
    return AnsweredMutation(body, answer)


async def _attempts(
    change: BoundChange,
    admitted: AdmittedRequest,
    describe: Describe,
    *,
    guard: Guard | None,
    match: IfMatch | None,
) -> AnsweredMutation:
    leading, patience = admitted.leading, _PATIENCE
    for _ in range(_ATTEMPTS):
        try:
            async with change.turn(leading, admitted.call) if change.turn is not None else _AT_ONCE:
                return await _attempt(change, admitted, describe, guard=guard, match=match)
        except Conflict:
            continue  # again: a caller who requires a revision is refused by the precondition
        except RecordedRefusal as refusal:
            waited, patience = patience if refusal.returning else 0.0, 0.0
            if waited and await leading.instances.returned(refusal.returning, timeout=waited):
                continue
            await leading.ledger.commit(*refusal.steps)
            raise
    raise Retryable(
        Code.CONFLICT,
        f"others changed the same things {_ATTEMPTS} times while this was tried",
        hint="try again",
        retry_after=1.0,
    )


async def _attempt(
    change: BoundChange,
    admitted: AdmittedRequest,
    describe: Describe,
    *,
    guard: Guard | None,
    match: IfMatch | None,
) -> AnsweredMutation:
    route = change.route
    if (known := replayed(route, admitted, guard)) is not None:
        return known
    require(route, admitted, match)
    admitted.refuse_changed_rights()
    mutation = await describe()
    if match is not None:
        require(route, admitted, match)  # a description may have waited for something
    folder = admitted.leading.group_folder
    write = functools.partial(record, admitted, guard=guard)
    if folder is not None:
        recorded = await folder.commit(admitted.leading.state, mutation, write)
    else:
        recorded = await write(mutation)
    if change.effect is not None:
        change.effect(admitted.leading, admitted.call)
    return recorded


def _replay(
    route: Route, admitted: AdmittedRequest, guard: Guard, stored: StoredRecord[IdempotencyRecord]
) -> AnsweredMutation:
    """The stored answer. Documents of one transaction share its number: so does the answer's revision."""
    raw = guard.open(stored.record)
    if stored.record.status >= 400:  # how an effect failed
        return AnsweredMutation(None, ApiResponse(status=stored.record.status, body=raw, headers=REPLAYED))
    body = _filled(msgspec.json.decode(raw, type=route.response) if raw else None, stored.revision)
    shown = shaped(admitted.shown(body), status=stored.record.status, headers=REPLAYED)
    return AnsweredMutation(body, shown)


def _kept(answer: ApiResponse) -> Headers:
    """The headers of a response that do not describe its body."""
    return tuple(header for header in answer.headers if header[0] != b"etag")


def _filled(body: Any, revision: int) -> Any:
    return msgspec.structs.replace(body, revision=revision) if revision_of(body) == 0 else body
