"""A node whose every word about modules the test says itself."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Self

from corral.daemon.node.identity import Identity, load_identity
from corral.testing.cluster import LocalController
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import ModuleSetEntry, ModuleStateUpdate

ORDERS = frozenset({"module_install", "module_control", "module_uninstall"})


def digest(archive: pathlib.Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()


class ModulePeer(ScriptedDaemon):
    """Reads frame by frame, looking into batches; what is passed over is kept for nobody."""

    def __init__(self, identity: Identity, address: str) -> None:
        super().__init__(identity, address)
        self._frames: deque[ControllerMessage] = deque()
        self._sequence = 0

    async def __aenter__(self) -> Self:
        return self

    async def next_of(self, kinds: frozenset[str]) -> ControllerMessage:
        while True:
            while self._frames:
                message = self._frames.popleft()
                if message.WhichOneof("payload") in kinds:
                    return message
            frame = await self.read()
            batch = list(frame.batch.messages) if frame.WhichOneof("payload") == "batch" else [frame]
            for message in batch:
                message.epoch = frame.epoch
            self._frames.extend(batch)

    async def order(self) -> Any:
        """The next order about a module."""
        message = await self.next_of(ORDERS)
        return getattr(message, message.WhichOneof("payload") or "")

    async def complaint(self) -> Any:
        return (await self.next_of(frozenset({"error_report"}))).error_report

    async def tell(self, *, sequence: int | None = None, **fields: Any) -> None:
        """A state, kept in the spool; a number that was used before is the same word again."""
        self._sequence = sequence or self._sequence + 1
        update = ModuleStateUpdate(**{"updated_at_ms": 1_000, **fields})
        await self.send(DaemonMessage(module_state_update=update, spool_sequence=self._sequence))


@contextlib.asynccontextmanager
async def peer(
    controller: LocalController,
    directory: pathlib.Path,
    *modules: ModuleSetEntry,
    node: str = "n1",
    **hello: Any,
) -> AsyncIterator[ModulePeer]:
    """A connected node that said that it has these modules; its ack is `ack`."""
    home = directory / node
    identity = load_identity(home) if home.exists() else None
    if identity is None:
        identity = await enrolled_identity(home, token=await controller.join_token(node), node_id=node)
    async with ModulePeer(identity, controller.grpc_address) as daemon:
        first = await daemon.greet(modules=modules, **{"run_id": "run-1", **hello})
        daemon.ack = first.handshake_ack  # type: ignore[attr-defined]  # for the test to look at
        yield daemon
