"""Files on this controller's disk that nodes may fetch: each is offered to one node, under the id of the order that names
it, for as long as that order is open."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec

from corral.domain.ids import NodeId
from corral.errors import Code, Rejected
from corral.wire.transfer import CHUNK


class OfferedFile(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    path: pathlib.Path
    size: int
    moved: Callable[[], None]
    """Called whenever a piece of it was sent."""

    async def blocks(self, offset: int) -> AsyncGenerator[bytes]:
        with self.path.open("rb") as file:
            file.seek(offset)
            while block := await asyncio.to_thread(file.read, CHUNK):
                self.moved()
                yield block


class OfferedFiles:
    def __init__(self) -> None:
        self._offers: dict[str, OfferedFile] = {}

    @contextlib.contextmanager
    def offered(self, transfer_id: str, file: OfferedFile) -> Iterator[None]:
        """Let the node fetch it while this lasts."""
        self._offers[transfer_id] = file
        try:
            yield
        finally:
            del self._offers[transfer_id]

    def find(self, node_id: NodeId, transfer_id: str) -> OfferedFile:
        """NOT_FOUND, also for a file that is offered to another node."""
        found = self._offers.get(transfer_id)
        if found is None or found.node_id != node_id:
            raise Rejected(Code.NOT_FOUND, f"nothing is offered under '{transfer_id[:80]}'")
        return found
