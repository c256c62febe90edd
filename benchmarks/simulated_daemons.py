"""Simulated daemons: they speak the real protocol over mutual TLS, one channel, one certificate and one stream each.

They live in processes of their own, some hundred in each (`Fleets`), so that what they cost is not the cost of what is
measured, and no process of them runs out of file descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import IO, Any, Final

import grpc
import msgspec
import uvloop

from corral.daemon.node.identity import Identity
from corral.pki.names import controller_host
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.channels import channel_options
from corral.wire.features import FEATURES
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.link_pb2_grpc import DaemonServiceStub
from corral.wire.v1.node_pb2 import Handshake, NodeStatus, Pong

EACH: Final = 1000
"""Daemons of one process."""
_DIALS: Final = 64


class SimulatedDaemons:
    """The simulated daemons of one process."""

    def __init__(self, identities: list[Identity], address: str) -> None:
        self._identities = identities
        self._address = address
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[grpc.aio.Channel] = []

    async def connect(self) -> None:
        """Open every stream, some at a time, and wait until all were greeted."""
        gate = asyncio.Semaphore(_DIALS)

        async def one(identity: Identity) -> None:
            async with gate:
                stream = await self._greeted(identity)
            self._tasks.append(asyncio.create_task(self._answer(stream)))

        await asyncio.gather(*(one(identity) for identity in self._identities))

    async def _greeted(self, identity: Identity) -> Any:
        options = channel_options(controller_host(identity.cluster))
        channel = grpc.aio.secure_channel(self._address, identity.channel_credentials(), options=options)
        self._channels.append(channel)
        stream = DaemonServiceStub(channel).Connect()  # type: ignore[no-untyped-call]  # generated
        hello = Handshake(
            node_id=identity.node_id,
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            machine_id=identity.node_id,
            spool_id="s",
            features=FEATURES,
        )
        await stream.write(DaemonMessage(handshake=hello))
        first = await stream.read()
        assert first.handshake_ack.session_id, first
        return stream

    @staticmethod
    async def _answer(stream: Any) -> None:
        while isinstance(frame := await stream.read(), ControllerMessage):
            batched = frame.WhichOneof("payload") == "batch"
            for message in frame.batch.messages if batched else [frame]:
                if message.WhichOneof("payload") == "ping":
                    await stream.write(DaemonMessage(pong=Pong(sequence=message.ping.sequence)))
                    await stream.write(DaemonMessage(node_status=NodeStatus(cpu_usage=0.5)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close(None) for channel in self._channels))


@contextlib.asynccontextmanager
async def connected(identities: list[Identity], address: str, scratch: pathlib.Path) -> AsyncIterator[float]:
    """All of them connected, from processes of their own; yields the seconds that it took. They are gone afterwards."""
    processes = []
    try:
        for begin in range(0, len(identities), EACH):
            path = scratch / f"fleet-{begin}.json"
            path.write_bytes(msgspec.json.encode(identities[begin : begin + EACH]))
            command = [sys.executable, "-m", "benchmarks.simulated_daemons", address, str(path)]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        await _line_of_each(processes)  # they are loaded
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        await _line_of_each(processes)
        yield time.perf_counter() - began
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def _line_of_each(processes: list[subprocess.Popen[bytes]]) -> None:
    def read(lines: IO[bytes] | None) -> None:
        if lines is None or not lines.readline():
            raise SystemExit("the simulated daemons ended before they were connected: see above")

    await asyncio.gather(*(asyncio.to_thread(read, each.stdout) for each in processes))


async def _live(address: str, path: pathlib.Path) -> None:
    daemons = SimulatedDaemons(msgspec.json.decode(path.read_bytes(), type=list[Identity]), address)
    print("loaded", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await daemons.connect()
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the measuring process ends, or ends this one
    await daemons.close()


if __name__ == "__main__":
    uvloop.run(_live(sys.argv[1], pathlib.Path(sys.argv[2])))
