"""Every route and every kind of caller: who is let in, and what the others are told.

What has to come out is worked out in `route_matrix` from the table of routes, apart from the code that decides.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import AsyncIterator, Sequence

import pytest
from http_rig import Rig, http_rig
from kept_connection import UPGRADE, Answered, KeptConnection, kept_connection
from matrix_callers import bearer, build_world, callers
from route_matrix import (
    ANSWERS,
    WITHOUT_A_SUBJECT,
    MatrixCaller,
    Request,
    Verdict,
    World,
    expected,
    requests_of,
)
from structlog.testing import capture_logs

from corral.controller.http.messages.universe_errors import is_universe_path
from corral.controller.http.pipeline.route_table import PUBLIC, Page, Read, Relay, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Permission, Role

POISON = "no_such_parameter=1"
"""Refused by every route that has let its caller in, before anything is done."""

HEAD_CALLERS = ("none", "wrong Host with a cookie", *Role)

OPEN_FAMILIES: dict[str, set[str]] = {
    "health": {"GET /health"},
    "readiness": {"GET /ready"},
    "ping": {"GET /api/ping"},
    "login": {
        "POST /api/v1/auth/login",
        "POST /api/v1/auth/device",
        "GET /api/v1/auth/oidc/start",
        "GET /api/v1/auth/oidc/callback",
    },
    "dashboard": {"GET /", "GET /login", "GET /first-admin", "GET /docs", "GET /ui/assets/{name}"},
    "tickets": {
        "GET /api/v1/audit/export",
        "GET /api/v1/events/stream",
        "GET /api/v1/instances/{id}/console/download",
        "GET /api/v1/instances/{id}/console/stream",
        "GET /api/v1/instances/{id}/console/ws",
        "GET /api/v1/instances/{id}/files/archive",
        "GET /api/console",
        "GET /api/v1/instances/{id}/files/content",
        "GET /api/v1/logs/stream",
        "GET /api/v1/templates/{group}/{name}/-/export",
        "GET /api/v1/templates/{group}/{name}/-/files/{path}",
        "GET /api/v1/templates/{name}/-/export",
        "GET /api/v1/templates/{name}/-/files/{path}",
        "GET /api/instances/{id}/live-log",
        "GET /api/templates/{group}/{name}/files/{path}",
        "POST /api/templates/{group}/{name}/export",
    },
}
"""Everything that answers without a credential in a header, in the six families that may."""


def is_poisonable(request: Request) -> bool:
    """Whether unknown parameters are refused after its caller was let in, and not before or never."""
    route = request.route
    return not isinstance(route, Relay | Page) and route.name != "GET /api/v1/auth/oidc/callback"


async def ask(
    connection: KeptConnection, caller: MatrixCaller, request: Request, *, poisoned: bool
) -> Answered:
    headers = {**caller.headers, **(UPGRADE if request.upgrade else {})}
    query = [POISON] if poisoned else []
    if caller.ticket_for is not None:
        issued = await connection.ask("POST", "/api/v1/events/tickets", caller.ticket_for, b"")
        ticket = json.loads(issued.text)["ticket"]
        if request.upgrade:
            headers["Sec-WebSocket-Protocol"] = f"corral.console, ticket.{ticket}"
        else:
            query.append(f"ticket={ticket}")
    target = f"{request.path}?{'&'.join(query)}" if query else request.path
    body = b"" if request.method not in ("GET", "HEAD") else None
    return await connection.ask(request.method, target, headers, body)


async def mismatch(connection: KeptConnection, caller: MatrixCaller, request: Request) -> str | None:
    """What came in place of what had to; None when it is as it should be."""
    verdict = expected(request, caller)
    poisoned = verdict is Verdict.PASSES and is_poisonable(request)
    answer = await ask(connection, caller, request, poisoned=poisoned)
    if verdict is Verdict.PASSES:
        good = answer.status == 400 if poisoned else answer.status < 500 and _is_let_in(answer)
    else:
        status, codes = ANSWERS[verdict]
        codes = codes if not is_universe_path(request.route.path) else {"a text"}
        good = answer.status == status and (request.method == "HEAD" or answer.code in codes)
    return (
        None if good else f"{caller.name}: {request}: {verdict.value} is due, {answer.status} {answer.text}"
    )


def _is_let_in(answer: Answered) -> bool:
    return answer.status not in (401, 403, 404, 421)


def _is_tried(request: Request, caller: MatrixCaller) -> bool:
    """For who has no scope all subjects are alike, HEAD is GET for everybody if it is for some, and a ticket is nothing
    where none is taken."""
    if caller.ticket_for is not None and not request.route.ticketed and not request.first:
        return False
    return (request.first or caller.is_scoped) and (request.method != "HEAD" or caller.name in HEAD_CALLERS)


async def mismatches(
    rig: Rig, world: World, found: Sequence[MatrixCaller], routes: Sequence[Route] = ROUTES
) -> list[str]:
    # thousands of lines about requests would take as long as the requests
    with capture_logs():
        async with kept_connection(rig) as connection:
            answers = [
                await mismatch(connection, caller, request)
                for route in routes
                for request in requests_of(route, world)
                for caller in found
                if _is_tried(request, caller)
            ]
    return [each for each in answers if each is not None]


@pytest.mark.parametrize("known", [False, True], ids=["nobody", "somebody"])
async def test_every_route_lets_in_whom_the_table_says_and_nobody_else(rig: Rig, known: bool) -> None:
    world = await build_world(rig)
    found = [each for each in await callers(rig) if known == (each.granted is not None or bool(each.run_of))]
    assert await mismatches(rig, world, found) == []


def documented() -> list[set[str]]:
    """The routes of the two tables of the API page: those for everybody, and those that take a ticket."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text()
    section = page.partition("## Routes without credentials\n")[2].partition("\n###")[0]
    tables = section.split("| route | what it does |")[1:]
    return [set(re.findall(r"^\| `([A-Z]+ [^`]+)` \|", each, flags=re.M)) for each in tables]


