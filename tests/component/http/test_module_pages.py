"""`Corral-Page`: what a page of a module asks for is answered by this module's routes, or not at all."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import httpx
import pytest
from http_rig import Rig, http_rig
from module_archives import module_zip
from module_source import ROUTED
from test_module_routes import error

from corral.controller.http.messages.universe_errors import is_universe_path
from corral.controller.http.pipeline.route_table import Page, Relay, Socket
from corral.controller.http.routes import ROUTES

BASE = "/api/v1/modules/routed"
PAGE = {"Corral-Page": "routed"}


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data) as made:
        assert (await made.install(module_zip("routed", source=ROUTED, name="Routed")))["phase"] == "ACTIVE"
        yield made


async def test_a_page_calls_routes_of_its_module_and_the_audit_names_it(
    rig: Rig, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{BASE}/echo/x", headers=PAGE)
    assert answer.status_code == 200
    assert "corral-page" not in answer.json()["headers"], "a module knows its pages by itself"
    assert (await client.head(f"{BASE}/echo/x", headers=PAGE)).status_code == 200
    for headers, named in ((PAGE, "routed"), ({}, None)):
        assert (await client.post(f"{BASE}/points", json={"x": 1}, headers=headers)).is_success
        newest = (await rig.audits("modules.call"))[0]
        assert newest["after"].get("page") == named


async def test_a_page_reaches_no_other_route_whoever_looks_at_it(rig: Rig, client: httpx.AsyncClient) -> None:
    tried = 0
    for route in ROUTES:
        if isinstance(route, Relay | Page | Socket):
            continue
        path = route.path
        for name in route.parameters:
            path = path.replace(f"{{{name}}}", "routed" if name == "id" else "x")
        answer = await client.request(route.method, path, headers=PAGE)
        if is_universe_path(route.path):
            assert (answer.status_code, "routed" in answer.json()["error"]) == (403, True), route.name
        else:
            assert error(answer) == (403, "FORBIDDEN"), route.name
            assert answer.json()["error"]["field"] == "Corral-Page"
        tried += 1
    assert tried > 150
    shown = await client.get(f"{BASE}/state", headers=PAGE)
    assert shown.status_code == 200, "it was not paused, deactivated or uninstalled"


async def test_a_page_names_its_own_module_once(rig: Rig, client: httpx.AsyncClient) -> None:
    other = await client.get(f"{BASE}/echo/x", headers={"Corral-Page": "another"})
    assert error(other) == (403, "FORBIDDEN")
    twice = await client.get(
        f"{BASE}/echo/x", headers=[("Corral-Page", "routed"), ("Corral-Page", "another")]
    )
    assert error(twice) == (400, "BAD_REQUEST")
    for strange in ("", "x" * 3000, "../routed", "*"):
        assert error(await client.get(f"{BASE}/echo/x", headers={"Corral-Page": strange}))[0] == 403
    wrong = await client.patch("/api/v1/instances", headers=PAGE)
    assert error(wrong) == (403, "FORBIDDEN"), "not even which methods there are"


async def test_the_header_gives_no_rights(rig: Rig) -> None:
    async with rig.client("") as nobody:
        assert error(await nobody.get(f"{BASE}/echo/x", headers=PAGE))[0] == 401
