"""Logins by password: what they give, what they refuse, and what they tell to whom."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib

import msgspec
import pytest
from browsers import (
    CSRF,
    LOGIN,
    OTHER,
    PASSWORD,
    browser,
    command_line,
    cookie_of,
    log_in,
    make_user,
    refused,
)
from http_rig import Rig, http_rig
from structlog.testing import capture_logs

from corral.controller.accounts.passwords import HashCost, Passwords
from corral.controller.state.collections import USERS
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

ME = "/api/v1/auth/me"


async def test_a_login_in_a_browser_gives_a_cookie_and_the_secret_that_goes_with_it(rig: Rig) -> None:
    await make_user(rig)
    answer = await log_in(rig)
    found = answer.json()
    assert (answer.status_code, found["user"], found["kind"], found["token"]) == (200, "ada", "BROWSER", "")
    header = answer.headers["set-cookie"]
    name, value = cookie_of(answer)
    assert name == f"corral-{rig.state.identity.id[:8]}-{rig.server.address.port}"
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    assert "Path=/" in header
    assert "Secure" not in header
    assert found["csrf"]
    assert found["csrf"] not in value
    async with browser(rig) as person:
        me = (await person.get(ME)).json()
    assert (me["user"], me["token"], me["session"]["authenticated_by"]) == ("ada", None, "PASSWORD")
    assert me["session"]["current"]
    assert "groups.manage" in me["permissions"]


async def test_no_secret_of_a_login_is_stored(rig: Rig) -> None:
    await make_user(rig)
    answer = await log_in(rig)
    _, value = cookie_of(answer)
    stored = str(rig.commits)
    assert value.partition("_")[0] in stored
    for secret in (PASSWORD, value.partition("_")[2], answer.json()["csrf"]):
        assert secret not in stored


async def test_the_cookie_alone_opens_nothing(rig: Rig) -> None:
    """A web map on another port of this host receives it, and has no way to get the second secret."""
    await make_user(rig, role="ADMIN")
    name, value = cookie_of(await log_in(rig))
    async with rig.client("") as map_server:
        for csrf in ({}, {CSRF: ""}, {CSRF: value}, {CSRF: "x" * 52}):
            headers = {"Cookie": f"{name}={value}", **csrf}
            for method, path in (("GET", ME), ("GET", "/api/v1/groups"), ("POST", "/api/v1/auth/logout")):
                answer = await map_server.request(method, path, headers=headers)
                assert (answer.status_code, refused(answer)) == (401, "UNAUTHENTICATED")
        as_token = await map_server.get(ME, headers={"Authorization": f"Bearer corral_{value}"})
        assert as_token.status_code == 401
    assert len(rig.state.user_sessions) == 1


async def test_the_secret_of_one_session_is_not_accepted_with_the_cookie_of_another(rig: Rig) -> None:
    await make_user(rig)
    first, second = await log_in(rig), await log_in(rig)
    name, value = cookie_of(first)
    async with rig.client("") as client:
        headers = {"Cookie": f"{name}={value}", CSRF: second.json()["csrf"]}
        assert (await client.get(ME, headers=headers)).status_code == 401
        headers = {"Cookie": f"{name}=ses-aaaaaaaaaaaa_x; {name}={value}", CSRF: first.json()["csrf"]}
        assert (await client.get(ME, headers=headers)).status_code == 200, "a planted cookie keeps nobody out"


async def test_a_command_line_gets_a_token_and_no_cookie(rig: Rig) -> None:
    await make_user(rig)
    answer = await log_in(rig, kind="COMMAND_LINE")
    assert "set-cookie" not in answer.headers
    assert answer.json()["csrf"] == ""
    async with command_line(rig) as person:
        me = (await person.get(ME)).json()
        assert (me["user"], me["session"]["kind"]) == ("ada", "COMMAND_LINE")
        made = await person.post("/api/v1/groups", json={"name": "lobby", "command": ["x"]})
        assert made.status_code == 201
    token = answer.json()["token"]
    async with rig.client("") as client:
        cookie = {"Cookie": f"corral-{rig.state.identity.id[:8]}-{rig.server.address.port}={token[7:]}"}
        assert (await client.get(ME, headers={**cookie, CSRF: ""})).status_code == 401


WRONG = [
    {"password": "wrong, and long enough"},
    {"name": "nobody"},
    {"name": "bob"},
    {"name": "x" * 100, "password": "y" * 256},
    {"name": "\x00\u202e"},
]


async def test_a_wrong_login_says_the_same_whatever_is_wrong(rig: Rig) -> None:
    await make_user(rig)
    await make_user(rig, "bob", password=None)
    for given in WRONG:
        answer = await log_in(rig, **{"name": "ada", "password": PASSWORD, **given})
        assert (answer.status_code, refused(answer)) == (401, "LOGIN_FAILED"), given
        assert answer.json()["error"]["message"] == "name, password or code is wrong", given
        assert "set-cookie" not in answer.headers, given
        assert not len(rig.state.user_sessions), given


async def test_names_are_the_same_in_upper_and_lower_case_and_so_are_their_failures(rig: Rig) -> None:
    """Else the delay of one spelling would tell which names exist."""
    await make_user(rig)
    assert (await log_in(rig, "ADA")).json()["user"] == "ada"
    for name in ("bob", "nobody"):
        if name == "bob":
            await make_user(rig, "bob")
        for _ in range(5):
            assert refused(await log_in(rig, name, "wrong")) == "LOGIN_FAILED"
        assert refused(await log_in(rig, name.upper(), "wrong")) == "LOGIN_DELAYED"


async def test_five_failures_delay_the_next_login_and_neither_sessions_nor_tokens(rig: Rig) -> None:
    await make_user(rig)
    await make_user(rig, "bob")
    token_id, token = await rig.token(Role.VIEWER, owner="ada")
    del token_id
    for _ in range(4):
        assert refused(await log_in(rig, password="wrong")) == "LOGIN_FAILED"
    fifth = await log_in(rig, password="wrong")
    assert fifth.json()["error"]["message"].endswith("the next attempt is possible in 30 s")
    assert fifth.headers["retry-after"] == "30"
    delayed = await log_in(rig)
    assert (delayed.status_code, refused(delayed)) == (429, "LOGIN_DELAYED")
    assert (await log_in(rig, "bob")).status_code == 200
    async with rig.client(token) as script, rig.client() as admin:
        assert (await script.get(ME)).status_code == 200
        shown = (await admin.get("/api/v1/users/ada")).json()
        assert 0 < shown["login_delayed_seconds"] <= 30
        assert (await admin.post("/api/v1/users/ada/reset-delay")).json()["login_delayed_seconds"] == 0
    assert (await log_in(rig)).status_code == 200
    assert [entry["subject"] for entry in await rig.audits("users.reset_delay")] == ["ada"]


async def test_a_password_of_an_administrator_has_to_be_changed_at_the_first_login(rig: Rig) -> None:
    await make_user(rig, must_change_password=True)
    asked = await log_in(rig)
    assert (asked.status_code, refused(asked)) == (403, "PASSWORD_CHANGE_REQUIRED")
    assert not len(rig.state.user_sessions)
    for bad in ("short", PASSWORD, "password1234", "ada-ada-ada-ada"):
        answer = await log_in(rig, new_password=bad)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "new_password"), bad
    assert (await log_in(rig, new_password=OTHER)).status_code == 200
    assert refused(await log_in(rig)) == "LOGIN_FAILED"
    assert (await log_in(rig, password=OTHER)).status_code == 200
    again = await log_in(rig, password=OTHER, new_password=PASSWORD)
    assert again.json()["error"]["field"] == "new_password"


async def test_a_locked_user_is_told_so_with_the_right_password_only(rig: Rig) -> None:
    await make_user(rig)
    async with rig.client() as admin:
        await admin.post("/api/v1/users/ada/lock", json={"reason": "left"})
    answer = await log_in(rig)
    assert (answer.status_code, refused(answer)) == (403, "USER_LOCKED")
    assert refused(await log_in(rig, password="wrong")) == "LOGIN_FAILED"


async def test_a_hash_of_another_cost_is_replaced_at_the_login(rig: Rig) -> None:
    await make_user(rig)
    weaker = Passwords(entropy=rig.entropy, cost=HashCost(memory_kib=32, passes=1))
    stored = rig.state.users.require("ada")
    hashed = await weaker.hash(PASSWORD)
    await weaker.close()
    await rig.ledger.commit(
        USERS.put("ada", msgspec.structs.replace(stored.record, password_hash=hashed), expect=stored.revision)
    )
    assert (await log_in(rig)).status_code == 200
    assert "m=64" in rig.state.users.require("ada").record.password_hash
    assert (await log_in(rig)).status_code == 200


async def test_logins_are_audited_with_the_address_and_never_with_the_password(rig: Rig) -> None:
    await make_user(rig)
    await log_in(rig)
    (entry,) = await rig.audits("auth.login")
    assert (entry["actor"], entry["subject"], entry["address"]) == ("user:ada", "ada", "127.0.0.1")
    assert entry["after"]["by"] == "PASSWORD"
    assert PASSWORD not in str(entry)
    async with browser(rig) as person:
        await person.post("/api/v1/groups", json={"name": "lobby", "command": ["x"]})
        (made,) = await rig.audits("groups.create")
        assert (made["actor"], made["actor_name"]) == ("user:ada", "ada")


async def test_a_name_that_nobody_has_is_not_logged(rig: Rig) -> None:
    """People type their password into the field of the name."""
    await make_user(rig)
    with capture_logs() as logged:
        await log_in(rig, "hunter2-typed-here")
        await log_in(rig, password="wrong")
    told = [record for record in logged if record["event"] == "login.refused"]
    assert [record["user"] for record in told] == ["", "ada"]
    assert "hunter2" not in str(logged)


async def test_logins_of_one_address_are_counted(data: pathlib.Path) -> None:
    limits = HttpLimitsSection(logins_per_minute=3, requests_per_second=0)
    async with http_rig(data, limits=limits) as rig:
        await make_user(rig)
        codes = [(await log_in(rig)).status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        async with rig.client() as admin:
            assert (await admin.get(ME)).status_code == 200


async def test_a_login_needs_json_an_own_origin_and_a_known_host(rig: Rig) -> None:
    await make_user(rig)
    body = {"name": "ada", "password": PASSWORD}
    async with rig.client("") as page:
        foreign = await page.post(LOGIN, json=body, headers={"Origin": "http://127.0.0.1:1"})
        assert (foreign.status_code, refused(foreign)) == (403, "ORIGIN_REFUSED")
        form = await page.post(LOGIN, data=body)
        assert form.status_code == 415
        rebound = await page.post(LOGIN, json=body, headers={"Host": "evil.example"})
        assert (rebound.status_code, refused(rebound)) == (421, "MISDIRECTED_REQUEST")
        own = await page.post(LOGIN, json=body, headers={"Origin": rig.url})
        assert own.status_code == 200
    assert len(rig.state.user_sessions) == 1


async def test_two_logins_at_once_both_succeed(rig: Rig) -> None:
    await make_user(rig)
    answers = await asyncio.gather(*(log_in(rig) for _ in range(8)))
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert len(rig.state.user_sessions) == sum(answer.status_code == 200 for answer in answers)


async def test_a_login_is_refused_while_the_store_is_away_and_works_afterwards(data: pathlib.Path) -> None:
    async with http_rig(data, patience=0.2) as rig:
        await make_user(rig)
        rig.store.commits.fail(StoreFault.BEFORE)
        assert (await log_in(rig)).status_code == 503
        assert not len(rig.state.user_sessions)
        await eventually(lambda: rig.writer.healthy)
        assert (await log_in(rig)).status_code == 200


NO_LOGINS = [
    ({}, "name"),
    ({"name": "ada"}, "password"),
    ({"name": "ada", "password": ""}, "password"),
    ({"name": "ada", "password": "x" * 2000}, "password"),
    ({"code": "x", "name": "ada"}, "name"),
    ({"name": "ada", "password": "x", "extra": 1}, "extra"),
    ({"name": "ada", "password": "x", "kind": "ROBOT"}, "kind"),
]


async def test_a_login_that_is_no_login_names_the_field(rig: Rig) -> None:
    for body, field in NO_LOGINS:
        async with rig.client("") as stranger:
            answer = await stranger.post(LOGIN, json=body)
        assert (answer.status_code, answer.json()["error"].get("field")) == (400, field), body


async def test_a_session_from_before_a_step_of_the_clock_is_over(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as person:
        rig.clock.offset = dt.timedelta(hours=13)
        answer = await person.get(ME)
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            401,
            "the session ended after 12 hours without use",
        )


async def test_the_agent_of_a_session_is_cut_and_plain(rig: Rig) -> None:
    await make_user(rig)
    async with rig.client("") as stranger:
        agent = "\x9b31m" + "A" * 5000
        answer = await stranger.post(
            LOGIN,
            json={"name": "ada", "password": PASSWORD},
            headers=[(b"user-agent", agent.encode("latin-1"))],
        )
    assert answer.status_code == 200
    (stored,) = rig.state.user_sessions
    assert len(stored.record.agent) <= 200
    assert "\x9b" not in stored.record.agent


@pytest.mark.parametrize("how", ["lock", "password"])
async def test_a_login_at_the_moment_of_a_lock_or_a_new_password_lets_nobody_in(rig: Rig, how: str) -> None:
    """Both are evaluated before either is stored: whichever comes second sees the other."""
    await make_user(rig)
    path, body = {
        "lock": ("/api/v1/users/ada/lock", {"reason": "left"}),
        "password": ("/api/v1/users/ada/password", {"password": OTHER, "must_change_password": False}),
    }[how]
    async with rig.client() as admin:
        rig.store.commits.hold()
        logins = [asyncio.create_task(log_in(rig)) for _ in range(2)]
        change = asyncio.create_task(admin.post(path, json=body))
        more = asyncio.create_task(log_in(rig))
        await eventually(lambda: rig.setting.passwords.under_way == 0 and len(rig.store.commits.batches) > 0)
        rig.store.commits.let_go()
        assert (await change).is_success
        for answer in await asyncio.gather(*logins, more):
            assert answer.status_code in (200, 401, 403, 409), answer.text
    assert not len(rig.state.user_sessions), "a session that was let in before was ended by the change"
