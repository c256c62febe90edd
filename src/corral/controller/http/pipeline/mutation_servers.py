"""Servers of routes that change something: commits of a description (changes, builds, uploads), and effects outside the
store (acts, acts that must take effect once only, acts on a form)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import REPLAYED, ApiResponse, shaped
from corral.controller.http.messages.uploads import (
    HEADS,
    NOTHING_STORED,
    ReceivedForm,
    UploadBody,
    received_form,
    require_form,
)
from corral.controller.http.pipeline.admission import AdmittedRequest, RouteAdmission
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.authentication import authenticate_workload, has_workload_token
from corral.controller.http.pipeline.handler_parameters import bound
from corral.controller.http.pipeline.idempotency import Guard
from corral.controller.http.pipeline.mutator import BoundChange, act, commit, record, replayed, require
from corral.controller.http.pipeline.route_handlers import Describe, Recall
from corral.controller.http.pipeline.route_table import Act, Build, FormUpload, Mutate, Once, Upload
from corral.controller.state.ledger import Mutation
from corral.domain.records import AuditOutcome
from corral.errors import Code, Rejected

_REMEMBERED: Final = 100


class MutateServer:
    """Serves a `Mutate`. Every error leaves the store as it was."""

    def __init__(self, route: Mutate, admission: RouteAdmission) -> None:
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = await self._admission.admit(request)
        guard, match = admitted.guard(admitted.raw), admitted.match()

        async def describe() -> Mutation:
            return self._handler(admitted.leading, admitted.call)

        return await commit(self._change, admitted, describe, guard=guard, match=match)


class BuildServer:
    """Serves a `Build`: contents are stored first, unless the request was answered before."""

    def __init__(self, route: Build, admission: RouteAdmission) -> None:
        self._route = route
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        if self._route.body_limit is None:
            return await self._answer(await self._admission.admit(request))
        async with self._admission.admit_large(request) as admitted:
            return await self._answer(admitted)

    async def _answer(self, admitted: AdmittedRequest) -> ApiResponse:
        guard, match = admitted.guard(admitted.raw), admitted.match()
        if (known := replayed(self._route, admitted, guard)) is not None:
            return known.answer
        require(self._route, admitted, match)
        describe = await self._handler(admitted.leading, admitted.call)
        return await commit(self._change, admitted, describe, guard=guard, match=match)


class UploadServer:
    """Serves an `Upload`. Everything that can be refused without the body is refused before it is read."""

    def __init__(self, route: Upload, admission: RouteAdmission) -> None:
        self._route = route
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=2)
        self._limit = bound(route.limit, given=0)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = self._admission.admit_unread(request)
        match = admitted.match()
        keyed = admitted.guard(b"") is not None
        require(self._route, admitted, match)
        request.require_bytes()
        limit = self._limit(admitted.leading)
        request.refuse_declared(limit)
        pace = self._admission.setting.upload_pace()
        incoming = UploadBody(request, limit=limit, pace=pace, digested=keyed)
        describe = await self._taken_in(admitted, incoming)
        guard = admitted.guard(incoming.digest)
        return await commit(self._change, admitted, describe, guard=guard, match=match)

    async def _taken_in(self, admitted: AdmittedRequest, incoming: UploadBody) -> Describe:
        """Let the handler read the body; what ends a stream of this caller ends it, too."""

        async def work() -> Describe:
            async with contextlib.aclosing(incoming.pieces()) as pieces:
                describe = await self._handler(admitted.leading, admitted.call, pieces)
            await incoming.drain()
            return describe

        uploads = admitted.leading.uploads
        with uploads.opened(admitted.call.caller) as stream:
            return await uploads.within(stream, work(), otherwise=NOTHING_STORED)


class ActServer:
    """Serves an `Act`: announced in the audit, then the effect, then its record."""

    def __init__(self, route: Act, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=1)
        self._by_itself = bound(route.by_itself, given=2) if route.by_itself is not None else None
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        if self._by_itself is not None and has_workload_token(request):
            return await self._reported(request, self._by_itself)
        admitted = await self._admission.admit(request)
        guard = admitted.guard(admitted.raw)
        admitted.refuse_match(self._route)

        async def do(attempt: Attempt) -> ApiResponse:
            await announce(self._route, admitted, attempt)
            mutation = await self._handler(admitted.leading, admitted.call)
            answer = (await record(admitted, mutation, guard=guard, attempt=attempt)).answer
            if mutation.afterwards is not None:
                mutation.afterwards()
            return answer

        return await act(self._route, admitted, do, guard=guard)

    async def _reported(self, request: HttpRequest, handler: Callable[..., object]) -> ApiResponse:
        """A report of an instance about itself. FORBIDDEN for any other."""
        admission = self._admission
        leading = admission.leading()
        run = authenticate_workload(leading, request, late=False)
        request.made_by(f"instance:{run.instance}")
        if admission.path(request)["id"] != run.instance:
            raise Rejected(
                Code.FORBIDDEN,
                f"the token is that of instance '{run.instance}', which reports about itself alone",
                hint="use an API token for others",
            )
        admission.query(request)
        body = await admission.decode_body(await admission.read_body(request))
        return shaped(handler(leading, run, body), status=self._route.status)


async def announce(
    route: Act | FormUpload, admitted: AdmittedRequest, attempt: Attempt, *, sha256: str = ""
) -> None:
    """Record an act before anything is done; what is only examined is not recorded. `sha256`: of what was sent."""
    call = admitted.call
    if not getattr(call.query, "dry_run", False):
        after = (
            None if route.details is None else route.details(call) | ({"digest": sha256} if sha256 else {})
        )
        await attempt.announce(action=route.action, subject=route.subject(call), id=call.request, after=after)
        admitted.refuse_changed_rights()  # the store may have taken a while


class TermEndServer:
    """Serves an `Act` that ends the term: this process alone remembers the answers under keys."""

    def __init__(self, route: Act, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=1)
        self._admission = admission
        self._remembered: dict[Guard, ApiResponse] = {}

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = await self._admission.admit(request)
        guard = admitted.guard(admitted.raw)
        admitted.refuse_match(self._route)

        async def do(attempt: Attempt) -> ApiResponse:
            if guard is not None and (known := self._remembered.get(guard)) is not None:
                return known
            await announce(self._route, admitted, attempt)
            mutation = await self._handler(admitted.leading, admitted.call)
            answer = shaped(admitted.shown(mutation.body), status=mutation.status)
            if guard is not None:
                self._remember(guard, answer)
            return answer

        return await act(self._route, admitted, do, guard=guard)

    def _remember(self, guard: Guard, answer: ApiResponse) -> None:
        self._remembered[guard] = msgspec.structs.replace(answer, headers=(*answer.headers, *REPLAYED))
        while len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]


class OnceServer:
    """Serves a `Once`: recorded before and after the effect; see `Attempt`."""

    def __init__(self, route: Once, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=2)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = await self._admission.admit(request)
        guard = admitted.guard(admitted.raw)
        admitted.refuse_match(self._route)

        async def do(attempt: Attempt) -> ApiResponse:
            mutation = await self._handler(admitted.leading, admitted.call, attempt)
            return await finish(admitted, mutation, attempt)

        return await act(self._route, admitted, do, guard=guard)


async def finish(admitted: AdmittedRequest, mutation: Mutation, attempt: Attempt) -> ApiResponse:
    """Record what an effect that must not come twice brought about; its answer."""
    await attempt.finish(
        *mutation.steps,
        answer=shaped(mutation.body, status=mutation.status),
        outcome=AuditOutcome.FAILED if mutation.failed else AuditOutcome.OK,
        code=mutation.failed,
        before=mutation.before,
        after=mutation.after,
    )
    return shaped(admitted.shown(mutation.body), status=mutation.status, headers=mutation.headers)


class IntakeServer:
    """Serves a `FormUpload`. Everything that can be refused without the body is refused before it is read."""

    def __init__(self, route: FormUpload, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=3 if route.once else 2)
        self._limit = bound(route.limit, given=0)
        self._directory = bound(route.directory, given=0)
        self._recall = bound(route.recall, given=1) if route.recall is not None else None
        self._check = bound(route.check, given=1) if route.check is not None else None
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        if self._recall is not None and request.is_json:
            return await self._recalled(request, self._recall)
        admitted = self._admission.admit_unread(request)
        leading, call = admitted.leading, admitted.call
        if not self._route.bare:
            admitted.refuse_match(self._route)
        known = admitted.guard(b"")
        if self._check is not None and (known is None or leading.state.idempotency.find(known.id) is None):
            self._check(leading, call)  # of a request that was answered before the answer is given again
        async with self._received(admitted) as form:
            guard = admitted.guard(form.digest)

            async def do(attempt: Attempt) -> ApiResponse:
                if self._route.once:
                    return await finish(admitted, await self._handler(leading, call, form, attempt), attempt)
                await announce(self._route, admitted, attempt, sha256=form.sha256)
                mutation = await self._handler(leading, call, form)
                return (await record(admitted, mutation, guard=guard, attempt=attempt)).answer

            return await act(self._route, admitted, do, guard=guard)

    async def _recalled(self, request: HttpRequest, recall: Recall) -> ApiResponse:
        """With a form that was received before. It is looked for once it is known that the request was not answered
        before."""
        admitted = await self._admission.admit(request)
        leading, call = admitted.leading, admitted.call
        admitted.refuse_match(self._route)
        guard = admitted.guard(admitted.raw)

        async def do(attempt: Attempt) -> ApiResponse:
            await announce(self._route, admitted, attempt)
            async with recall(leading, call) as form:
                mutation = await self._handler(leading, call, form)
            return (await record(admitted, mutation, guard=guard, attempt=attempt)).answer

        return await act(self._route, admitted, do, guard=guard)

    @contextlib.asynccontextmanager
    async def _received(self, admitted: AdmittedRequest) -> AsyncIterator[ReceivedForm]:
        """The form, whole; what ends a stream of this caller ends its coming in, too."""
        request, leading, small = admitted.request, admitted.leading, self._route.small
        content_type = None if self._route.bare else request.header(b"content-type") or ""
        if content_type is None:
            request.require_bytes()
        else:
            require_form(content_type)
            request.require_plain()
        limit = self._limit(leading)
        whole = limit + sum(small.values()) + HEADS
        request.refuse_declared(whole)
        pace = self._admission.setting.upload_pace()
        incoming = UploadBody(request, limit=whole, pace=pace, digested=False)
        directory = self._directory(leading)
        async with contextlib.AsyncExitStack() as stack:
            pieces = await stack.enter_async_context(contextlib.aclosing(incoming.pieces()))
            receiving = received_form(
                pieces, content_type=content_type, directory=directory, limit=limit, small=small
            )
            with leading.uploads.opened(admitted.call.caller) as stream:
                entering = stack.enter_async_context(receiving)
                form = await leading.uploads.within(stream, entering, otherwise=NOTHING_STORED)
            yield form
