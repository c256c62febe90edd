"""Passwords and second factors of users on the command line, against a real controller."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import AsyncIterator

import pyotp
import pytest
from people import OTHER, PASSWORD, Person, administrator, logged_in, make_user

from corral.testing.cluster import CHEAP_HASHES, LocalCluster, LocalController
from corral.testing.stepped_clock import SteppedClock

STEP = 30.0


@pytest.fixture
async def api(scratch: pathlib.Path, clock: SteppedClock) -> AsyncIterator[LocalController]:
    async with LocalCluster(scratch) as cluster:
        yield await cluster.controller(clock=clock, hash_cost=CHEAP_HASHES)


@pytest.fixture
def admin(api: LocalController, tmp_path: pathlib.Path) -> Person:
    return administrator(api, tmp_path / "admin")


async def test_an_administrator_makes_a_user_who_sets_a_password_of_his_own(
    api: LocalController, admin: Person, tmp_path: pathlib.Path
) -> None:
    first = admin.file("first", PASSWORD)
    made = await admin.run("user", "create", "ada", "--role", "VIEWER", "--password-file", first)
    assert (made.returncode, made.stdout) == (0, "user 'ada' is there: VIEWER\n")
    assert "password, to be changed" in (await admin.run("user", "list")).stdout
    ada = Person(tmp_path / "ada")
    answers = [("Password: ", PASSWORD), ("New password: ", OTHER), ("The same again: ", OTHER)]
    code, seen = await ada.talk("login", api.url, "--user", "ada", answers=answers)
    assert code == 0, seen
    listed = (await admin.run("user", "list")).stdout
    assert re.search(r"^ada +VIEWER +password +- +1 ", listed, flags=re.M), listed
    shown = (await admin.run("user", "get", "ada")).stdout
    assert re.search(r"^Password: +yes$", shown, flags=re.M), shown


async def test_a_password_is_asked_for_until_one_is_accepted(api: LocalController, admin: Person) -> None:
    code, seen = await admin.talk(
        *("user", "create", "ada", "--ask-password", "--no-change", "-o", "json"),
        answers=[
            ("New password: ", "ada-ada-ada-ada"),
            ("The same again: ", "ada-ada-ada-ada"),
            ("New password: ", PASSWORD),
            ("The same again: ", PASSWORD),
        ],
    )
    assert code == 0, seen
    assert "the password is among those that are tried first" in seen
    assert '"must_change_password": false' in seen
    refused = await admin.run("user", "create", "bob", "--password-file", admin.file("weak", "short"))
    assert refused.returncode == 1
    assert "at least 12 are needed" in refused.stderr


async def test_an_administrator_gives_another_password_and_all_sessions_end(
    api: LocalController, admin: Person, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    other = admin.file("other", OTHER)
    given = await admin.run("user", "password", "ada", "--password-file", other)
    assert given.stdout == "user 'ada' has another password; it has to be changed at the next login\n"
    ended = await ada.run("group", "list")
    assert (ended.returncode, "session" in ended.stderr) == (1, True)
    given = await admin.run("user", "password", "ada", "--password-file", other, "--no-change")
    assert given.stdout == "user 'ada' has another password\n"


@pytest.mark.system
async def test_a_delay_after_failed_logins_is_shown_and_ended(
    api: LocalController, admin: Person, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    wrong, right = ada.file("wrong", "a guess, and a long one"), ada.file("right", PASSWORD)
    for _ in range(5):
        await ada.run("login", api.url, "--user", "ada", "--password-file", wrong)
    assert re.search(r"logins wait \d+ s", (await admin.run("user", "list")).stdout)
    assert "'corral user reset-delay' ends it" in (await admin.run("user", "get", "ada")).stdout
    done = await admin.run("user", "reset-delay", "ada")
    assert done.stdout == "logins of user 'ada' are not delayed\n"
    assert (await ada.run("login", api.url, "--user", "ada", "--password-file", right)).returncode == 0


async def test_somebody_changes_the_own_password_and_stays_logged_in(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    elsewhere = await logged_in(api, tmp_path / "elsewhere")
    before = ada.token
    code, seen = await ada.talk(
        *("user", "password"),
        answers=[
            ("Current password: ", PASSWORD),
            ("New password: ", PASSWORD),
            ("The same again: ", PASSWORD),
            ("New password: ", OTHER),
            ("The same again: ", OTHER),
        ],
    )
    assert code == 0, seen
    assert "the new password is the old one" in seen
    assert "user 'ada' has another password; all other sessions have ended" in seen
    assert PASSWORD not in seen + ada.contexts.read_text()
    assert ada.token != before
    assert ada.contexts.stat().st_mode & 0o777 == 0o600
    assert (await ada.run("whoami")).returncode == 0
    assert (await elsewhere.run("whoami")).returncode == 1


async def test_a_session_that_no_context_has_is_not_renewed(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    token = (await logged_in(api, tmp_path / "ada")).token
    script = Person(tmp_path / "script", CORRAL_URL=api.url, CORRAL_TOKEN=token)
    current, new = script.file("current", PASSWORD), script.file("new", OTHER)
    done = await script.run(
        "user", "password", "--current-password-file", current, "--password-file", new, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"user": "ada", "session": None}
    assert (await api.call("GET", "/api/v1/sessions"))["items"] == []


@pytest.mark.parametrize(
    "arguments", [("password",), ("totp", "enable"), ("totp", "remove"), ("totp", "recovery-codes")]
)
async def test_whoever_has_a_token_is_not_asked_for_a_password(
    admin: Person, arguments: tuple[str, ...]
) -> None:
    code, seen = await admin.talk("user", *arguments, answers=[])
    assert (code, "error: this is for people who have logged in, and you use a token" in seen) == (1, True)


ASKED = "Code of the second factor, or a recovery code: "


async def test_a_login_asks_for_a_code_of_the_second_factor(
    api: LocalController, admin: Person, tmp_path: pathlib.Path, clock: SteppedClock
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    secret, codes = await enabled(ada, clock)
    assert re.search(r"^Second factor: +yes$", (await ada.run("whoami")).stdout, flags=re.M)
    assert "password and second factor" in (await admin.run("user", "list")).stdout
    clock.pass_time(STEP)
    login = ("login", api.url, "--user", "ada", "--password-file", str(ada.home / "password"))
    code, seen = await ada.talk(*login, answers=[(ASKED, "000000"), (ASKED, now_shown(secret, clock))])
    assert code == 0, seen
    assert "error: the code is wrong, or was used before" in seen
    code, seen = await ada.talk(*login, answers=[(ASKED, codes[0].upper())])
    assert code == 0, seen
    assert (await ada.json("whoami"))["session"]["authenticated_by"] == "RECOVERY_CODE"


@pytest.mark.system
async def test_recovery_codes_are_used_renewed_and_remove_the_second_factor(
    api: LocalController, tmp_path: pathlib.Path, clock: SteppedClock
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    _, codes = await enabled(ada, clock)
    password = str(ada.home / "password")
    login = ("login", api.url, "--user", "ada", "--password-file", password)
    script = await ada.run(*login)
    assert (script.returncode, "use --recovery-code" in script.stderr) == (2, True)
    first = await ada.run(*login, "--recovery-code", codes[0], "-o", "json")
    assert json.loads(first.stdout)["recovery_codes_left"] == 9
    assert "others on this host can see a code on a command line" in first.stderr
    assert (await ada.run(*login, "--recovery-code", codes[0])).returncode == 1, "it is used"
    renewal = ("user", "totp", "recovery-codes", "--password-file", password)
    renewed = await ada.run(*renewal, "--recovery-code", codes[1])
    assert (renewed.returncode, len(renewed.stdout.split())) == (0, 10)
    assert "\nKeep these recovery codes" in renewed.stderr
    removal = ("user", "totp", "remove", "--password-file", password, "--recovery-code")
    assert (await ada.run(*removal, codes[2])).returncode == 1, "it is void"
    gone = await ada.run(*removal, renewed.stdout.split()[0])
    assert (gone.returncode, gone.stdout) == (0, "user 'ada' has no second factor\n")
    assert (await ada.run(*login)).returncode == 0


async def test_an_administrator_removes_a_lost_second_factor(
    api: LocalController, admin: Person, tmp_path: pathlib.Path, clock: SteppedClock
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    await enabled(ada, clock)
    code, _ = await admin.talk(
        "user", "totp", "remove", "ada", answers=[("remove the second factor of user 'ada' [y/N]: ", "n")]
    )
    assert code == 1
    done = await admin.run("user", "totp", "remove", "ada", "--yes")
    assert (done.returncode, done.stdout) == (0, "user 'ada' has no second factor\n")
    again = await admin.run("user", "totp", "remove", "ada", "--yes")
    assert (again.returncode, "user 'ada' has no second factor" in again.stderr) == (1, True)
    assert (await ada.run("whoami")).returncode == 0


async def test_few_recovery_codes_are_told_at_the_login(
    api: LocalController, tmp_path: pathlib.Path, clock: SteppedClock
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    _, codes = await enabled(ada, clock)
    for code in codes[:6]:
        shown = {"name": "ada", "password": PASSWORD, "recovery_code": code}
        await api.call("POST", "/api/v1/auth/login", shown)
    file = str(ada.home / "password")
    done = await ada.run(
        "login", api.url, "--user", "ada", "--password-file", file, "--recovery-code", codes[6]
    )
    assert done.returncode == 0
    assert "recovery codes left: 3; 'corral user totp recovery-codes' makes new ones" in done.stderr


async def enabled(person: Person, clock: SteppedClock) -> tuple[str, list[str]]:
    """Set up the second factor on a terminal; its secret and the recovery codes. The app is as fast as the eye."""
    app = Authenticator(clock)
    code, seen = await person.talk(
        *("user", "totp", "enable"),
        answers=[
            ("Password: ", PASSWORD),
            ("Code that the app shows now: ", "123"),
            ("Code that the app shows now: ", app),
        ],
    )
    assert code == 0, seen
    assert "the code is not the one that the app shows now" in seen
    assert "otpauth://totp/" in seen
    codes = re.findall(r"^(?:[a-z2-7]{4}-){3}[a-z2-7]{4}$", seen, flags=re.M)
    assert len(codes) == 10, seen
    return app.secret, codes


class Authenticator:
    """Reads the secret on the screen, and shows a code."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock
        self.secret = ""

    def __call__(self, screen: str) -> str:
        (found,) = re.findall(r"secret:  ([A-Z2-7 ]+)$", screen, flags=re.M)
        self.secret = found.replace(" ", "")
        return now_shown(self.secret, self._clock)


def now_shown(secret: str, clock: SteppedClock) -> str:
    return pyotp.TOTP(secret).at(clock.now())
