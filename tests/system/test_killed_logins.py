"""A controller on its own store, killed in the middle of logins, dozens of times: sessions, codes and audit are whole afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence

import msgspec
import pytest
from forked_controllers import ForkedControllers
from people_with_sessions import NoAnswer, People, Unanswered, refusal_of
from session_history import TICKS

from corral.domain.audit_export import check_export
from corral.testing.ports import free_addresses

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
ROUNDS = 24
USERS = ("ada", "ben", "cleo")
SETTINGS = {
    "CORRAL_HTTP_LIMITS_REQUESTS_PER_SECOND": "0",
    "CORRAL_HTTP_LIMITS_LOGINS_PER_MINUTE": "0",
    "CORRAL_LOG_LEVEL": "ERROR",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


class FirstAdminCodes:
    """The codes that a controller prints at its starts, and whether they have to be accepted."""

    def __init__(self, people: People) -> None:
        self._people = people
        self.done: bool | None = False
        """Whether somebody has become the administrator; None: there was no answer."""
        self._former = ""

    async def after_start(self, lines: Sequence[str]) -> str:
        """Check what was printed; the code, while there is one."""
        printed = [line.rpartition("#")[2] for line in lines if line.startswith("first-admin: ")]
        assert len(printed) == 1 or (self.done is not False and not printed), (self.done, printed)
        if self.done is None:
            self.done = not printed
        assert self.done is not bool(printed)
        if self._former:
            assert not await self.become(self._former), "the code of an earlier start is void"
        if self.done:
            assert (await self._people.log_in("chief"))[0]
            return ""
        self._former = printed[0]
        return self._former

    async def become(self, code: str) -> bool:
        held, answer = await self._people.log_in("chief", first_admin_code=code)
        assert held or refusal_of(answer) == "LOGIN_FAILED", answer.text
        return held is not None

    async def try_to_become(self, code: str) -> None:
        self.done = None
        with contextlib.suppress(NoAnswer, Unanswered):
            self.done = await self.become(code)


async def check_audit(people: People) -> None:
    """Its hashes fit, and each session has the entry of its login: both were stored, or neither."""
    answer = await people.ask("GET", "/api/v1/audit/export", headers=people.admin)
    lines = answer.content.splitlines(keepends=True)
    verdict = check_export(lines)
    assert verdict.intact, verdict.faults
    entries = [msgspec.json.decode(line).get("entry", {}) for line in lines]
    logins = [entry["after"]["session"] for entry in entries if entry.get("action") == "auth.login"]
    listed = (await people.as_admin("GET", "/api/v1/sessions?limit=500"))["items"]
    assert sorted(logins) == sorted(each["id"] for each in listed)


async def test_a_controller_killed_in_the_middle_of_logins_leaves_whole_sessions_or_none(scratch):
    chance = random.Random(seed := time.time_ns())
    print(f"seed {seed}")
    http, *others = free_addresses(3)
    arguments = [
        "controller",
        "--data",
        str(scratch),
        "--http",
        http,
        "--grpc",
        others[0],
        "--bootstrap",
        others[1],
    ]
    async with ForkedControllers(arguments, environment=SETTINGS) as controllers:
        await controllers.start()
        token = (scratch / "admin.token").read_text().strip()
        async with People([http], admin_token=token) as people:
            codes = FirstAdminCodes(people)
            for name in USERS:
                await people.make_user(name)
            since = next(TICKS)
            for _ in range(ROUNDS):
                code = await codes.after_start(controllers.printed)
                fresh = [held for held in people.history.held.values() if held.given_at > since]
                await people.check_all(only=fresh)
                since = next(TICKS)
                await check_audit(people)
                await interrupted_logins(people, codes, code, controllers, chance)
                await controllers.start()
            await codes.after_start(controllers.printed)
            await people.check_all()
            await check_audit(people)
            print(people.history.summary())
            interrupted = sum(people.history.open_logins.values())
            assert interrupted > 5
            assert len(people.history.held) > 5


async def interrupted_logins(
    people: People, codes: FirstAdminCodes, code: str, controllers: ForkedControllers, chance: random.Random
) -> None:
    """Everybody logs in, and the controller is killed when some have their answers."""
    answered = asyncio.Semaphore(0)

    async def log_in(name: str) -> None:
        with contextlib.suppress(NoAnswer, Unanswered):
            await people.log_in(name, kind=chance.choice(["BROWSER", "COMMAND_LINE"]))
        answered.release()

    async def become() -> None:
        await codes.try_to_become(code)
        answered.release()

    async with asyncio.TaskGroup() as group:
        if code:
            group.create_task(become())
        for name in USERS:
            group.create_task(log_in(name))
        for _ in range(chance.randrange(len(USERS))):
            await answered.acquire()
        await asyncio.sleep(chance.random() * 0.1)  # the moment is the point
        await controllers.kill()
