"""A node's consoles on one side, a controller that stores what it gets on the other, a real link between."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from typing import Any

import pytest

from corral.controller.sessions.console_acks import ConsoleAcks
from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.console.feed import ConsoleKey
from corral.daemon.link.connection import LinkConnection
from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import CorralError
from corral.system.clock import SystemClock
from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedController
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.features import FEATURES
from corral.wire.outbox import Outbox
from corral.wire.v1.instance_pb2 import ConsoleBlock, ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck


class StoringPeer:
    """What a controller does with consoles: keeps them, says what it has, complains about disorder."""

    def __init__(self) -> None:
        self.data: dict[ConsoleKey, bytearray] = {}
        self.first: dict[ConsoleKey, int] = {}
        self.gaps: list[tuple[int, int, str]] = []
        self.times: list[tuple[int, int]] = []
        self.lines: list[Any] = []
        self.others: list[DaemonMessage] = []
        self.complaints: list[str] = []
        self.unacknowledged = 0
        self.most_unacknowledged = 0
        self.largest_frame = 0
        self.features = list(FEATURES)
        self.watched = False
        self.acknowledging = asyncio.Event()
        self.acknowledging.set()
        self.ack_frames = 0
        self._acks = self._new_acks()

    def end(self, key: ConsoleKey) -> int:
        return self.first[key] + len(self.data[key])

    def positions(self) -> list[ConsolePosition]:
        return [self._position(key) for key in self.data]

    def _position(self, key: ConsoleKey) -> ConsolePosition:
        return ConsolePosition(
            instance_id=key.instance_id,
            incarnation=key.incarnation,
            offset=self.end(key),
            watched=self.watched,
        )

    async def script(self, context: Any) -> None:
        await context.read()
        ack = HandshakeAck(
            session_id="s1",
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            epoch=1,
            features=self.features,
            consoles=self.positions(),
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        self.unacknowledged = 0
        self._acks = self._new_acks()
        acking = asyncio.create_task(self._acknowledge(context), name="peer/ack")
        try:
            while isinstance(frame := await context.read(), DaemonMessage):
                self.largest_frame = max(self.largest_frame, frame.ByteSize())
                batch = frame.WhichOneof("payload") == "batch"
                for message in frame.batch.messages if batch else [frame]:
                    self._take(message)
        finally:
            acking.cancel()
            await asyncio.gather(acking, return_exceptions=True)

    def _take(self, message: DaemonMessage) -> None:
        kind = message.WhichOneof("payload")
        if kind == "console_batch":
            keys = {self._store(block): None for block in message.console_batch.blocks}
            self._acks[1].add([self._position(key) for key in keys])
        elif kind == "console_output":
            self.lines.append(message.console_output)
        else:
            self.others.append(message)

    def _store(self, block: ConsoleBlock) -> ConsoleKey:
        key = ConsoleKey(block.instance_id, block.incarnation)
        if key not in self.data:
            self.data[key], self.first[key] = bytearray(), block.offset
        expected = self.end(key)
        for gap in block.gaps:
            self.gaps.append((gap.from_offset, gap.to_offset, gap.reason))
            if gap.from_offset == expected and gap.to_offset == block.offset:
                self.data[key] += b"?" * (block.offset - expected)
                expected = block.offset
        if block.offset != expected:
            self.complaints.append(f"{key}: expected {expected}, got {block.offset}")
        if block.data and (not block.times or block.times[0].offset != block.offset):
            self.complaints.append(f"{key}: no time for {block.offset}")
        self.times += [(stamp.offset, stamp.timestamp_ms) for stamp in block.times]
        self.data[key] += block.data
        self.unacknowledged += len(block.data)
        self.most_unacknowledged = max(self.most_unacknowledged, self.unacknowledged)
        return key

    async def _acknowledge(self, context: Any) -> None:
        """As a session does it, when it is allowed."""
        outbox = self._acks[0]
        while True:
            await asyncio.sleep(0.001)
            await self.acknowledging.wait()
            if len(outbox) and (frame := await outbox.next_frame()) is not None:
                self.unacknowledged = 0
                self.ack_frames += 1
                frame.epoch = 1
                await context.write(frame)

    @staticmethod
    def _new_acks() -> tuple[Outbox[ControllerMessage], ConsoleAcks]:
        outbox: Outbox[ControllerMessage] = Outbox(bundle=None)
        return outbox, ConsoleAcks(outbox)


class Node:
    """The part of a daemon that consoles need: a link that comes back."""

    def __init__(self, identity: Any, address: str, data: pathlib.Path) -> None:
        self._identity = identity
        self._address = address
        self._memory = KnownControllers(data, (address,))
        self._clock = SystemClock()
        self.consoles = NodeConsoles(self._clock)
        self.connection: LinkConnection | None = None
        self.connections = 0

    async def stay_connected(self) -> None:
        while True:
            self.connections += 1
            connection = LinkConnection(
                address=self._address,
                generation=self.connections,
                identity=self._identity,
                memory=self._memory,
                receive=self._receive,
                clock=self._clock,
            )
            try:
                with contextlib.suppress(CorralError):
                    await connection.open(self._handshake(), deadline=5)
                    self.connection = connection
                    self.consoles.on_connected(connection)
                    await connection.serve()
            finally:
                self.connection = None
                self.consoles.on_disconnected()
                await connection.close()
            await asyncio.sleep(0.02)

    def _handshake(self) -> Handshake:
        return Handshake(
            node_id=self._identity.node_id,
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            features=FEATURES,
        )

    def _receive(self, connection: LinkConnection, message: ControllerMessage) -> None:
        kind = message.WhichOneof("payload")
        if kind == "console_ack":
            self.consoles.on_ack(message.console_ack)
        elif kind == "console_query":
            self.consoles.answer(message.console_query)


@pytest.fixture
async def peer():
    return StoringPeer()


@pytest.fixture
async def proxy():
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def node(peer, proxy, scratch):
    async with ScriptedController(peer.script) as controller:
        proxy.retarget(controller.address)
        identity = controller.enrol(scratch / "data", "n1")
        node = Node(identity, proxy.address, scratch / "data")
        async with node.consoles:
            linked = asyncio.create_task(node.stay_connected(), name="test/link")
            yield node
            linked.cancel()
            await asyncio.gather(linked, return_exceptions=True)
