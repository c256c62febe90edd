"""An operator with a directory of group documents (`--groups`): edits files and reloads them, or changes groups over the
API, which has to write the files."""

from __future__ import annotations

import asyncio
import pathlib
import random
from typing import Any, Final

import yaml

from campaigns.fleet import Fleet, Refused
from campaigns.operators import Expected, Fields, base_document, merged

NAMES: Final = ("d-p", "d-q")


class DirectoryOperator:
    """Acts on its groups only; what was acknowledged is expected in the store and in the files."""

    def __init__(
        self, fleet: Fleet, directory: pathlib.Path, expected: Expected, dice: random.Random
    ) -> None:
        self._fleet = fleet
        self._directory = directory
        self._expected = expected
        self._dice = dice

    async def begin(self) -> None:
        for name in NAMES:
            await self._edit(name)

    async def act(self) -> None:
        name = self._dice.choice(NAMES)
        action = self._dice.choice((self._edit, self._patch, self._patch))
        try:
            await action(name)
            self._expected.accepted[action.__name__.replace("_", "directory ", 1)] += 1
        except Refused as refused:
            self._expected.refusals[f"directory {refused.code}"] += 1
        await asyncio.sleep(0.3)

    async def _edit(self, name: str) -> None:
        """Replace a file, and reload: a second time nothing changes."""
        document = {**base_document(name, self._fleet.side), "abstract": False, **self._numbers()}
        path = self._directory / f"{name}.yaml"
        beside = self._directory / f".{name}.new"
        await asyncio.to_thread(beside.write_text, yaml.safe_dump(document))
        beside.replace(path)
        report = await self._fleet.call("POST", "/api/v1/groups/reload", {})
        if report["errors"]:
            self._expected.violations.append(f"reload: {report['errors']}")
        self._expected.wrote(name, document)
        again = await self._fleet.call("POST", "/api/v1/groups/reload", {})
        if "nothing changed" not in again["summary"]:
            self._expected.violations.append(f"I19: a second reload: {again['summary']}")

    async def _patch(self, name: str) -> None:
        patch = self._numbers()
        await self._fleet.call("PATCH", f"/api/v1/groups/{name}", patch)
        self._expected.wrote(name, merged(self._expected.groups[name], patch))
        stored = self.file(name)
        if any(stored.get(key) != value for key, value in patch.items() if value):
            self._expected.violations.append(f"directory: {patch} was accepted, the file has {stored}")

    def _numbers(self) -> Fields:
        dice = self._dice
        return {
            "min": dice.randrange(3),
            "memory_mb": dice.choice((0, 50, 100)),
            "priority": dice.randrange(101),
        }

    def file(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self._directory / f"{name}.yaml").read_text())
        return found

    async def check(self) -> list[str]:
        """At rest the files are what is stored."""
        broken = []
        for name in NAMES:
            written = await self._fleet.get(f"/api/v1/groups/{name}/document")
            if written != self.file(name):
                broken.append(f"directory: {name} is stored as {written}, its file is {self.file(name)}")
        return broken
