"""Servers of routes that only look: probes, reads, assets, and what workloads report of themselves."""

from __future__ import annotations

from typing import Final

from corral.controller.http.admission import Admission
from corral.controller.http.authentication import authenticate_workload, is_within
from corral.controller.http.handler_parameters import bound
from corral.controller.http.request import Request
from corral.controller.http.responses import Answer, shaped
from corral.controller.http.route_table import PUBLIC, Asset, Probe, Read, Report
from corral.domain.sensitive_fields import redacted, sees_all

_EMPTY_BODY: Final = b"{}"


class ProbeServer:
    """Serves a `Probe`: also on a standby, and without a token where the route is public."""

    def __init__(self, route: Probe, admission: Admission) -> None:
        self._route = route
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admission = self._admission
        admission.query(request)
        if self._route.permission is not PUBLIC and not self._is_scraper(request):
            admission.caller(admission.leading(), request)
        return await self._route.handler(admission.setting, admission.gate)

    def _is_scraper(self, request: Request) -> bool:
        networks = self._admission.setting.scrape_networks
        return self._route.open_to_scrapers and is_within(request.address, networks)


class ReadServer:
    """Serves a `Read`; fields that a role may not see are left out."""

    def __init__(self, route: Read, admission: Admission) -> None:
        self._status = route.status
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admitted = await self._admission.admit(request)
        found = await self._handler(admitted.leading, admitted.call)
        shown = found if sees_all(admitted.call.caller.token.role) else redacted(found)
        return shaped(shown, status=self._status)


class AssetServer:
    """Serves an `Asset`, or says that the caller has it already."""

    def __init__(self, route: Asset, admission: Admission) -> None:
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        admitted = await self._admission.admit(request)
        return _unless_held(await self._handler(admitted.leading, admitted.call), request)


class ReportServer:
    """Serves a `Report`: the caller is a run, known by its own token."""

    def __init__(self, route: Report, admission: Admission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=2)
        self._admission = admission

    async def answer(self, request: Request) -> Answer:
        leading = self._admission.leading()
        run = authenticate_workload(leading, request, late=self._route.late)
        request.made_by(f"instance:{run.instance}")
        self._admission.query(request)
        raw = await self._admission.read_body(request)
        body = await self._admission.decode_body(raw or _EMPTY_BODY)
        return shaped(self._handler(leading, run, body), status=self._route.status)


def _unless_held(answer: Answer, request: Request) -> Answer:
    """An asset, or word that the caller has it already (RFC 9110: tags are compared weakly here)."""
    tag = dict(answer.headers).get(b"etag", b"").decode("latin-1")
    held = (request.header(b"if-none-match") or "").split(",")
    if answer.status != 200 or tag not in {each.strip().removeprefix("W/") for each in held}:
        return answer
    return Answer(status=304, headers=answer.headers)
