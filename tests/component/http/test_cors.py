"""Browsers from other origins: listed ones may, all others may not, and nobody with cookies."""

from __future__ import annotations

import httpx
import pytest

from corral.controller.http.messages.responses import SECURITY_HEADERS

ORIGIN = "https://panel.example.org"


@pytest.fixture
async def controller(cluster):
    return await cluster.controller(http__cors__origins=[ORIGIN])


async def ask(controller, method: str, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=controller.url) as client:
        return await client.request(method, path, headers=headers)


async def test_a_listed_origin_may_ask_before_it_calls(controller):
    preflight = {"origin": ORIGIN, "access-control-request-method": "PATCH"}
    answer = await ask(controller, "OPTIONS", "/api/v1/nodes", **preflight)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"]
    assert {"Authorization", "X-Corral-CSRF"} <= set(allowed.split(", "))
    assert "*" not in "".join(answer.headers.values())
    assert "access-control-allow-credentials" not in answer.headers
    for name, value in SECURITY_HEADERS:
        assert answer.headers.get_list(name.decode()) == [value.decode()]


async def test_answers_to_a_listed_origin_say_so_also_when_they_refuse(controller):
    answer = await ask(controller, "GET", "/api/v1/nodes", origin=ORIGIN)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"


async def test_a_listed_origin_may_change_things_and_another_one_may_not(controller):
    bearer = {"authorization": f"Bearer {controller.admin_token}"}
    for method in ("POST", "PATCH", "DELETE"):
        refused = await ask(controller, method, "/api/v1/groups/lobby", origin="https://evil.example.org")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "ORIGIN_REFUSED")
        assert "access-control-allow-origin" not in refused.headers
        # a page that has a token was given it: it is another matter whether it may read the answer
        for more in ({}, bearer):
            answer = await ask(controller, method, "/api/v1/groups/lobby", origin=ORIGIN, **more)
            assert answer.status_code != 403
            assert answer.headers["access-control-allow-origin"] == ORIGIN


async def test_an_origin_may_be_listed_with_capitals_and_with_the_usual_port(cluster):
    controller = await cluster.controller(http__cors__origins=["HTTPS://Panel.Example.org:443"])
    answer = await ask(controller, "GET", "/health", origin=ORIGIN)
    assert answer.headers["access-control-allow-origin"] == ORIGIN


async def test_any_other_origin_is_told_nothing(controller):
    for origin in ["https://evil.example.org", "null", "*", ORIGIN + ".evil.org"]:
        for method in ("GET", "OPTIONS"):
            answer = await ask(controller, method, "/health", origin=origin)
            assert not [name for name in answer.headers if name.startswith("access-control-")], origin


async def test_without_listed_origins_there_is_no_such_thing(cluster):
    controller = await cluster.controller()
    answer = await ask(controller, "GET", "/health", origin=ORIGIN)
    assert "access-control-allow-origin" not in answer.headers
