"""A command line that is let in by a person with a browser."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import httpx
import pytest
from browsers import LOGIN, OTHER, browser, make_user, refused
from http_rig import Rig

from corral.controller.accounts.device_logins import DeviceLogins
from corral.errors import Code, CorralError

DEVICE = "/api/v1/auth/device"


async def begin(rig: Rig) -> dict[str, Any]:
    async with rig.client("") as line:
        answer = await line.post(DEVICE, headers={"User-Agent": "corral/1 on a server"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def wait(rig: Rig, device_code: str) -> httpx.Response:
    async with rig.client("") as line:
        return await line.post(LOGIN, json={"device_code": device_code, "kind": "COMMAND_LINE"})


async def test_a_command_line_that_waits_gets_the_session_of_whoever_approves_it(rig: Rig) -> None:
    await make_user(rig)
    begun = await begin(rig)
    waiting = asyncio.create_task(wait(rig, begun["device_code"]))
    async with browser(rig) as ada:
        typed = begun["user_code"].lower().replace("-", " ")
        shown = (await ada.post(f"{DEVICE}/find", json={"user_code": typed})).json()
        assert (shown["address"], shown["agent"]) == ("127.0.0.1", "corral/1 on a server")
        answer = await ada.post(f"{DEVICE}/decide", json={"user_code": typed, "approve": True})
        assert answer.status_code == 200, answer.text
        again = await ada.post(f"{DEVICE}/decide", json={"user_code": typed, "approve": True})
        assert refused(again) == "NOT_FOUND"
    let_in = await waiting
    async with rig.client(let_in.json()["token"]) as line:
        me = (await line.get("/api/v1/auth/me")).json()
        assert (me["user"], me["session"]["kind"]) == ("ada", "COMMAND_LINE")
    assert refused(await wait(rig, begun["device_code"])) == "LOGIN_FAILED"
    (entry,) = await rig.audits("auth.device")
    assert (entry["actor"], entry["after"]["approved"]) == ("user:ada", True)


async def test_a_login_that_is_refused_gets_nothing(rig: Rig) -> None:
    await make_user(rig)
    begun = await begin(rig)
    async with browser(rig) as ada:
        await ada.post(f"{DEVICE}/decide", json={"user_code": begun["user_code"], "approve": False})
    assert refused(await wait(rig, begun["device_code"])) == "LOGIN_FAILED"
    assert len(rig.state.user_sessions) == 1


async def test_only_who_has_logged_in_approves(rig: Rig) -> None:
    begun = await begin(rig)
    body = {"user_code": begun["user_code"], "approve": True}
    async with rig.client() as admin, rig.client("") as stranger:
        assert refused(await admin.post(f"{DEVICE}/decide", json=body)) == "FORBIDDEN"
        assert (await stranger.post(f"{DEVICE}/decide", json=body)).status_code == 401


async def test_a_user_who_was_locked_meanwhile_lets_nobody_in(rig: Rig) -> None:
    await make_user(rig)
    begun = await begin(rig)
    async with browser(rig) as ada, rig.client() as admin:
        await ada.post(f"{DEVICE}/decide", json={"user_code": begun["user_code"], "approve": True})
        await admin.post("/api/v1/users/ada/lock", json={"reason": "left"})
    assert refused(await wait(rig, begun["device_code"])) == "LOGIN_FAILED", "a lock ends the session, too"


@pytest.mark.trap("T25")
@pytest.mark.parametrize("how", ["logout", "password", "removal"])
async def test_an_approval_ends_with_the_session_in_which_it_was_given(rig: Rig, how: str) -> None:
    await make_user(rig)
    begun = await begin(rig)
    async with browser(rig) as ada, rig.client() as admin:
        await ada.post(f"{DEVICE}/decide", json={"user_code": begun["user_code"], "approve": True})
        match how:
            case "logout":
                answer = await ada.post("/api/v1/auth/logout")
            case "password":
                answer = await admin.post("/api/v1/users/ada/password", json={"password": OTHER})
            case "removal":
                answer = await admin.delete("/api/v1/users/ada")
                await make_user(rig, role="ADMIN")
        assert answer.is_success
    assert refused(await wait(rig, begun["device_code"])) == "LOGIN_FAILED"
    assert not len(rig.state.user_sessions)


async def test_nobody_prolongs_a_session_by_approving_another(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        rig.clock.offset = dt.timedelta(hours=11)
        begun = await begin(rig)
        await ada.post(f"{DEVICE}/decide", json={"user_code": begun["user_code"], "approve": True})
        ends = (await ada.get("/api/v1/auth/me")).json()["session"]["expires_at"]
    assert (await wait(rig, begun["device_code"])).json()["expires_at"] == ends


async def test_codes_expire_and_are_bounded(rig: Rig) -> None:
    await make_user(rig)
    begun = await begin(rig)
    for _ in range(9):
        await begin(rig)
    async with rig.client("") as line:
        assert refused(await line.post(DEVICE)) == "RATE_LIMITED"
    rig.clock.elapsed = 11 * 60.0
    async with browser(rig) as ada:
        late = await ada.post(f"{DEVICE}/find", json={"user_code": begun["user_code"]})
        assert refused(late) == "NOT_FOUND"
        for odd in ("", "x" * 41, "💥", "AAAA-AAAA"):
            assert (await ada.post(f"{DEVICE}/find", json={"user_code": odd})).status_code in (400, 404)


async def test_a_command_line_is_told_to_ask_again(rig: Rig) -> None:
    logins = DeviceLogins(clock=rig.clock, entropy=rig.entropy)
    code, _ = logins.begin(address="127.0.0.1", agent="")
    with pytest.raises(CorralError) as pending:
        async with logins.approved(code, seconds=0.01):
            pass
    assert pending.value.code is Code.LOGIN_PENDING
