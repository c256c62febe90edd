"""The campaign of decisions: operators change groups and nodes while controller, daemons, lines and workloads are
killed, stopped and cut; at every rest the rules of `fleet_rules` have to hold.

`python -m campaigns.decisions --minutes 10 --store sqlite --seed 1`. Ends with 1 when a rule was broken.
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
from campaigns.directory_operator import DirectoryOperator
from campaigns.fleet import NODES, Fleet, Refused
from campaigns.fleet_rules import Picture, Rules
from campaigns.operators import Expected, Operator, failing_document
from corral.testing.processes import ProcessCluster

_REST_SECONDS: Final = 120.0
_STILL_SECONDS: Final = 2.0
_FLOOR_SECONDS: Final = 30.0
_FAULTS: Final = ("controller", "controller", "frozen", "daemon", "stop", "cut", "stall")


class Campaign:
    """One fleet, its operators and its checker."""

    def __init__(self, fleet: Fleet, seed: int, *, floor_seconds: float) -> None:
        self._fleet = fleet
        self._dice = random.Random(seed)  # noqa: S311
        self._floor_seconds = floor_seconds
        self.expected = Expected()
        self.rules = Rules(fleet, self.expected)
        common = asyncio.Lock()
        self._operators = [
            Operator(name, fleet, self.expected, random.Random(f"{seed}{name}"), common)  # noqa: S311
            for name in ("a", "b")
        ]
        self._directory: DirectoryOperator | None = None
        if fleet.groups is not None:
            own = random.Random(f"{seed}directory")  # noqa: S311
            self._directory = DirectoryOperator(fleet, fleet.groups, self.expected, own)

    async def begin(self) -> None:
        failing = failing_document(self._fleet.side)
        await self._fleet.call("POST", "/api/v1/groups", failing)
        self.expected.wrote(failing["name"], failing)
        for node, memory in zip(NODES, (900, 600, 600), strict=True):
            settings = {"memory_mb": memory, "cpus": 2, "labels": {"zone": "b" if node == "n3" else "a"}}
            await self._fleet.call("PATCH", f"/api/v1/nodes/{node}", settings)
            self.expected.nodes[node] |= settings
        for operator in self._everybody():
            await operator.begin()

    def _everybody(self) -> list[Operator | DirectoryOperator]:
        return [*self._operators, *([self._directory] if self._directory is not None else [])]

    async def round(self, seconds: float, *, quiet: bool) -> None:
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for operator in self._everybody():
                tasks.create_task(self._operate(operator, until), name="campaign/operate")
            tasks.create_task(self._break(until), name="campaign/break")
        await self._fleet.heal()
        picture = await self._rest()
        await self.rules.check(picture)
        if self._directory is not None:
            self.rules.violations += await self._directory.check()
        if quiet:
            await self._quiet()

    async def _operate(self, operator: Operator | DirectoryOperator, until: float) -> None:
        while time.monotonic() < until:
            await operator.act()
            await asyncio.sleep(0.05)

    async def _break(self, until: float) -> None:
        dice = self._dice
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, dice.uniform(0.1, 2.5)))
            node = dice.choice(NODES)
            match dice.choice((*_FAULTS, *["workload"] * 5)):
                case "controller":
                    await self._fleet.kill("controller")
                    await asyncio.sleep(dice.choice((0.0, 0.5, 3.0)))
                    if dice.random() < 0.3:
                        await self._fleet.kill_while_it_starts(dice.uniform(0.3, 2.0))
                    await self._fleet.heal_one("controller")
                case "frozen":
                    self._fleet.stop("controller")
                    await asyncio.sleep(dice.choice((0.3, 2.0)))
                    await self._fleet.heal_one("controller")
                case "daemon":
                    await self._fleet.kill(node)
                    await asyncio.sleep(dice.choice((0.0, 0.5, 4.0)))
                    await self._fleet.heal_one(node)
                case "stop":
                    self._fleet.stop(node)
                    await asyncio.sleep(dice.choice((0.5, 4.0)))
                    await self._fleet.heal_one(node)
                case "cut":
                    await self._fleet.cut(node)
                    await asyncio.sleep(dice.choice((0.2, 2.0, 5.0)))
                    await self._fleet.heal_one(node)
                case "stall":
                    self._fleet.stall(node)
                    await asyncio.sleep(dice.choice((0.5, 4.0)))
                    await self._fleet.heal_one(node)
                case _:
                    self._fleet.hit_workload(dice)

    async def _rest(self) -> Picture:
        """Wait until nothing is under way and nothing has happened for a while."""
        deadline = time.monotonic() + _REST_SECONDS
        heads = await self._fleet.evidence.heads()
        still_since = time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            now = await self._fleet.evidence.heads()
            if now != heads:
                heads, still_since = now, time.monotonic()
            if time.monotonic() - still_since < _STILL_SECONDS and time.monotonic() < deadline:
                continue
            picture = await Picture.taken(self._fleet)
            unrest = picture.unrest()
            if not unrest and await self._fleet.evidence.heads() == heads:
                return picture
            if time.monotonic() > deadline:
                self.rules.broken("rest", f"none within {_REST_SECONDS:g} s: {unrest or 'events go on'}")
                return picture

    async def _quiet(self) -> None:
        """I11, I12: the pass over all groups finds nothing to do, and nothing happens meanwhile."""
        evidence = self._fleet.evidence
        events, decisions = await evidence.heads()
        await asyncio.sleep(self._floor_seconds * 1.1 + 2)
        news = [
            f"{each['type']} {each['subject']}"
            for each in await evidence.events(events)
            if each["type"] != "INSTANCE_REMOVED"  # the past of a deleted group is dropped within a minute
        ]
        made = [f"{each['rule']} {each['subject']}" for each in await evidence.decisions(decisions)]
        if news or made:
            self.rules.broken("I12", f"at rest there were {news} and {made}")
        self.rules.counts["quiet"] += 1

    async def end(self) -> None:
        """Delete everything; nothing may be left."""
        names = [each["name"] for each in await self._fleet.pages("/api/v1/groups")]
        deadline = time.monotonic() + _REST_SECONDS
        while names and time.monotonic() < deadline:
            for name in names:
                with contextlib.suppress(Refused):  # others need it: they go first
                    await self._fleet.call("DELETE", f"/api/v1/groups/{name}?cascade=true&confirm={name}")
            await asyncio.sleep(0.5)
            names = [each["name"] for each in await self._fleet.pages("/api/v1/groups")]
        await self.rules.nothing_left(self._fleet.side)


async def run(
    directory: pathlib.Path,
    *,
    store: str,
    seed: int,
    seconds: float = 0.0,
    rounds: int = 0,
    round_seconds: float = 12.0,
    floor_seconds: float = _FLOOR_SECONDS,
) -> Campaign:
    """For so long, or for so many rounds; then everything is deleted."""
    async with (
        ProcessCluster(directory) as processes,
        Fleet(processes, directory, store, floor_seconds=floor_seconds) as fleet,
    ):
        campaign = Campaign(fleet, seed, floor_seconds=floor_seconds)
        await campaign.begin()
        deadline = time.monotonic() + seconds
        for number in itertools.count(1):
            if number > rounds if rounds else time.monotonic() > deadline:
                break
            await campaign.round(round_seconds, quiet=number % 3 == 0 or number == rounds)
            print(f"round {number}: {dict(campaign.rules.counts)}", flush=True)
            for violation in campaign.rules.violations:
                print(f"VIOLATION {violation}", flush=True)
            if campaign.rules.violations:
                break
        else:
            raise AssertionError("endless")
        if not campaign.rules.violations:
            await campaign.end()
        return campaign


async def _reported(
    directory: pathlib.Path, *, store: str, seed: int, seconds: float
) -> tuple[Sequence[str], Sequence[object]]:
    campaign = await run(directory, store=store, seed=seed, seconds=seconds)
    lines = [
        f"accepted {dict(campaign.expected.accepted)}",
        f"refused {dict(campaign.expected.refusals)}",
        f"seen {dict(campaign.rules.counts)}",
    ]
    return lines, campaign.rules.violations


if __name__ == "__main__":
    raise SystemExit(run_campaign(_reported, description=__doc__, minutes=10.0))
