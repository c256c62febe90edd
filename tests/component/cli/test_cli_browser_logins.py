"""`corral login --browser`: approved by somebody who has logged in elsewhere."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from people import Person, logged_in, make_user
from stand_in_controller import StandIn, refused

from corral.testing.cluster import CHEAP_HASHES, LocalCluster, LocalController
from corral.testing.waiting import eventually


@pytest.fixture
async def api(scratch: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(scratch) as cluster:
        yield await cluster.controller(hash_cost=CHEAP_HASHES)


def waiting_code(api: LocalController) -> str:
    """The code that the command line shows, as the controller knows it."""
    term = api.app.role.term
    assert term is not None
    codes = list(term.http.logins.devices.waiting)
    return codes[0].user_code if codes else ""


@pytest.mark.parametrize("approve", [True, False])
async def test_a_command_line_waits_for_the_approval(
    api: LocalController, tmp_path: pathlib.Path, approve: bool
) -> None:
    await make_user(api)
    ada, server = await logged_in(api, tmp_path / "ada"), Person(tmp_path / "server")
    login = asyncio.create_task(server.run("login", api.url, "--browser"))
    await eventually(lambda: bool(waiting_code(api)))
    body = {"user_code": waiting_code(api), "approve": approve}
    await api.call("POST", "/api/v1/auth/device/decide", body, token=ada.token)
    done = await login
    assert f"open {api.url}/login in a browser" in done.stderr
    if approve:
        assert done.returncode == 0, done.stderr
        assert server.token != ada.token
        assert "ada" in (await server.run("whoami")).stdout
    else:
        assert (done.returncode, "the login was refused" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "passing",
    [
        refused(429, "RATE_LIMITED", "too many requests"),
        refused(503, "NOT_LEADER", "another one leads"),
        refused(503, "STORE_UNAVAILABLE", "the store does not answer"),
        None,
    ],
)
async def test_a_wait_for_the_approval_outlives_what_passes(
    server: StandIn, tmp_path: pathlib.Path, passing: Any
) -> None:
    answers = iter(
        [
            *(passing, passing),  # a kept connection that is lost is replaced once without a word
            refused(401, "LOGIN_PENDING", "not yet"),
            *(passing, passing),
            (200, {"token": "corral_s_1", "user": "ada"}),
        ]
    )
    begun = {
        "device_code": "d",
        "user_code": "ABCD-EFGH",
        "page": "/login",
        "expires_at": "2020-01-01T00:00:00Z",
    }
    server.answers["POST", "/api/v1/auth/device"] = (200, begun)
    server.answers["POST", "/api/v1/auth/login"] = lambda request: next(answers)
    done = await Person(tmp_path / "ada").run("login", server.url, "--browser")
    assert done.returncode == 0, done.stderr
    assert "enter the code ABCD-EFGH; it holds 10 minutes" in done.stderr
    assert done.stderr.count("; trying again") == 1


async def test_a_browser_goes_with_nothing_else(api: LocalController, tmp_path: pathlib.Path) -> None:
    ada = Person(tmp_path / "ada")
    done = await ada.run("login", api.url, "--browser", "--user", "ada")
    assert (done.returncode, "means nothing beside --browser" in done.stderr) == (2, True)
