"""`corral login --browser`: approved by somebody who has logged in elsewhere."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from people import Person, logged_in, make_user

from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually


@pytest.fixture
async def api(scratch: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(scratch) as cluster:
        yield await cluster.controller()


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


async def test_a_browser_goes_with_nothing_else(api: LocalController, tmp_path: pathlib.Path) -> None:
    ada = Person(tmp_path / "ada")
    done = await ada.run("login", api.url, "--browser", "--user", "ada")
    assert (done.returncode, "means nothing beside --browser" in done.stderr) == (2, True)
