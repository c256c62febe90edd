"""The campaign of scaling and healing: players come and go, operators give orders, and controllers, daemons, keepers,
lines and workloads are killed, stopped and cut; the rules of `scaling_rules` have to hold meanwhile and afterwards.

`python -m campaigns.scaling --minutes 10 --store sqlite --seed 1`. Ends with 1 when a rule was broken. On PostgreSQL
there are two controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import random
import time
from collections.abc import Sequence
from typing import Final

from campaigns.command_line import run_campaign
from campaigns.crowd import Crowd
from campaigns.evidence import workloads
from campaigns.fleet import NODES, Fleet, Refused
from campaigns.scaling_operator import GROUPS, LADDER_SECONDS, SLOTS, Orders, ScalingOperator
from campaigns.scaling_rules import FOLLOWS_A_CLOCK, CopyWatch, Rules
from corral.testing.processes import ProcessCluster

_REST_SECONDS: Final = 120.0
_QUIET_SECONDS: Final = 12.0
_STOP_AFTER_SECONDS: Final = 3
_MEMORY: Final = {"n1": 500, "n2": 300, "n3": 400}
_FAULTS: Final = (
    "controller",
    "controller",
    "frozen",
    "daemon",
    "daemon",
    "stop",
    "cut",
    "cut",
    "stall",
    "keeper",
)
_CHANGES: Final = frozenset({
    "GROUP_SCALED", "INSTANCE_SCHEDULED", "INSTANCE_STOPPING", "INSTANCE_STOPPED", "INSTANCE_CRASHED",
    "INSTANCE_DRAINING", "INSTANCE_LOST", "INSTANCE_OFFLINE", "INSTANCE_PROMOTED", "INSTANCE_ADOPTED",
})  # fmt: skip


class Campaign:
    """One fleet, its players, its operator and its checker."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._seed = seed
        self.orders = Orders()
        self._crowd = Crowd(fleet, {name: SLOTS for name in GROUPS if name != "mute"}, self._dice("crowd"))
        self._operator = ScalingOperator(fleet, self.orders, self._dice("operator"))
        self.rules = Rules(fleet, self.orders, self._crowd)
        self._hit: set[str] = set()

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}{name}")  # noqa: S311

    async def begin(self) -> None:
        for node, memory in _MEMORY.items():
            await self._fleet.call("PATCH", f"/api/v1/nodes/{node}", {"memory_mb": memory, "cpus": 2})
        await self._operator.begin()

    async def round(self, number: int, seconds: float) -> None:
        """Each with other faults and orders: what is rare among all of them is frequent among a few."""
        until = time.monotonic() + seconds
        dice = self._dice(f"round {number}")
        faults = dice.sample(_FAULTS, dice.randrange(1, len(_FAULTS)))
        self._operator.choose(dice)
        async with asyncio.TaskGroup() as tasks:
            breaking = [
                tasks.create_task(
                    self._break(until, faults, self._dice(f"{number}{name}")), name="campaign/break"
                )
                for name in ("a", "b")
            ]
            tasks.create_task(self._operate(until), name="campaign/operate")
            tasks.create_task(self._play(until), name="campaign/play")
            tasks.create_task(self._watch(until), name="campaign/watch")
            tasks.create_task(self._heal_after(breaking), name="campaign/heal")
        await self._free()
        await self._rest()
        await self._quiet()
        await self.rules.players()
        await self.rules.explained()
        told = self._fleet.side / "violations"
        if told.exists():
            self.rules.violations += told.read_text().splitlines()
            told.unlink()
        for status in self._fleet.statuses:
            if status == 500:
                self.rules.broken("5xx", f"{self._fleet.statuses}")

    async def _free(self) -> None:
        """Sometimes groups stay held and nodes cordoned over a rest."""
        if self._dice(f"free{self.rules.counts['rests']}").random() < 0.6:
            await self._operator.release_all()

    async def _heal_after(self, breaking: list[asyncio.Task[None]]) -> None:
        """What an operator waits for may need what is broken."""
        await asyncio.wait(breaking)
        await self._fleet.heal()

    async def _operate(self, until: float) -> None:
        dice = self._dice("pauses")
        while time.monotonic() < until:
            await self._operator.act()
            await asyncio.sleep(dice.uniform(0.05, 0.8))

    async def _play(self, until: float) -> None:
        while time.monotonic() < until:
            self._crowd.wander()
            await self._crowd.move()
            await asyncio.sleep(0.4)

    async def _watch(self, until: float) -> None:
        while time.monotonic() < until:
            await self.rules.watch()
            await asyncio.sleep(0.5)

    async def _break(self, until: float, faults: list[str], dice: random.Random) -> None:
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, dice.uniform(0.1, 1.5)))
            fault = dice.choice((*faults, *faults, "workload"))
            role = dice.choice(self._fleet.controllers if fault in ("controller", "frozen") else NODES)
            if fault == "workload":
                self._fleet.hit_workload(dice)
            elif role not in self._hit:
                self._hit.add(role)
                try:
                    await self._hurt(fault, role, dice)
                finally:
                    self._hit.discard(role)
                self.rules.counts[fault] += 1

    async def _hurt(self, fault: str, role: str, dice: random.Random) -> None:
        fleet = self._fleet
        match fault:
            case "controller":
                await fleet.kill(role)
                await asyncio.sleep(dice.choice((0.0, 0.5, 4.0)))
            case "frozen":
                fleet.stop(role)
                await asyncio.sleep(dice.choice((0.3, 2.0, 6.0)))
            case "daemon":
                await fleet.kill(role)
                await asyncio.sleep(dice.choice((0.0, 1.0, 6.0, 12.0)))
            case "stop":
                fleet.stop(role)
                await asyncio.sleep(dice.choice((0.5, 4.0, 10.0)))
            case "cut":
                await self._cut(role, dice.choice((0.3, 3.0, 8.0, 22.0)))
            case "stall":
                fleet.stall(role)
                await asyncio.sleep(dice.choice((1.0, 6.0, 12.0)))
            case _:
                fleet.kill_keeper(role)
        await fleet.heal_one(role)

    async def _cut(self, node: str, seconds: float) -> None:
        """A group of which at most one may run has none there when the line was cut for long enough."""
        before = {each.pid for each in workloads(self._fleet.side)}
        await self._fleet.cut(node)
        await asyncio.sleep(seconds)
        if seconds < _STOP_AFTER_SECONDS + LADDER_SECONDS + 10:
            return
        for each in workloads(self._fleet.side):
            if each.pid in before and each.node == node and each.instance.startswith("single-"):
                self.rules.broken("stop_after", f"{each.run} lives on {node}, cut off for {seconds:g} s")

    async def _rest(self) -> None:
        """Without faults, orders and changes of players everything has to be right soon, and to stay so for a moment."""
        began = time.monotonic()
        right = 0
        while right < 2:
            unrest = await self.rules.unrest()
            if not await self._operator.make_again():
                unrest.append("groups are being deleted")
            right = 0 if unrest else right + 1
            if unrest and time.monotonic() - began > _REST_SECONDS:
                self.rules.broken("rest", f"none within {_REST_SECONDS:g} s: {unrest}")
                return
            await asyncio.sleep(0.5)
        self.rules.counts["rests"] += 1
        self.rules.counts["seconds to rest"] += round(time.monotonic() - began)
        self.rules.counts["longest"] = max(self.rules.counts["longest"], round(time.monotonic() - began))

    async def _quiet(self) -> None:
        """I5: with the same players nothing changes."""
        before = await self._newest()
        await asyncio.sleep(_QUIET_SECONDS)
        page = await self._fleet.get(f"/api/v1/events?limit=500&after={before}")
        news = [
            f"{each['type']} {each['subject']} {each['data']}"
            for each in page["items"]
            if each["type"] in _CHANGES and not each["subject"].startswith(FOLLOWS_A_CLOCK)
        ]
        if news:
            self.rules.broken("I5", f"at rest there were {news}")
        self.rules.counts["quiet"] += 1

    async def _newest(self) -> str:
        position = ""
        while True:
            page = await self._fleet.get(
                "/api/v1/events?limit=500" + (f"&after={position}" if position else "")
            )
            if page["items"]:
                position = page["items"][-1]["id"]
            if not page["next"] or not page["items"]:
                return position

    async def end(self) -> None:
        """Everybody leaves, everything is deleted, and nothing may be left."""
        await self._crowd.empty()
        deadline = time.monotonic() + _REST_SECONDS
        while time.monotonic() < deadline:
            names = [each["name"] for each in await self._fleet.pages("/api/v1/groups")]
            nodes = await self._fleet.pages("/api/v1/nodes")
            busy = [
                each["id"] for each in nodes if each["instances"] or each["used_ports"] or each["stray_count"]
            ]
            living = [each.run for each in workloads(self._fleet.side)]
            if not names and not busy and not living:
                return
            for name in names:
                with contextlib.suppress(Refused):
                    await self._fleet.call("DELETE", f"/api/v1/groups/{name}?cascade=true&confirm={name}")
            await asyncio.sleep(0.5)
        self.rules.broken("left", f"groups {names}, nodes {busy}, processes {living}")


async def run(
    directory: pathlib.Path,
    *,
    store: str,
    seed: int,
    seconds: float = 0.0,
    rounds: int = 0,
    round_seconds: float = 30.0,
) -> Campaign:
    """For so long, or for so many rounds; then everything is deleted."""
    controllers = 1 if store == "sqlite" else 2
    async with (
        ProcessCluster(directory) as processes,
        Fleet(processes, directory, store, floor_seconds=30, controllers=controllers, files=False) as fleet,
    ):
        campaign = Campaign(fleet, seed)
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
            if not campaign.rules.violations:
                await campaign.end()
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
