"""How a mutation becomes a fact: precondition, description, one transaction, answer.

The handler's steps, the audit entry and the idempotency record are committed together. When
somebody else was faster, everything is judged again from the new state: a caller who insisted on
a revision is then refused, for any other one the handler describes the change anew. Contents that a
change names are stored before, by a `Build` or an `Upload`: only the change itself is repeated.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from corral.controller.cluster_state import Stored
from corral.controller.http.answers import REPLAYED, Answer, Headers, revision_of, shaped
from corral.controller.http.call import Call
from corral.controller.http.form_spooling import ReceivedForm
from corral.controller.http.idempotency import Guard
from corral.controller.http.preconditions import Match
from corral.controller.http.route_table import Act, Build, Change, Describe, Intake, Mutate, Once, Upload
from corral.controller.http.setting import Leading
from corral.controller.ledger import Step, audit
from corral.controller.mutations import Mutation, RecordedRefusal
from corral.domain.records import IdempotencyRecord
from corral.errors import Code, Rejected, Retryable
from corral.store.port import Conflict

_NOT_AWAITED: Final = "the change was made, and its end is no longer waited for"
_ATTEMPTS: Final = 20
_PATIENCE: Final = 10.0
"""So long, in seconds, a start waits for a node that has just gone, and once."""
_REMEMBERED: Final = 100
_AT_ONCE: Final = contextlib.nullcontext()


class Mutator:
    """Runs the mutations of one API. Acts with one key come one after the other."""

    def __init__(self) -> None:
        self._remembered: dict[Guard, Answer] = {}

    async def mutate(
        self,
        route: Mutate,
        leading: Leading,
        call: Call[Any, Any],
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> Answer:
        """Commit what the handler describes. Every error leaves the store as it was."""

        async def describe() -> Mutation:
            return route.handler(leading, call)

        return await self._commit(route, leading, call, describe, guard=guard, match=match)

    async def build(
        self,
        route: Build,
        leading: Leading,
        call: Call[Any, Any],
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> Answer:
        """Let the handler store contents, then commit what it describes."""
        if guard is not None and (stored := guard.find(leading.state, call.now)) is not None:
            return _replay(route, guard, stored)[1]
        require(route, leading, call, match)
        describe = await route.handler(leading, call)
        return await self._commit(route, leading, call, describe, guard=guard, match=match)

    async def commit_upload(
        self,
        route: Upload,
        leading: Leading,
        call: Call[Any, Any],
        describe: Describe,
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> Answer:
        """Commit what is described for an upload that came in whole."""
        return await self._commit(route, leading, call, describe, guard=guard, match=match)

    async def _commit(
        self,
        route: Change,
        leading: Leading,
        call: Call[Any, Any],
        describe: Describe,
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> Answer:
        if route.settle is None or getattr(call.query, "wait", None) is None:
            return (await self._attempts(route, leading, call, describe, guard=guard, match=match))[1]
        # A wait is one of the token's streams; whether it may have one is known before anything is changed.
        with leading.streams.opened(call.caller.token) as stream:
            body, answered = await self._attempts(route, leading, call, describe, guard=guard, match=match)
            settling = route.settle(leading, call, body)
            settled = await leading.streams.within(stream, settling, otherwise=_NOT_AWAITED)
        return shaped(settled, status=answered.status, headers=_kept(answered))

    async def _attempts(
        self,
        route: Change,
        leading: Leading,
        call: Call[Any, Any],
        describe: Describe,
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> tuple[Any, Answer]:
        patience = _PATIENCE
        for _ in range(_ATTEMPTS):
            try:
                async with route.turn(leading, call) if route.turn is not None else _AT_ONCE:
                    recorded = await self._attempt(route, leading, call, describe, guard=guard, match=match)
            except Conflict:
                continue  # look again: a caller who insists on a revision is told by the precondition
            except RecordedRefusal as refusal:
                waited, patience = patience if refusal.returning else 0.0, 0.0
                if waited and await leading.instances.returned(refusal.returning, timeout=waited):
                    continue
                await leading.ledger.commit(*refusal.steps)
                raise
            return recorded
        raise Retryable(
            Code.CONFLICT,
            f"others changed the same things {_ATTEMPTS} times while this was tried",
            hint="try again",
            retry_after=1.0,
        )

    @staticmethod
    async def _attempt(
        route: Change,
        leading: Leading,
        call: Call[Any, Any],
        describe: Describe,
        *,
        guard: Guard | None,
        match: Match | None,
    ) -> tuple[Any, Answer]:
        if guard is not None and (stored := guard.find(leading.state, call.now)) is not None:
            return _replay(route, guard, stored)
        require(route, leading, call, match)
        mutation = await describe()
        if match is not None:
            require(route, leading, call, match)  # a description may have waited for something
        recorded = await _record(leading, call, mutation, guard=guard, always=False)
        if route.effect is not None:
            route.effect(leading, call)
        return recorded

    async def act(self, route: Act, leading: Leading, call: Call[Any, Any], *, guard: Guard | None) -> Answer:
        """Act, then record it. A second request with the same key waits and is answered the same."""
        async with leading.attempts.in_turn(guard):
            if guard is not None and (stored := guard.find(leading.state, call.now)) is not None:
                return _replay(route, guard, stored)[1]
            if guard is not None and (known := self._remembered.get(guard)) is not None:
                return known
            mutation = await route.handler(leading, call)
            if not route.ends_term:
                always = not route.audited_within
                return (await _record(leading, call, mutation, guard=guard, always=always))[1]
            answer = shaped(mutation.body, status=mutation.status)
            if guard is not None:
                self._remember(guard, answer)
            return answer

    async def once(
        self, route: Once, leading: Leading, call: Call[Any, Any], *, guard: Guard | None
    ) -> Answer:
        """Act once; see `Attempt`. A second request with the same key waits and is answered the same."""
        async with leading.attempts.in_turn(guard):
            attempt = leading.attempts.attempt(caller=call.caller, now=call.now, guard=guard)
            if guard is not None and attempt.answered is not None:
                return _replay(route, guard, attempt.answered)[1]
            mutation = await route.handler(leading, call, attempt)
            answer = shaped(mutation.body, status=mutation.status)
            await attempt.finish(*mutation.steps, answer=answer)
            return answer

    async def act_on_form(
        self,
        route: Intake,
        leading: Leading,
        call: Call[Any, Any],
        form: ReceivedForm,
        *,
        guard: Guard | None,
    ) -> Answer:
        """The same with a form that came in whole. The audit is the actor's own."""
        async with leading.attempts.in_turn(guard):
            if guard is not None and (stored := guard.find(leading.state, call.now)) is not None:
                return _replay(route, guard, stored)[1]
            mutation = await route.handler(leading, call, form)
            return (await _record(leading, call, mutation, guard=guard, always=False))[1]

    def _remember(self, guard: Guard, answer: Answer) -> None:
        self._remembered[guard] = msgspec.structs.replace(answer, headers=(*answer.headers, *REPLAYED))
        while len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]


