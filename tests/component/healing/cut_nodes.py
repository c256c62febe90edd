"""Three real daemons in this process, each behind a line of its own that can be cut; their workloads are real."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Callable
from typing import Any, Self

from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.node_states import NodeState
from corral.testing import workloads
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.fault_proxy import FaultProxy
from corral.testing.live_copies import LiveCopies
from corral.testing.ports import free_addresses
from corral.testing.waiting import eventually

NODES = ("n1", "n2", "n3")
NOWHERE = "127.0.0.1:1"
"""What the controller tells nodes as its address: each reaches it only over its own line."""
SWIFT = {"reconcile__offline_after_seconds": 0.2, "reconcile__observe_seconds": 1}


class CutNodes:
    """Use as `async with`."""

    def __init__(self, scratch: pathlib.Path) -> None:
        self.scratch = scratch
        self.players = scratch / "players"
        self.players.mkdir()
        self._stack = contextlib.AsyncExitStack()
        self.lines: dict[str, FaultProxy] = {}
        self.daemons: dict[str, LocalDaemon] = {}
        self.controller: LocalController
        self.copies = LiveCopies(scratch)
        (self._http,) = free_addresses(1)

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self.copies)
        self.cluster = await self._stack.enter_async_context(LocalCluster(self.scratch))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def begin(self, **flags: Any) -> None:
        """A controller and all nodes, connected."""
        await self.lead("controller", **flags)
        await asyncio.gather(*(self.node(id) for id in NODES))

    async def lead(self, name: str, **flags: Any) -> None:
        """A controller, which the lines lead to; workloads find each one at the same address."""
        fixed = {"grpc__advertise": NOWHERE, "http__listen": self._http}
        self.controller = await self.cluster.controller(name, **{**SWIFT, **fixed, **flags})
        for line in self.lines.values():
            line.retarget(self.controller.app.grpc_listen)

    async def node(self, id: str, **flags: Any) -> LocalDaemon:
        if id not in self.lines:
            line = FaultProxy(self.controller.app.grpc_listen)
            self.lines[id] = await self._stack.enter_async_context(line)
        self.daemons[id] = await self.cluster.daemon(
            id, self.controller, controllers=[self.lines[id].address], **flags
        )
        return self.daemons[id]

    async def cut(self, id: str) -> None:
        await self.lines[id].cut()

    def mend(self, id: str) -> None:
        self.lines[id].heal()

    # groups

    async def group(self, name: str = "lobby", **fields: Any) -> None:
        document = {
            "name": name,
            "command": workloads.reporting_players(str(self.players)),
            "min_alive_ms": 0,
            "stop": [{"signal": "SIGTERM", "wait_seconds": 10}],
            "memory_mb": 10,
            **fields,
        }
        await self.controller.call("POST", "/api/v1/groups", document)

    def play(self, id: str, count: int) -> None:
        """So many players are on this instance from now on."""
        new = self.players / f".{id}"
        new.write_text(str(count))
        new.rename(self.players / id)

    async def players_are(self, expected: dict[str, int]) -> None:
        """Until the controller knows of these players."""

        def known() -> dict[str, int | None]:
            term = self.controller.app.role.term
            return {id: term.workload.vitals.players_of(id) for id in expected} if term else {}

        await eventually(lambda: known() == expected, state=known)

    # records

    @property
    def state(self) -> Any:
        term = self.controller.app.role.term
        assert term is not None, "it does not lead"
        return term.state

    def records(self, group: str = "lobby") -> list[InstanceRecord]:
        """Those that have not ended, by id."""
        found = [stored.record for stored in self.state.instances if stored.record.group == group]
        return sorted((each for each in found if live(each.state)), key=lambda each: each.id)

    def record(self, id: str) -> InstanceRecord:
        return self.state.instances.require(id).record

    def shown(self) -> Any:
        return [
            (each.id, each.node, each.state.value, each.wanted.value, each.reason) for each in self.records()
        ]

    async def until(self, condition: Callable[[], Any], *, deadline: float = 60.0) -> Any:
        return await eventually(condition, deadline=deadline, state=self.shown)

    async def running(self, count: int, group: str = "lobby") -> list[InstanceRecord]:
        """Until so many run, and nothing else is left."""

        def there() -> bool:
            return [each.state.value for each in self.records(group)] == ["RUNNING"] * count

        await self.until(there)
        return self.records(group)

    async def node_is(self, id: str, *states: NodeState) -> None:
        await self.until(lambda: self.controller.node_state(id) in states)
