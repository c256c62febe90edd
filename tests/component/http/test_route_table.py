"""The route table: what it promises by being data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.controller.http.messages.responses import ApiResponse
from corral.controller.http.messages.universe_errors import is_universe_path
from corral.controller.http.pipeline.route_table import (
    PUBLIC,
    WORKLOAD,
    Act,
    CommitRoute,
    Download,
    FormUpload,
    LoginRoute,
    Mutate,
    Once,
    Probe,
    Read,
    Relay,
    Report,
    Route,
    check_table,
)
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import GRANTS, Permission, Role

GUARDED = [route for route in ROUTES if route.permission is not PUBLIC]
FOR_CALLERS = [route for route in GUARDED if route.permission is not WORKLOAD]
FOR_WORKLOADS = [route for route in GUARDED if route.permission is WORKLOAD]


def probe(**changed: Any) -> Probe:
    given = {
        "method": "GET",
        "path": "/x",
        "permission": PUBLIC,
        "summary": "s",
        "handler": lambda setting, gate: ApiResponse(),
    }
    return Probe(**{**given, **changed})


def test_a_route_without_a_permission_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="permission"):
        Probe(method="GET", path="/x", summary="s", handler=lambda setting, gate: ApiResponse())  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="names no permission"):
        probe(permission=None)


@pytest.mark.parametrize(
    "changed", [{"method": "BREW"}, {"path": "x"}, {"summary": ""}], ids=["method", "path", "summary"]
)
def test_a_malformed_route_cannot_be_constructed(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="well-formed"):
        probe(**changed)


def test_a_mutation_is_neither_public_nor_a_get() -> None:
    common: dict[str, Any] = {"path": "/x", "summary": "s", "handler": lambda leading, call: None}
    with pytest.raises(ValueError, match="needs a caller"):
        Mutate(method="POST", permission=PUBLIC, **common)
    with pytest.raises(ValueError, match="needs a caller"):
        Mutate(method="GET", permission=Permission.NODES_MANAGE, **common)


def test_a_table_with_two_routes_for_one_request_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        check_table([probe(path="/x/{id}"), probe(path="/x/{name}")])


def test_only_reads_and_streams_use_get_and_everything_else_mutates_or_is_a_ticket() -> None:
    writing = [route for route in ROUTES if route.method != "GET"]
    others = [
        route.name
        for route in writing
        if not isinstance(route, CommitRoute | Act | Once | FormUpload | Relay | Report | LoginRoute)
    ]
    assert others == [
        "POST /api/v1/auth/totp",
        "POST /api/v1/auth/device/find",
        "POST /api/v1/events/tickets",
        "POST /api/templates/{group}/{name}/export",
    ]
    assert all(isinstance(route, Read | Download) for route in writing if route.name in others)


def concrete(route: Route) -> str:
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", "none-such")
    return path


def firsts_by(key: Callable[[Route], Hashable], routes: Iterable[Route]) -> list[Route]:
    """One route of each kind: `test_route_matrix` asks all of them, and looks at the codes alone."""
    return list({key(route): route for route in reversed([*routes])}.values())


async def test_a_guarded_route_of_each_kind_tells_a_caller_without_a_token_what_to_send(rig: Rig) -> None:
    async with rig.client("") as nobody:
        for route in firsts_by(lambda each: (type(each), is_universe_path(each.path)), GUARDED):
            answer = await nobody.request(route.method, concrete(route))
            assert answer.status_code == 401, route.name
            error = answer.json()["error"]
            if not is_universe_path(route.path):
                assert error["code"] == "UNAUTHENTICATED", route.name
            else:
                assert error.startswith("the request carries no token"), route.name
            assert answer.headers["www-authenticate"].startswith("Bearer"), route.name


@pytest.mark.system
async def test_who_calls_is_asked_before_parameters_are_looked_at(rig: Rig) -> None:
    guarded = [route for route in GUARDED if route.name != "GET /api/v1/events/stream"]  # its ticket is one
    async with rig.client("") as nobody:
        for route in guarded:
            answer = await nobody.request(route.method, concrete(route), params={"no_such_parameter": "1"})
            assert answer.status_code == 401, route.name


async def test_who_lacks_a_permission_is_told_it_and_the_roles_that_grant_it(rig: Rig) -> None:
    routes = firsts_by(lambda each: (each.permission, is_universe_path(each.path)), FOR_CALLERS)
    for role in (Role.VIEWER, Role.OPERATOR):
        _, token = await rig.token(role)
        async with rig.client(token) as caller:
            for route in routes:
                if route.permission in GRANTS[role]:
                    continue
                answer = await caller.request(route.method, concrete(route))
                assert answer.status_code == 403, route.name
                error = answer.json()["error"]
                granted = [each for each in (Role.OPERATOR, Role.ADMIN) if route.permission in GRANTS[each]]
                hint = f"use a token of role {' or '.join(granted)}"
                if is_universe_path(route.path):
                    assert error == f"role {role} does not grant '{route.permission}'; {hint}", route.name
                    continue
                assert error["code"] == "FORBIDDEN", route.name
                assert str(route.permission) in error["message"]
                assert error["hint"] == hint


async def test_no_token_of_a_caller_speaks_for_a_workload(client: httpx.AsyncClient) -> None:
    assert len(FOR_WORKLOADS) == 4
    for route in FOR_WORKLOADS:
        answer = await client.request(route.method, route.path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "WORKLOAD_TOKEN_INVALID")


def test_only_reports_are_for_workloads() -> None:
    common: dict[str, Any] = {"method": "POST", "path": "/x", "summary": "s", "handler": lambda *_: None}
    with pytest.raises(ValueError, match="mixes up"):
        Read(permission=WORKLOAD, **common)
    with pytest.raises(ValueError, match="mixes up"):
        Report(permission=Permission.NODES_READ, **common)


async def test_a_literal_path_wins_over_a_pattern(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    assert (await client.get("/api/v1/nodes/join-tokens")).json() == {"items": [], "next": None}
    refused = await client.post("/api/v1/nodes/join-tokens", json={"node_id": "join-tokens"})
    assert refused.status_code == 400
    assert "reserved" in refused.json()["error"]["message"]
