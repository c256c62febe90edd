"""The players of a campaign: they come by the registry, as a proxy sends them, and leave when they like.

What a server knew of its players when it ended is in its own log.
"""

from __future__ import annotations

import asyncio
import collections
import json
import pathlib
import random
from typing import Any

from campaigns.evidence import Process, workloads
from campaigns.fleet import Fleet, Refused

Item = dict[str, Any]


class Crowd:
    """Players on the processes of groups. `wishes`: how many would like to play, by group."""

    def __init__(self, fleet: Fleet, groups: dict[str, int], dice: random.Random) -> None:
        """`groups`: how many players one instance of each takes."""
        self._fleet = fleet
        self._dice = dice
        self._slots = groups
        self.wishes = dict.fromkeys(groups, 0)
        self.files = fleet.side / "players"
        self.files.mkdir()
        self.logs = fleet.side / "logs"
        self.logs.mkdir()
        self._read: collections.Counter[str] = collections.Counter()

    def wander(self) -> None:
        """Other numbers of players would like to play."""
        for group, slots in self._slots.items():
            if self._dice.random() < 0.15:
                self.wishes[group] = self._dice.choice((0, 0, 1, slots // 2, slots, 2 * slots, 3 * slots))

    async def move(self) -> None:
        """Some leave, some come, each group towards what it wishes."""
        processes = workloads(self._fleet.side)
        now = self.players(processes)
        for group, wish in self.wishes.items():
            mine = {key: count for key, count in now.items() if key.rpartition("-")[0] == group}
            surplus = sum(mine.values()) - wish
            if surplus > 0:
                self._leave(mine, surplus)
            elif surplus < 0:
                await self._come(group, mine, -surplus)

    def players(self, processes: list[Process]) -> dict[str, int]:
        """By instance and process id, `lobby-1.4711`."""
        found = {}
        for each in processes:
            key = f"{each.instance}.{each.pid}"
            path = self.files / key
            found[key] = int(path.read_text() or 0) if path.exists() else 0
        return found

    def _leave(self, mine: dict[str, int], count: int) -> None:
        """From one after the other, so that some are empty while others are not."""
        keys = sorted(mine)
        self._dice.shuffle(keys)
        for key in keys:
            leaving = min(mine[key], count)
            if leaving:
                self._write(key, mine[key] - leaving)
                count -= leaving

    async def _come(self, group: str, mine: dict[str, int], count: int) -> None:
        try:
            registry = await self._fleet.get(f"/api/v1/groups/{group}/registry")
        except Refused:
            return
        if registry["maintenance"]["enabled"]:
            return
        listed = {each["id"] for each in registry["instances"]}
        keys = [key for key in mine if key.partition(".")[0] in listed]
        self._dice.shuffle(keys)
        for key in keys:
            coming = min(
                self._slots[group] - mine[key], count, self._dice.randrange(1, self._slots[group] + 1)
            )
            if coming > 0:
                self._write(key, mine[key] + coming)
                count -= coming

    def _write(self, key: str, count: int) -> None:
        new = self.files / f".{key}"
        new.write_text(str(count))
        new.rename(self.files / key)

    async def empty(self) -> None:
        """Everybody leaves."""
        self.wishes = dict.fromkeys(self._slots, 0)
        for key in await asyncio.to_thread(lambda: list(self.players(workloads(self._fleet.side)))):
            self._write(key, 0)

    def news(self) -> list[Item]:
        """The lines of all logs that were not read yet."""
        found: list[Item] = []
        for path in sorted(self.logs.iterdir()):
            text = path.read_text()[self._read[path.name] :]
            self._read[path.name] += len(text)
            found += [json.loads(line) for line in text.splitlines()]
        return sorted(found, key=lambda line: float(line["at"]))


def program() -> str:
    return str(pathlib.Path(__file__).resolve().with_name("player_server.py"))