def named(routes: Sequence[Route]) -> set[str]:
    return {route.name for route in routes}


async def test_exactly_six_families_answer_without_a_credential_in_a_header_and_the_api_page_has_them(
    rig: Rig,
) -> None:
    world = await build_world(rig)
    everywhere = set().union(*OPEN_FAMILIES.values())
    takes_a_ticket = [each for each in ROUTES if each.ticketed]
    assert named([each for each in ROUTES if each.permission is PUBLIC] + takes_a_ticket) == everywhere
    assert named(takes_a_ticket) == OPEN_FAMILIES["tickets"]
    assert documented() == [everywhere - OPEN_FAMILIES["tickets"], OPEN_FAMILIES["tickets"]]
    answering: set[str] = set()
    async with kept_connection(rig) as connection, rig.client() as admin:
        ticket = ""
        for route in ROUTES:
            request = next(requests_of(route, world))
            for query, headers in (
                ("", {}),
                ("?ticket={}", {}),
                ("", {"Sec-WebSocket-Protocol": "ticket.{}"}),
            ):
                ticket = ticket or (await admin.post("/api/v1/events/tickets")).json()["ticket"]
                shown = {name: value.format(ticket) for name, value in headers.items()}
                answer = await connection.ask(request.method, request.path + query.format(ticket), shown)
                if answer.status != 401:
                    answering.add(route.name)
                    ticket = ""  # it may have been used up
    assert answering == everywhere


def takes(route: Route, method: str, path: str) -> bool:
    """Whether a path of another route, taken literally, is one of this route's as well."""
    mine, other = route.path.split("/"), path.split("/")
    if route.rest and len(other) > len(mine):
        other = other[: len(mine)]
    pairs = zip(mine, other, strict=False)
    return (
        route.method == method and len(mine) == len(other) and all(a == b or a[:1] == "{" for a, b in pairs)
    )


async def test_what_the_table_does_not_have_is_nothing_to_anybody(rig: Rig) -> None:
    world = await build_world(rig)
    requests = {route.path: next(requests_of(route, world)) for route in ROUTES}
    tried = 0
    async with kept_connection(rig) as connection:
        for path, request in requests.items():
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                if any(
                    takes(route, method, concrete) for route in ROUTES for concrete in (path, request.path)
                ):
                    continue
                for headers in ({}, bearer(rig.admin)):
                    answer = await connection.ask(method, request.path, headers, b"")
                    code = "a text" if is_universe_path(path) else "METHOD_NOT_ALLOWED"
                    assert (answer.status, answer.code) == (405, code), (method, path)
                    tried += 1
        for path in ("/api/instances/a/none-such", "/api/node/none-such", "/api/templates/a"):
            answer = await connection.ask("GET", path, {})
            assert (answer.status, answer.code) == (404, "a text"), path
        for path in (
            "/api",
            "/api/v1",
            "/api/v2/groups",
            "/api/v1/none-such",
            "/admin",
            "/docs/../health",
        ):
            for headers in ({}, bearer(rig.admin)):
                answer = await connection.ask("GET", path, headers)
                assert (answer.status, answer.code) == (404, "NOT_FOUND"), path
    assert tried > 200


def test_a_route_that_nothing_is_expected_of_fails() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Novelty(Route):
        pass

    world = World(subjects={}, module="", module_routes={})
    common = {"method": "GET", "permission": Permission.SELF_READ, "summary": "s"}
    with pytest.raises(LookupError, match="kind"):
        next(requests_of(Novelty(path="/x", **common), world))  # type: ignore[arg-type]
    odd = Read(path="/x/{other}", handler=lambda: None, **common)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="parameter"):
        next(requests_of(odd, world))


def test_every_route_says_how_it_regards_scopes() -> None:
    """What neither has a subject in its path nor filters needs its permission everywhere: listed, so that a new route is
    thought about."""
    assert {
        route.name for route in ROUTES if route.scoping in (Scoping.FILTERS, Scoping.NEUTRAL)
    } == WITHOUT_A_SUBJECT


CHANGED = {
    "GET /api/v1/audit": {"permission": Permission.SELF_READ},
    "GET /api/v1/groups": {"permission": Permission.TOKENS_MANAGE},
    "GET /metrics": {"permission": PUBLIC},
    "POST /api/v1/nodes/{id}/cordon": {"scope": Scoping.FILTERS},
    "GET /api/v1/instances/{id}": {"scope": Scoping.NEUTRAL},
    "GET /api/v1/modules": {"scope": Scoping.FILTERS},
    "GET /api/v1/nodes": {"scope": Scoping.EVERYWHERE},
    "GET /health": {"browser": True},
}
"""Ways to forget something in the table."""


@pytest.fixture
async def forgetful(data: pathlib.Path) -> AsyncIterator[Rig]:
    changed = [dataclasses.replace(route, **CHANGED.get(route.name, {})) for route in ROUTES]
    async with http_rig(data, routes=changed) as made:
        yield made


async def test_the_matrix_notices_each_route_that_is_looser_or_stricter_than_its_row(forgetful: Rig) -> None:
    """The server has other rows than those that the expectations come from."""
    world = await build_world(forgetful)
    everybody = await callers(forgetful)
    for route in ROUTES:
        if route.name in CHANGED:
            assert await mismatches(forgetful, world, everybody, [route]), route.name
