"""The campaign of drains and deployments: nodes are emptied and opened, versions deployed that start and that do not,
players come and go, and in every second round controllers, daemons and lines are killed and cut; the rules of
`change_rules` have to hold meanwhile and afterwards.

`python -m campaigns.changes --minutes 10 --store sqlite --seed 1`. Ends with 1 when a rule was broken. On PostgreSQL
there are two controllers.
"""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from campaigns.change_operator import ChangeOperator, ChangeOrders
from campaigns.change_rules import ChangeRules, slots
from campaigns.command_line import run_campaign
from campaigns.crowd import Crowd
from campaigns.fleet import NODES, Fleet
from campaigns.scaling_rules import CopyWatch
from corral.testing.processes import ProcessCluster

_REST_SECONDS: Final = 120.0
_FAULTS: Final = ("controller", "controller", "daemon", "daemon", "cut", "frozen")


class ChangeCampaign:
    """One fleet, its players, its operator and its checker."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._seed = seed
        self.orders = ChangeOrders()
        self._crowd = Crowd(fleet, slots(), self._dice("crowd"))
        self._operator = ChangeOperator(fleet, self.orders, self._dice("operator"))
        self.rules = ChangeRules(fleet, self.orders, self._crowd)
        self._hit: set[str] = set()

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}{name}")  # noqa: S311

    async def begin(self) -> None:
        for node in NODES:
            await self._fleet.call("PATCH", f"/api/v1/nodes/{node}", {"memory_mb": 1000, "cpus": 2})
        await self._operator.begin()
        await self._rest(self.rules.unrest)

    async def round(self, number: int, seconds: float) -> None:
        """The first, and every second one after it, without faults."""
        until = time.monotonic() + seconds
        calm = self._operator.calm = number % 2 == 1
        self.rules.last_hit = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._operate(until), name="campaign/operate")
            tasks.create_task(self._play(until), name="campaign/play")
            tasks.create_task(self._watch(until, calm=calm), name="campaign/watch")
            if not calm:
                tasks.create_task(self._break(until, self._dice(f"faults {number}")), name="campaign/break")
        await self._fleet.heal()
        await self._rest(self.rules.unexplained)
        await self._crowd.empty()
        await self._operator.open_everything()
        await self._rest(self.rules.unrest)
        await self.rules.logs()
        await self.rules.explained()
        told = self._fleet.side / "violations"
        if told.exists():
            self.rules.violations += told.read_text().splitlines()
            told.unlink()
        if self._fleet.statuses[500]:
            self.rules.broken("5xx", f"{self._fleet.statuses}")
        self.rules.counts["rounds"] += 1

    async def _operate(self, until: float) -> None:
        dice = self._dice("pauses")
        while time.monotonic() < until:
            await self._operator.act()
            await asyncio.sleep(dice.uniform(0.2, 2.0))

    async def _play(self, until: float) -> None:
        while time.monotonic() < until:
            self._crowd.wander()
            await self._crowd.move()
            await asyncio.sleep(0.4)

    async def _watch(self, until: float, *, calm: bool) -> None:
        while time.monotonic() < until:
            await self.rules.watch(calm=calm)
            await asyncio.sleep(0.3)

    async def _break(self, until: float, dice: random.Random) -> None:
        fleet = self._fleet
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, dice.uniform(0.5, 4.0)))
            fault = dice.choice((*_FAULTS, "workload"))
            role = dice.choice(fleet.controllers if fault in ("controller", "frozen") else NODES)
            self.rules.last_hit = time.monotonic()
            match fault:
                case "workload":
                    fleet.hit_workload(dice)
                case "controller" | "daemon":
                    await fleet.kill(role)
                    await asyncio.sleep(dice.choice((0.0, 0.5, 4.0)))
                case "cut":
                    await fleet.cut(role)
                    await asyncio.sleep(dice.choice((0.3, 3.0, 9.0)))
                case _:
                    fleet.stop(role)
                    await asyncio.sleep(dice.choice((0.3, 2.0, 6.0)))
            await fleet.heal_one(role)
            self.rules.counts[fault] += 1
            self.rules.last_hit = time.monotonic()
        await fleet.heal()

    async def _rest(self, unrest: Callable[[], Awaitable[list[str]]]) -> None:
        """Without faults and orders everything has to be right soon, and to stay so for a moment. A daemon that was
        ordered to end is started again."""
        began = time.monotonic()
        right = 0
        while right < 2:
            await self._fleet.heal()
            found = await unrest()
            right = 0 if found else right + 1
            if found and time.monotonic() - began > _REST_SECONDS:
                self.rules.broken("rest", f"none within {_REST_SECONDS:g} s: {found}")
                return
            await asyncio.sleep(0.5)
        self.rules.counts["rests"] += 1
        self.rules.counts["longest"] = max(self.rules.counts["longest"], round(time.monotonic() - began))


async def run(
    directory: pathlib.Path,
    *,
    store: str,
    seed: int,
    seconds: float = 0.0,
    rounds: int = 0,
    round_seconds: float = 30.0,
) -> ChangeCampaign:
    """For so long, or for so many rounds."""
    controllers = 1 if store == "sqlite" else 2
    async with (
        ProcessCluster(directory) as processes,
        Fleet(processes, directory, store, floor_seconds=30, controllers=controllers, files=False) as fleet,
    ):
        campaign = ChangeCampaign(fleet, seed)
        await campaign.begin()
        deadline = time.monotonic() + seconds
        with CopyWatch(fleet, campaign.rules):
            for number in itertools.count(1):
                if number > rounds if rounds else time.monotonic() > deadline:
                    break
                await campaign.round(number, round_seconds)
                print(f"round {number}: {dict(campaign.rules.counts)}", flush=True)
                if campaign.rules.violations:
                    break
        return campaign


async def _reported(
    directory: pathlib.Path, *, store: str, seed: int, seconds: float
) -> tuple[Sequence[str], Sequence[object]]:
    campaign = await run(directory, store=store, seed=seed, seconds=seconds)
    lines = [
        f"accepted {dict(campaign.orders.accepted)}",
        f"refused {dict(campaign.orders.refused)}",
        f"seen {dict(campaign.rules.counts)}",
    ]
    return lines, campaign.rules.violations


if __name__ == "__main__":
    raise SystemExit(run_campaign(_reported, description=__doc__, minutes=10.0))
