"""What a client of a stream learns when the server ends it while the client writes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from corral.daemon.link.connection import LinkConnection
from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import Code, CorralError, Rejected
from corral.system.clock import SystemClock
from corral.testing.scripted_peers import ScriptedController, ScriptedDaemon
from corral.wire.client_streams import ClientStream
from corral.wire.handshake_lists import MOST_RUNNING
from corral.wire.rpc_errors import abort
from corral.wire.v1.instance_pb2 import RunningInstance
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck, Ping, Pong

STREAMS = 10
"""One write in a few meets the end of its stream."""
FEW = 100
"""Messages that may wait: a daemon with very many ends the connection itself."""
REFUSAL = Rejected(Code.CERTIFICATE_REFUSED, "the node is revoked: stolen")


def ending_after(frames: int):
    async def script(context) -> None:
        for sequence in range(frames):
            await context.write(ControllerMessage(ping=Ping(sequence=sequence)))
        await abort(context, REFUSAL)

    return script


async def write_until_the_end(stream: ClientStream) -> None:
    while await stream.write(DaemonMessage(pong=Pong(sequence=1))):
        pass


@pytest.mark.parametrize("reading", [True, False], ids=["reads-meanwhile", "reads-afterwards"])
@pytest.mark.parametrize("frames", [0, 1, 20])
async def test_every_frame_and_the_reason_arrive_on_a_stream_that_is_written_to(scratch, frames, reading):
    async with ScriptedController(ending_after(frames)) as controller:
        identity = controller.enrol(scratch / "n1", "n1")
        for _ in range(STREAMS):
            async with ScriptedDaemon(identity, controller.address) as daemon:
                stream = await daemon.open()
                writing = asyncio.create_task(write_until_the_end(stream))
                if not reading:
                    await writing
                received = []
                while (frame := await stream.read()) is not None:
                    received.append(frame.ping.sequence)
                await writing
                assert received == list(range(frames))
                reason = await stream.ending(peer="controller")
                assert isinstance(reason, CorralError)
                assert (reason.code, reason.message) == (REFUSAL.code, REFUSAL.message)


@contextlib.asynccontextmanager
async def connection_to(controller: ScriptedController, data):
    identity = controller.enrol(data, "n1")
    connection = LinkConnection(
        address=controller.address,
        generation=1,
        identity=identity,
        memory=KnownControllers(data, (controller.address,)),
        receive=lambda *_: None,
        clock=SystemClock(),
    )
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_daemon_gets_a_redirect_that_comes_while_it_still_lists_its_instances(scratch):
    async def redirecting(context) -> None:
        ack = HandshakeAck(protocol_compatible=True, leader_grpc_addr="leader:1")
        await context.write(ControllerMessage(handshake_ack=ack))

    runs = [RunningInstance(instance_id=f"lobby-{number}") for number in range(2 * MOST_RUNNING)]
    async with ScriptedController(redirecting) as controller:
        async with connection_to(controller, scratch / "n1") as connection:
            ack = await connection.open(Handshake(node_id="n1", running_instances=runs), deadline=20)
        assert ack.leader_grpc_addr == "leader:1"


async def test_a_daemon_that_is_sending_learns_why_its_session_ended(scratch):
    async def ending(context) -> None:
        await context.read()
        await context.write(ControllerMessage(handshake_ack=HandshakeAck(protocol_compatible=True)))
        for _ in range(5):
            await context.read()
        await abort(context, REFUSAL)

    async with ScriptedController(ending) as controller:
        for _ in range(STREAMS):
            async with connection_to(controller, scratch / "n1") as connection:
                await connection.open(Handshake(node_id="n1"), deadline=20)
                serving = asyncio.create_task(connection.serve())
                while not serving.done():
                    if len(connection.outbox) < FEW:
                        connection.send(DaemonMessage(pong=Pong(sequence=1)))
                    await asyncio.sleep(0)
                reason = await serving
            assert (reason.code, reason.message) == (REFUSAL.code, REFUSAL.message)
