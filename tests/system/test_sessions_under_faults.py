"""Sessions while controllers are killed: a successor accepts what was acknowledged, and refuses what was ended."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest
from estate import Estate
from people_with_sessions import PASSWORD, NoAnswer, People, Unanswered, refusal_of, set_up_totp
from session_history import TICKS, HeldSession, Outcome

from corral.testing.fault_proxy import FaultProxy
from corral.testing.postgres_server import PostgresServer
from corral.testing.processes import ServiceProcess
from corral.testing.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
KILLS = 4
USERS = ("ada", "ben", "cleo", "dora", "eve")
LEASE = {
    "CORRAL_LEASE_TTL_SECONDS": "3",
    "CORRAL_LEASE_RENEW_SECONDS": "0.5",
    "CORRAL_LEASE_MARGIN_SECONDS": "1",
    "CORRAL_LOG_LEVEL": "ERROR",
}


@pytest.fixture(scope="module")
def postgres():
    with PostgresServer() as server:
        yield server


class Pair:
    """Two controllers on one store: one leads."""

    def __init__(self, processes, scratch, url: str) -> None:
        self._settings = {"CORRAL_PKI_CLUSTER_KEY_FILE": str(scratch / "cluster.key"), **LEASE}
        self._leading, self._standing_by = (
            Estate(processes, scratch, store=url, data=scratch / name) for name in ("one", "two")
        )
        self._processes: dict[str, ServiceProcess] = {}

    async def start(self) -> People:
        for estate in (self._leading, self._standing_by):
            self._processes[estate.http] = await estate.controller(**self._settings)
        return People([self._leading.http, self._standing_by.http], admin_token=self._leading.token)

    async def kill_leader(self, people: People) -> None:
        """Returns when the other one leads."""
        await self._processes[self._leading.http].kill()
        self._leading, self._standing_by = self._standing_by, self._leading

        async def leads() -> bool:
            with contextlib.suppress(Unanswered, NoAnswer):
                await people.as_admin("GET", "/api/v1/cluster")
                return True
            return False

        await eventually(leads, state=lambda: self._processes[self._leading.http].stderr[-3000:])

    async def start_killed(self) -> None:
        self._processes[self._standing_by.http] = await self._standing_by.controller(**self._settings)


class Person:
    """A user who logs in, logs out and changes the password, one after the other."""

    def __init__(self, people: People, name: str, chance: random.Random) -> None:
        self._people = people
        self.name = name
        self._chance = chance
        self.passwords = [PASSWORD]
        """The one that holds; two after a change without an answer."""
        self.former = ""

    async def act(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._one_act()
            except Unanswered:
                await asyncio.sleep(0.05)  # until somebody leads
            except NoAnswer:
                continue

    async def _one_act(self) -> None:
        own = [
            held
            for held in self._people.history.held.values()
            if held.user == self.name and self._people.history.expected(held)
        ]
        drawn = self._chance.random()
        if len(own) < 3 or drawn < 0.6:
            await self.log_in(kind=self._chance.choice(["BROWSER", "COMMAND_LINE"]))
        elif drawn < 0.92:
            held = self._chance.choice(own)
            ending = self._people.history.begin_ending("logout", self.name, held.id)
            await self._people.end(ending, "POST", "/api/v1/auth/logout", by=held)
        else:
            await self._change_password(self._chance.choice(own))

    async def log_in(self, *, kind: str = "BROWSER") -> HeldSession | None:
        for password in list(self.passwords):
            held, answer = await self._people.log_in(self.name, password, kind=kind)
            if held is not None:
                self.passwords = [password]
                return held
            assert refusal_of(answer) in ("LOGIN_FAILED", "USER_LOCKED"), answer.text
            assert refusal_of(answer) == "USER_LOCKED" or len(self.passwords) == 2, answer.text
        return None

    async def _change_password(self, held: HeldSession) -> None:
        if len(self.passwords) == 2:
            await self.log_in()
            return
        new = f"{PASSWORD}, {next(TICKS)}"
        ending = self._people.history.begin_ending("password", self.name)
        body = {"current": self.passwords[0], "new": new}
        answer = await self._people.end(ending, "POST", "/api/v1/auth/password", body, by=held)
        if ending.outcome is Outcome.OPEN:
            self.passwords = [self.passwords[0], new]
            self._people.history.open_logins[self.name] = (
                self._people.history.open_logins.get(self.name, 0) + 1
            )
        elif ending.outcome is Outcome.DONE:
            assert answer is not None
            self.former, self.passwords = self.passwords[0], [new]
            self._people.keep(answer, next(TICKS))


async def administer(people: People, chance: random.Random, stop: asyncio.Event) -> None:
    """End sessions of anybody; lock and unlock the last user."""
    while not stop.is_set():
        living = [held for held in people.history.held.values() if people.history.expected(held) is not False]
        held = chance.choice(living or [None])
        if held is not None and chance.random() < 0.8:
            ending = people.history.begin_ending("ended by an administrator", held.user, held.id)
            await people.end(ending, "DELETE", f"/api/v1/sessions/{held.id}")
        elif held is not None:
            await lock(people, USERS[-1])
            await unlock(people, USERS[-1])
        await asyncio.sleep(chance.random())  # the moments are the point


async def lock(people: People, user: str) -> None:
    ending = people.history.begin_ending("lock", user)
    await people.end(ending, "POST", f"/api/v1/users/{user}/lock", {"reason": "for a moment"})


async def unlock(people: People, user: str) -> None:
    async def unlocked() -> bool:
        with contextlib.suppress(Unanswered, NoAnswer):
            await people.as_admin("POST", f"/api/v1/users/{user}/unlock")
            return True
        return False

    await eventually(unlocked)


async def check_streams(people: People) -> None:
    """Sessions from before can open streams, and an end of the session ends them."""
    for in_browser in (True, False):
        held = next(
            (
                each
                for each in people.history.held.values()
                if people.history.expected(each) and bool(each.csrf) == in_browser
            ),
            None,
        )
        if held is None:
            continue
        async with asyncio.timeout(30), people.stream(held) as lines:
            ending = people.history.begin_ending("ended beside its stream", held.user, held.id)
            await people.end(ending, "DELETE", f"/api/v1/sessions/{held.id}")
            assert ending.outcome is Outcome.DONE
            told = [line async for line in lines]
        assert any("an administrator ended the session" in line for line in told), told


async def test_a_successor_accepts_the_sessions_that_were_acknowledged_and_refuses_those_that_were_ended(
    processes, scratch, postgres
):
    chance = random.Random(seed := time.time_ns())
    print(f"seed {seed}")
    async with postgres.database() as url:
        pair = Pair(processes, scratch, url)
        async with await pair.start() as people:
            persons = [Person(people, name, chance) for name in USERS]
            for person in persons:
                await people.make_user(person.name)
            for _ in range(KILLS):
                stop = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    for person in persons:
                        group.create_task(person.act(stop))
                    group.create_task(administer(people, chance, stop))
                    await asyncio.sleep(1 + 2 * chance.random())  # the moments are the point
                    await pair.kill_leader(people)
                    await asyncio.sleep(chance.random())
                    stop.set()
                await people.check_all()
                await check_streams(people)
                await pair.start_killed()
            await lock(people, USERS[-1])
            assert people.history.endings[-1].outcome is Outcome.DONE
            await pair.kill_leader(people)
            await people.check_all()
            for person in persons[:-1]:
                assert await person.log_in(), "the password that holds"
                if person.former:
                    _, answer = await people.log_in(person.name, person.former)
                    assert refusal_of(answer) == "LOGIN_FAILED"
            _, answer = await people.log_in(USERS[-1], persons[-1].passwords[0])
            assert refusal_of(answer) in ("USER_LOCKED", "LOGIN_FAILED"), answer.text
            print(people.history.summary())
            assert sum(held.csrf == "" for held in people.history.held.values()) > 3
            for process in processes.running():
                await process.kill()


async def test_a_code_counts_once_whoever_leads_and_a_delay_ends_with_its_leader(
    processes, scratch, postgres
):
    async with postgres.database() as url:
        pair = Pair(processes, scratch, url)
        async with await pair.start() as people:
            for name in ("ada", "ben"):
                await people.make_user(name)
            held, _ = await people.log_in("ada")
            assert held is not None
            app, step, (recovery_code, *_) = await set_up_totp(people, held)
            assert (await people.log_in("ada", recovery_code=recovery_code))[0]
            for _ in range(5):
                await people.log_in("ben", "wrong, and long enough")
            assert refusal_of((await people.log_in("ben"))[1]) == "LOGIN_DELAYED"

            async def with_code() -> HeldSession | None:
                with contextlib.suppress(Unanswered, NoAnswer):
                    return (await people.log_in("ada", totp=app.generate_otp(step)))[0]
                return None

            trying = [asyncio.create_task(with_code()) for _ in range(3)]
            await asyncio.sleep(random.random() * 0.6)  # the moment is the point
            await pair.kill_leader(people)
            entered = [await each for each in trying] + [await with_code(), await with_code()]
            assert sum(each is not None for each in entered) <= 1
            assert not await with_code()
            assert (await people.log_in("ada", totp=app.generate_otp(step + 1)))[0], "the next one"
            _, answer = await people.log_in("ada", recovery_code=recovery_code)
            assert refusal_of(answer) == "LOGIN_FAILED"
            assert (await people.log_in("ben"))[0], "a new leader has no counts of failures"
            await people.check_all()
            for process in processes.running():
                await process.kill()


@pytest.mark.parametrize("fault", ["stalled", "cut"])
async def test_logins_while_the_database_is_away_are_told_to_wait_and_nothing_is_lost(
    processes, scratch, postgres, fault
):
    """Each user is refused so often that places for hashes would be used up if refusals kept them."""
    names = [f"user-{number}" for number in range(6)]
    async with FaultProxy(postgres.socket) as proxy, postgres.database() as url:
        database = url.partition("?")[0].rpartition("/")[2]
        estate = Estate(processes, scratch, store=f"postgresql://postgres@{proxy.address}/{database}")
        # who cannot reach the store stops leading: that soon only where nothing else would be answered
        controller = await estate.controller(
            **(LEASE if fault == "stalled" else {"CORRAL_LOG_LEVEL": "ERROR"})
        )
        async with People([estate.http], admin_token=estate.token) as people:
            for name in names:
                await people.make_user(name)
                assert (await people.log_in(name))[0]

            told: set[str] = set()

            async def until_refused(name: str) -> None:
                refusals = 0
                while refusals < 4:
                    try:
                        _, answer = await people.log_in(name)
                        assert answer.is_success, answer.text
                    except Unanswered:
                        refusals += 1
                    except NoAnswer as error:
                        told.add(str(error))
                        refusals += 1

            async with asyncio.TaskGroup() as group:
                logins = [group.create_task(until_refused(name)) for name in names]
                if fault == "cut":
                    await proxy.cut()
                else:
                    proxy.stall()
                await asyncio.wait(logins)
                proxy.heal()
            assert told <= {"STORE_UNAVAILABLE", "FENCED", "SHUTTING_DOWN"}, "each has an answer"

            async def stores() -> bool:
                with contextlib.suppress(NoAnswer, Unanswered):
                    await people.as_admin("POST", "/api/v1/users/user-0/reset-delay")
                    return True
                return False

            await eventually(stores)
            again = await asyncio.gather(*(people.log_in(name) for name in names))
            assert [refusal_of(answer) for _, answer in again] == [""] * len(names), (
                "a place is taken for good"
            )
            await people.check_all()
            print(people.history.summary())
        await controller.kill()
