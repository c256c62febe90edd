"""People who log in: in a browser, which has a cookie and the second secret, or by a command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from http_rig import DEADLINE, Rig

LOGIN = "/api/v1/auth/login"
PASSWORD = "mossy kettle under nine bridges"
OTHER = "nineteen lamps and a wet umbrella"
CSRF = "X-Corral-CSRF"


async def make_user(
    rig: Rig, name: str = "ada", *, role: str = "OPERATOR", password: str | None = PASSWORD, **more: Any
) -> dict[str, Any]:
    """A user who may log in at once, unless the test says otherwise."""
    body = {"name": name, "bindings": [{"role": role}], "must_change_password": False, **more}
    if password is not None:
        body["password"] = password
    async with rig.client() as admin:
        answer = await admin.post("/api/v1/users", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def log_in(rig: Rig, name: str = "ada", password: str = PASSWORD, **more: Any) -> httpx.Response:
    async with rig.client("") as stranger:
        return await stranger.post(LOGIN, json={"name": name, "password": password, **more})


def refused(answer: httpx.Response) -> str:
    """The code of a refusal."""
    code: str = answer.json()["error"]["code"]
    return code


def cookie_of(answer: httpx.Response) -> tuple[str, str]:
    """Name and value of the cookie that an answer sets."""
    name, _, rest = answer.headers["set-cookie"].partition("=")
    return name, rest.partition(";")[0]


def session_client(rig: Rig, answer: httpx.Response, *, csrf: bool = True) -> httpx.AsyncClient:
    """A browser with the cookie of this login, and with the second secret unless that is left out."""
    assert answer.status_code == 200, answer.text
    name, value = cookie_of(answer)
    headers = {"Cookie": f"{name}={value}"}
    if csrf:
        headers[CSRF] = answer.json()["csrf"]
    return httpx.AsyncClient(base_url=rig.url, headers=headers, timeout=DEADLINE, verify=False)


@contextlib.asynccontextmanager
async def browser(rig: Rig, name: str = "ada", password: str = PASSWORD) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has logged in in a browser."""
    async with session_client(rig, await log_in(rig, name, password)) as made:
        yield made


@contextlib.asynccontextmanager
async def command_line(
    rig: Rig, name: str = "ada", password: str = PASSWORD
) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has logged in by a command line."""
    answer = await log_in(rig, name, password, kind="COMMAND_LINE")
    assert answer.status_code == 200, answer.text
    async with rig.client(answer.json()["token"]) as made:
        yield made
