"""Servers of routes that commit a description: of a change, of contents that were built, of an upload."""

from __future__ import annotations

import contextlib

from corral.controller.http.admission import Admission, AdmittedRequest
from corral.controller.http.handler_parameters import bound
from corral.controller.http.mutator import BoundChange, commit, replayed, require
from corral.controller.http.request import Request
from corral.controller.http.responses import Answer
from corral.controller.http.route_table import Build, Describe, Mutate, Upload
from corral.controller.http.uploading import NOTHING_STORED, Incoming
from corral.controller.state.ledger import Mutation


class MutateServer:
    """Serves a `Mutate`. Every error leaves the store as it was."""

    def __init__(self, route: Mutate, admission: Admission) -> None:
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admitted = await self._admission.admit(request)
        guard, match = admitted.guard(admitted.raw), admitted.match()

        async def describe() -> Mutation:
            return self._handler(admitted.leading, admitted.call)

        return await commit(self._change, admitted, describe, guard=guard, match=match)


class BuildServer:
    """Serves a `Build`: contents are stored first, unless the request was answered before."""

    def __init__(self, route: Build, admission: Admission) -> None:
        self._route = route
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admitted = await self._admission.admit(request)
        guard, match = admitted.guard(admitted.raw), admitted.match()
        if (known := replayed(self._route, admitted, guard)) is not None:
            return known.answer
        require(self._route, admitted, match)
        describe = await self._handler(admitted.leading, admitted.call)
        return await commit(self._change, admitted, describe, guard=guard, match=match)


class UploadServer:
    """Serves an `Upload`. Everything that can be refused without the body is refused before it is read."""

    def __init__(self, route: Upload, admission: Admission) -> None:
        self._route = route
        self._change = BoundChange(route)
        self._handler = bound(route.handler, given=2)
        self._limit = bound(route.limit, given=0)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admitted = self._admission.admit_unread(request)
        match = admitted.match()
        keyed = admitted.guard(b"") is not None
        require(self._route, admitted, match)
        request.require_bytes()
        limit = self._limit(admitted.leading)
        request.refuse_declared(limit)
        pace = self._admission.setting.upload_pace()
        incoming = Incoming(request, limit=limit, pace=pace, digested=keyed)
        describe = await self._taken_in(admitted, incoming)
        guard = admitted.guard(incoming.digest)
        return await commit(self._change, admitted, describe, guard=guard, match=match)

    async def _taken_in(self, admitted: AdmittedRequest, incoming: Incoming) -> Describe:
        """Let the handler read the body; what ends a stream of this caller ends it, too."""

        async def work() -> Describe:
            async with contextlib.aclosing(incoming.pieces()) as pieces:
                describe = await self._handler(admitted.leading, admitted.call, pieces)
            await incoming.drain()
            return describe

        uploads = admitted.leading.uploads
        with uploads.opened(admitted.call.caller.token) as stream:
            return await uploads.within(stream, work(), otherwise=NOTHING_STORED)
