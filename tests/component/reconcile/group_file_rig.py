"""A directory of group documents without a controller around it."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
import stat
from typing import Any

import yaml

from corral.controller.instances.group_folder import GroupFolder
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS
from corral.controller.state.ledger import Mutation, Step
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.ids import Epoch, GroupName
from corral.store.port import Change, Commit, Put, Refusal
from corral.store.store_errors import Conflict

GROUPS_PATH = "/api/v1/groups"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CONFLICT = Conflict(Refusal(collection=GROUPS.name, id="lobby", expect=1, found=2))


def group(most: int, name: str = "lobby") -> GroupRecord:
    spec = GroupSpec(name=GroupName(name), command=("true",), max=most)
    written = {"name": name, "command": ["true"], "max": most}
    return GroupRecord(spec=spec, written=written, created_at=NOW, updated_at=NOW)


def mode(file: pathlib.Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


class Folder:
    """A directory with the group 'lobby', as loaded."""

    def __init__(self, path: pathlib.Path) -> None:
        path.mkdir()
        self.file = path / "lobby.yaml"
        self.file.write_text("name: lobby\ncommand: ['true']\nmax: 1\n")
        self.folder = GroupFolder(path)
        self.stored = False
        self.state = ClusterState()
        put = GROUPS.put("lobby", group(1), expect=None)
        change = Change(collection=put.collection, id=put.id, revision=1, body=put.body)
        self.state.apply(Commit(number=1, epoch=Epoch(1), at=NOW, changes=(change,), events=(), entries=()))

    async def commit(
        self, step: Step, error: BaseException | None = None, *, when: asyncio.Event | None = None
    ) -> None:
        async def store(mutation: Mutation) -> None:
            if when is not None:
                await when.wait()
            if error is not None:
                raise error
            self.stored = True

        mutation = Mutation(action="groups.change", subject="lobby", steps=(step,))
        await self.folder.commit(self.state, mutation, store)

    @property
    def most(self) -> Any:
        return yaml.safe_load(self.file.read_text())["max"]


def change(most: int) -> Put:
    return GROUPS.put("lobby", group(most), expect=1)
