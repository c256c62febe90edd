"""Browsers from other origins: listed ones may, all others may not, and nobody with cookies."""

from __future__ import annotations

import httpx
import pytest

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
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_answers_to_a_listed_origin_say_so_also_when_they_refuse(controller):
    answer = await ask(controller, "GET", "/api/v1/nodes", origin=ORIGIN)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example.org", "null", "*", ORIGIN + ".evil.org"])
async def test_any_other_origin_is_told_nothing(controller, origin):
    for method in ("GET", "OPTIONS"):
        answer = await ask(controller, method, "/health", origin=origin)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_without_listed_origins_there_is_no_such_thing(cluster):
    controller = await cluster.controller()
    answer = await ask(controller, "GET", "/health", origin=ORIGIN)
    assert "access-control-allow-origin" not in answer.headers
