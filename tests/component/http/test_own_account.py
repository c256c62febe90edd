"""The own account: password, second factor, recovery codes; and what administrators do to those of others."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt

import httpx
import pyotp
from browsers import (
    OTHER,
    PASSWORD,
    browser,
    command_line,
    cookie_of,
    log_in,
    make_user,
    refused,
    session_client,
)
from http_rig import Rig

from corral.testing.waiting import eventually

ME = "/api/v1/auth/me"
TOTP = "/api/v1/auth/totp"
STEP = 30


def code_at(rig: Rig, secret: str, *, steps: int = 0) -> str:
    plain = base64.b32encode(base64.b32decode(secret.replace(" ", ""))).decode()
    return pyotp.TOTP(plain).at(rig.clock.now() + dt.timedelta(seconds=STEP * steps))


async def enable(rig: Rig, person: httpx.AsyncClient) -> tuple[str, list[str]]:
    """Set up a second factor: its secret, and the recovery codes."""
    begun = (await person.post(TOTP, json={"password": PASSWORD})).json()
    code = code_at(rig, begun["secret"])
    answer = await person.post(f"{TOTP}/confirm", json={"setup": begun["setup"], "code": code})
    assert answer.status_code == 200, answer.text
    return begun["secret"], answer.json()["codes"]


async def test_a_changed_password_ends_all_sessions_and_begins_a_new_one(rig: Rig) -> None:
    await make_user(rig)
    first = await log_in(rig)
    async with session_client(rig, first) as ada, browser(rig) as elsewhere:
        answer = await ada.post("/api/v1/auth/password", json={"current": PASSWORD, "new": OTHER})
        assert answer.status_code == 200, answer.text
        assert cookie_of(answer) != cookie_of(first)
        assert (await elsewhere.get(ME)).status_code == 401
        assert (await ada.get(ME)).status_code == 401
        async with session_client(rig, answer) as renewed:
            assert (await renewed.get(ME)).json()["user"] == "ada"
    assert refused(await log_in(rig)) == "LOGIN_FAILED"
    assert (await log_in(rig, password=OTHER)).is_success


async def test_a_command_line_that_changes_the_password_gets_another_token(rig: Rig) -> None:
    await make_user(rig)
    async with command_line(rig) as ada:
        answer = await ada.post("/api/v1/auth/password", json={"current": PASSWORD, "new": OTHER})
        assert "set-cookie" not in answer.headers
        async with rig.client(answer.json()["token"]) as renewed:
            assert (await renewed.get(ME)).json()["session"]["kind"] == "COMMAND_LINE"


BAD_CHANGES = [
    ({"current": "wrong", "new": OTHER}, "LOGIN_FAILED"),
    ({"current": PASSWORD, "new": PASSWORD}, "INVALID_FIELD"),
    ({"current": PASSWORD, "new": "short"}, "INVALID_FIELD"),
    ({"current": PASSWORD, "new": "qwertzuiop123456"}, "INVALID_FIELD"),
]


async def test_a_password_that_is_not_changed_leaves_everything_as_it_was(rig: Rig) -> None:
    await make_user(rig)
    for body, code in BAD_CHANGES:
        async with browser(rig) as ada:
            assert refused(await ada.post("/api/v1/auth/password", json=body)) == code, body
            assert (await ada.get(ME)).is_success, body
        assert (await log_in(rig)).is_success, body


async def test_a_token_changes_nobodys_password_or_second_factor(rig: Rig) -> None:
    async with rig.client() as admin:
        for path, body in (
            ("/api/v1/auth/password", {"current": PASSWORD, "new": OTHER}),
            (TOTP, {"password": PASSWORD}),
            (f"{TOTP}/confirm", {"setup": "x", "code": "123456"}),
            (f"{TOTP}/remove", {"password": PASSWORD}),
            ("/api/v1/auth/recovery-codes", {"password": PASSWORD}),
        ):
            answer = await admin.post(path, json=body)
            assert (answer.status_code, refused(answer)) == (403, "FORBIDDEN"), path


async def test_guesses_at_the_password_in_a_session_are_delayed_as_logins_are(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        for _ in range(5):
            assert refused(await ada.post(TOTP, json={"password": "wrong"})) == "LOGIN_FAILED"
        assert refused(await ada.post(TOTP, json={"password": PASSWORD})) == "LOGIN_DELAYED"
        assert (await ada.get(ME)).is_success


async def test_a_second_factor_is_needed_from_the_next_login_on_and_each_code_once(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        secret, codes = await enable(rig, ada)
        assert len(set(codes)) == 10
        assert (await ada.get(ME)).json()["has_totp"] is True
    asked = await log_in(rig)
    assert (asked.status_code, refused(asked)) == (401, "SECOND_FACTOR_REQUIRED")
    used = await log_in(rig, totp=code_at(rig, secret))
    assert refused(used) == "LOGIN_FAILED", "the code that confirmed it was used by that"
    rig.clock.offset = dt.timedelta(seconds=2 * STEP)
    code = code_at(rig, secret)
    answers = await asyncio.gather(*(log_in(rig, totp=code) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401]
    assert refused(await log_in(rig, totp="000000")) == "LOGIN_FAILED"
    sessions = [each.record.authenticated_by for each in rig.state.user_sessions]
    assert sorted(sessions) == ["PASSWORD", "TOTP"]


async def test_a_wrong_code_counts_as_a_failure_and_a_missing_one_does_not(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        await enable(rig, ada)
    for _ in range(10):
        assert refused(await log_in(rig)) == "SECOND_FACTOR_REQUIRED"
    for _ in range(5):
        assert refused(await log_in(rig, totp="000000")) == "LOGIN_FAILED"
    assert refused(await log_in(rig)) == "LOGIN_DELAYED"


async def test_a_recovery_code_works_once_in_place_of_the_second_factor(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        _, codes = await enable(rig, ada)
        first = await log_in(rig, recovery_code=codes[0])
        assert (first.status_code, first.json()["recovery_codes_left"]) == (200, 9)
        assert refused(await log_in(rig, recovery_code=codes[0])) == "LOGIN_FAILED"
        alone = await ada.post("/api/v1/auth/recovery-codes", json={"password": PASSWORD})
        assert refused(alone) == "SECOND_FACTOR_REQUIRED", "else the factor could be removed by the password"
        renewed = await ada.post(
            "/api/v1/auth/recovery-codes", json={"password": PASSWORD, "recovery_code": codes[2]}
        )
        assert refused(await log_in(rig, recovery_code=codes[1])) == "LOGIN_FAILED"
        assert (await log_in(rig, recovery_code=renewed.json()["codes"][0])).is_success


async def test_guesses_at_the_second_factor_in_a_session_are_delayed_as_logins_are(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        await enable(rig, ada)
        body = {"password": PASSWORD, "totp": "000000"}
        answers = [refused(await ada.post(f"{TOTP}/remove", json=body)) for _ in range(6)]
        assert answers == ["LOGIN_FAILED"] * 5 + ["LOGIN_DELAYED"]


async def test_a_second_factor_is_removed_with_a_code_of_it_or_a_recovery_code(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        secret, codes = await enable(rig, ada)
        assert refused(await ada.post(TOTP, json={"password": PASSWORD})) == "CONFLICT"
        missing = await ada.post(f"{TOTP}/remove", json={"password": PASSWORD})
        assert refused(missing) == "SECOND_FACTOR_REQUIRED"
        for bad in ({"totp": "000000"}, {"recovery_code": "aaaa-bbbb-cccc-dddd"}):
            answer = await ada.post(f"{TOTP}/remove", json={"password": PASSWORD, **bad})
            assert refused(answer) == "LOGIN_FAILED"
        rig.clock.offset = dt.timedelta(seconds=2 * STEP)
        body = {"password": PASSWORD, "totp": code_at(rig, secret)}
        assert (await ada.post(f"{TOTP}/remove", json=body)).status_code == 204
        assert refused(await ada.post(f"{TOTP}/remove", json=body)) == "CONFLICT"
        _, codes = await enable_later(rig, ada)
        body = {"password": PASSWORD, "recovery_code": codes[3]}
        assert (await ada.post(f"{TOTP}/remove", json=body)).status_code == 204
    assert (await log_in(rig)).is_success


async def enable_later(rig: Rig, person: httpx.AsyncClient) -> tuple[str, list[str]]:
    rig.clock.offset += dt.timedelta(seconds=2 * STEP)
    return await enable(rig, person)


async def test_a_setup_is_of_the_session_that_began_it_and_needs_the_right_code(rig: Rig) -> None:
    await make_user(rig)
    await make_user(rig, "bob")
    async with browser(rig) as ada, browser(rig) as again, browser(rig, "bob") as bob:
        begun = (await ada.post(TOTP, json={"password": PASSWORD})).json()
        body = {"setup": begun["setup"], "code": code_at(rig, begun["secret"])}
        for other in (again, bob):
            assert refused(await other.post(f"{TOTP}/confirm", json=body)) == "INVALID_FIELD"
        wrong = await ada.post(f"{TOTP}/confirm", json={**body, "code": "000000"})
        assert wrong.json()["error"]["field"] == "code"
        garbled = await ada.post(f"{TOTP}/confirm", json={**body, "setup": begun["setup"][:-8]})
        assert garbled.json()["error"]["field"] == "setup"
        assert (await ada.post(f"{TOTP}/confirm", json=body)).is_success
        assert begun["uri"].startswith("otpauth://totp/")


async def test_no_secret_of_a_second_factor_is_stored_in_the_clear(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        secret, codes = await enable(rig, ada)
    stored = str(rig.commits)
    assert rig.state.users.require("ada").record.totp_sealed in stored
    for each in (secret, secret.replace(" ", ""), *codes, *(code.replace("-", "") for code in codes)):
        assert each not in stored


async def test_an_administrator_gives_passwords_and_removes_lost_second_factors(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada, rig.client() as admin:
        await enable(rig, ada)
        shown = (await admin.delete("/api/v1/users/ada/totp")).json()
        assert shown["has_totp"] is False
        assert refused(await admin.delete("/api/v1/users/ada/totp")) == "CONFLICT"
        assert (await ada.get(ME)).is_success
        given = await admin.post("/api/v1/users/ada/password", json={"password": OTHER})
        assert (given.json()["must_change_password"], given.json()["sessions"]) == (True, 0)
        assert refused(await log_in(rig, password=OTHER)) == "PASSWORD_CHANGE_REQUIRED"
        weak = await admin.post("/api/v1/users/ada/password", json={"password": "password1234"})
        assert weak.json()["error"]["field"] == "password"
    entries = await rig.audits("users.password")
    assert OTHER not in str(entries)


async def test_who_may_less_changes_no_credentials_of_who_may_more(rig: Rig) -> None:
    await make_user(rig, "boss", role="ADMIN")
    async with rig.client() as admin:
        role = {"name": "desk", "permissions": ["users.read", "users.manage", "self.read"]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
    await make_user(rig, "clerk", role="desk")
    async with browser(rig, "clerk") as clerk:
        for method, path, body in (
            ("POST", "/api/v1/users/boss/password", {"password": OTHER}),
            ("DELETE", "/api/v1/users/boss/totp", None),
        ):
            answer = await clerk.request(method, path, json=body)
            assert refused(answer) == "FORBIDDEN", path
    assert (await log_in(rig, "boss")).is_success


async def test_one_code_allows_one_change_however_many_ask_at_once(rig: Rig) -> None:
    await make_user(rig)
    async with browser(rig) as ada:
        secret, codes = await enable(rig, ada)
        rig.clock.offset = dt.timedelta(seconds=2 * STEP)
        for shown in ({"totp": code_at(rig, secret)}, {"recovery_code": ""}):
            shown = {"recovery_code": codes[0]} if "totp" not in shown else shown
            body = {"password": PASSWORD, **shown}
            rig.store.commits.hold()
            asked = [
                asyncio.create_task(ada.post("/api/v1/auth/recovery-codes", json=body)) for _ in range(3)
            ]
            await eventually(lambda: rig.writer.pending >= 2)
            rig.store.commits.let_go()
            answers = await asyncio.gather(*asked)
            assert sorted(answer.status_code for answer in answers) == [200, 401, 401]
            codes = next(answer.json()["codes"] for answer in answers if answer.is_success)