def require(route: Change, leading: Leading, call: Call[Any, Any], match: Match | None) -> None:
    """The resource is there and as the caller insists; NOT_FOUND, REVISION_MISMATCH."""
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
        resource = route.revises(leading.state, call.path)
    except Rejected as error:
        if not route.creates or error.code.status != 404:
            raise
        raise Rejected(
            Code.REVISION_MISMATCH, f"{error.message}, so it has no revision", hint="leave If-Match out"
        ) from None
    if match is not None:
        match.require(resource.revision)


async def _record(
    leading: Leading, call: Call[Any, Any], mutation: Mutation, *, guard: Guard | None, always: bool
) -> tuple[Any, Answer]:
    """Commit a mutation with its audit entry and its answer. `always`: also one without steps."""
    steps: list[Step] = list(mutation.steps)
    changes = bool(steps) or always
    body = mutation.body
    if changes:
        steps.append(
            audit(
                call.caller.actor,
                mutation.action,
                mutation.subject,
                before=mutation.before,
                after=mutation.after,
            )
        )
        if mutation.steps and revision_of(body) is not None:
            body = msgspec.structs.replace(body, revision=0)  # known only when it is stored
    if guard is not None:
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
        commit = await leading.ledger.commit(*steps)
        body = _filled(body, commit.number)
    return body, shaped(body, status=mutation.status)


def _replay(
    route: Change | Act | Intake | Once, guard: Guard, stored: Stored[IdempotencyRecord]
) -> tuple[Any, Answer]:
    """The stored answer. Documents of one transaction share its number: so does the answer's revision."""
    raw = guard.open(stored.record)
    if stored.record.status >= 400:  # how an effect failed
        return None, Answer(status=stored.record.status, body=raw, headers=REPLAYED)
    body = _filled(msgspec.json.decode(raw, type=route.response) if raw else None, stored.revision)
    return body, shaped(body, status=stored.record.status, headers=REPLAYED)


def _kept(answer: Answer) -> Headers:
    """The headers of an answer that do not speak of its body."""
    return tuple(header for header in answer.headers if header[0] != b"etag")


def _filled(body: Any, revision: int) -> Any:
    return msgspec.structs.replace(body, revision=revision) if revision_of(body) == 0 else body
