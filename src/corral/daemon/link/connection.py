"""Connection to one controller, from dialling to its end.

It has one reader and one writer, and a generation: a reference to a connection of an older generation is of no use any
more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import grpc
import structlog

from corral.daemon.link.published_controller import ControllerOutbox, PublishedController
from corral.daemon.node.identity import Identity
from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.pki.names import controller_host
from corral.system.aio.tasks import Tasks, failure_of, first_of
from corral.system.clock import Clock
from corral.version import PROTOCOL_VERSION
from corral.wire.channels import channel_options
from corral.wire.client_streams import ClientStream, StreamChannel
from corral.wire.features import PeerSupport, support_of
from corral.wire.frame_table import kind_of, messages_of
from corral.wire.frames import read_frame
from corral.wire.handshake_lists import portions_of
from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.link_pb2_grpc import DaemonServiceStub
from corral.wire.v1.node_pb2 import ErrorReport, Handshake, HandshakeAck

_SILENT_INTERVALS: Final = 3
_LOOKS_PER_INTERVAL: Final = 4
_GOODBYE_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.link")

Receive = Callable[["LinkConnection", ControllerMessage], None]


class LinkConnection:
    """A control stream. `open` dials and does the handshake, `serve` runs until the stream ends."""

    def __init__(
        self,
        *,
        address: str,
        generation: int,
        identity: Identity,
        memory: KnownControllers,
        receive: Receive,
        clock: Clock,
    ) -> None:
        self.address = address
        self.generation = generation
        self.identity = identity
        self.ack = HandshakeAck()
        self.supports = PeerSupport()
        self._receive = receive
        self._controller = PublishedController(
            self.supports, answer=self._received, monotonic=clock.monotonic
        )
        self.outbox: Outbox[DaemonMessage] = ControllerOutbox(self._controller)
        self._memory = memory
        self._clock = clock
        self._received_at = clock.monotonic()
        self._channel = grpc.aio.secure_channel(
            address,
            identity.channel_credentials(),
            options=channel_options(controller_host(identity.cluster)),
        )
        self._stream: ClientStream | None = None
        self._stale_reported = False
        self._overflowed = asyncio.Event()

    def send(self, message: DaemonMessage) -> bool:
        """Queue a message, never blocking; False when the stream has ended, or ends because of this message."""
        accepted = self.outbox.send(message)
        if self.outbox.overflowed:
            self._overflowed.set()
        return accepted

    async def open(self, handshake: Handshake, *, deadline: float) -> HandshakeAck:
        """Do the handshake within the deadline. The ack may be a redirect, which the caller has to check."""
        try:
            async with asyncio.timeout(deadline):
                stub = DaemonServiceStub(StreamChannel(self._channel))  # type: ignore[no-untyped-call]  # generated
                stream: ClientStream = stub.Connect()
                self._stream = stream
                portions = portions_of(handshake)
                await stream.write(DaemonMessage(handshake=handshake))
                for portion in portions:
                    await stream.write(DaemonMessage(handshake_portion=portion))
                first = await read_frame(stream)
        except TimeoutError:
            raise Retryable(Code.TIMEOUT, f"{self.address} did not answer within {deadline:g} s") from None
        if not isinstance(first, ControllerMessage):
            raise await self._ending(stream)
        if kind_of(first) != "handshake_ack":
            raise Rejected(Code.HANDSHAKE_EXPECTED, f"{self.address} did not begin with a HandshakeAck")
        return self._accept(first.handshake_ack)

    def _accept(self, ack: HandshakeAck) -> HandshakeAck:
        if not ack.protocol_compatible:
            raise Rejected(
                Code.PROTOCOL_INCOMPATIBLE,
                f"{self.address} speaks protocol {ack.protocol_version}, this daemon {PROTOCOL_VERSION}",
                hint="an upgrade is required: run the same release on controller and daemon",
            )
        if ack.session_id:
            self._memory.obey(ack.epoch)
        self._memory.learn(ack.controller_grpc_addrs)
        self._received_at = self._clock.monotonic()
        self.ack = ack
        self.supports = support_of(ack.features)
        self._controller = PublishedController(
            self.supports, answer=self._received, monotonic=self._clock.monotonic
        )
        self.outbox = ControllerOutbox(self._controller)
        return ack

    async def _ending(self, stream: ClientStream) -> CorralError:
        """Why the stream ended. When only the reader has ended, the stream may still be open."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                reason = await stream.ending(peer=self.address)
        except TimeoutError:
            return Retryable(Code.UNREACHABLE, f"{self.address} sends nothing that can be read")
        return reason or Retryable(Code.UNREACHABLE, f"{self.address} ended the stream")

    async def serve(self) -> CorralError:
        """Read and write until the stream ends; returns why it ended."""
        if (stream := self._stream) is None:
            raise Bug(f"the connection to {self.address} is served before it was opened")
        name = f"{self.address}/{self.generation}"
        async with Tasks() as tasks:
            running = [
                tasks.spawn(self._read(stream), name=f"link/read/{name}", awaited=True),
                tasks.spawn(self._write(stream), name=f"link/write/{name}", awaited=True),
                tasks.spawn(self._listen(), name=f"link/listen/{name}", awaited=True),
            ]
            try:
                # The writer may be stuck in a write that its peer never reads, so it cannot detect the end.
                await first_of(*running, self._overflowed, name=f"link/overflow/{name}")
            finally:
                self.outbox.close()
        if self.outbox.overflowed:
            return Retryable(Code.PEER_TOO_SLOW, f"{self.address} does not read its stream")
        for failure in [failure_of(task) for task in running]:
            if isinstance(failure, CorralError):
                return failure
            if failure is not None:
                raise failure
        return await self._ending(stream)

    async def _listen(self) -> None:
        """Controller liveness: it pings, and after three intervals of silence, or a quarter of one more, it counts as gone, even
        if its stream looks open.

        Looks are counted, not seconds: while this process itself stood still, it read nothing, and what has arrived
        meanwhile is read after the first look.
        """
        pause = self.ack.heartbeat_interval_ms / 1000 / _LOOKS_PER_INTERVAL
        silent_looks, seen = 0, self._received_at
        while pause:
            await asyncio.sleep(pause)
            silent_looks = silent_looks + 1 if self._received_at == seen else 0
            seen = self._received_at
            if silent_looks >= _SILENT_INTERVALS * _LOOKS_PER_INTERVAL:
                silence = self._clock.monotonic() - seen
                raise Retryable(Code.UNREACHABLE, f"{self.address} has been silent for {silence:.1f} s")
        await asyncio.Event().wait()  # a peer that sends no interval has no ping timeout

    async def _read(self, stream: ClientStream) -> None:
        while isinstance(frame := await read_frame(stream), ControllerMessage):
            self._received_at = self._clock.monotonic()
            try:
                self._memory.obey(frame.epoch)
            except Rejected as stale:
                self._refuse(stale)
                continue
            for message in messages_of(frame):
                for meant in self._controller.meant(message):
                    self._received(meant)

    def _received(self, message: ControllerMessage) -> None:
        self._receive(self, message)

    def _refuse(self, stale: Rejected) -> None:
        """Refuse a frame of a deposed controller. The frame has no other effect, and the refusal is sent once only."""
        if not self._stale_reported:
            self._stale_reported = True
            _log.error("epoch.refused", address=self.address, reason=str(stale))
            report = ErrorReport(error_code=stale.code.name, error_message=str(stale))
            self.send(DaemonMessage(error_report=report))

    async def _write(self, stream: ClientStream) -> None:
        while (frame := await self.outbox.next_frame()) is not None:
            if not await stream.write(frame):
                self.outbox.close()
                # The reader ends meanwhile, after the last frame that the controller sent.
                await asyncio.sleep(_GOODBYE_SECONDS)
                return

    async def close(self) -> None:
        """Send the goodbye and close the channel. Idempotent."""
        self.outbox.close()
        try:
            if self._stream is not None and self._stream.cancel():
                # A channel that closes before its call has ended leaves a task of gRPC waiting for ever.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GOODBYE_SECONDS):
                        await self._stream.over()
        finally:
            await self._channel.close(None)


class CurrentConnection:
    """The connection of the current session, if there is one. Set by the link, and created before it for components
    that only send."""

    def __init__(self) -> None:
        self.connection: LinkConnection | None = None

    def send(self, message: DaemonMessage) -> bool:
        """Send to the controller of the session; False when there is none."""
        return self.connection is not None and self.connection.send(message)


@contextlib.asynccontextmanager
async def closing_on_error(*connections: LinkConnection | None) -> AsyncIterator[None]:
    """Close connections that are about to be handed over if the handover fails or is cancelled: nothing else refers to
    them."""
    try:
        yield
    except BaseException:
        for connection in connections:
            if connection is not None:
                await connection.close()
        raise
