"""Peers with the real protocol over real TLS that send only what a test writes; and runs as a node lists
them, with the ticket of a start that the store does not know, as after a restore."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Self

import grpc

from corral.controller.instances.start_identity import StartTickets
from corral.controller.sessions.link_server import ServerCertificates, bind
from corral.daemon.node.enrolment import enrol
from corral.daemon.node.identity import Identity, load_identity, save_identity
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import ClusterId, GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey, key_pem, new_key
from corral.pki.names import controller_host
from corral.system.aio.tasks import Tasks
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.channels import channel_options
from corral.wire.client_streams import ClientStream, StreamChannel
from corral.wire.features import FEATURES, RUN_ENDS
from corral.wire.frame_table import kind_of, messages_of
from corral.wire.v1.instance_pb2 import RunningInstance
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, Pong


async def enrolled_identity(directory: pathlib.Path, *, token: str, node_id: str) -> Identity:
    """Exchange a join token the way a daemon does."""
    directory.mkdir(parents=True, exist_ok=True)
    await enrol(directory, token_text=token, node_id=NodeId(node_id), machine_id="machine-1")
    identity = load_identity(directory)
    assert identity is not None
    return identity


class ScriptedDaemon:
    """A daemon whose every frame the test writes itself. Use as `async with`."""

    def __init__(
        self, identity: Identity, address: str, *, options: list[tuple[str, Any]] | None = None
    ) -> None:
        self.identity = identity
        self._channel = grpc.aio.secure_channel(
            address,
            identity.channel_credentials(),
            options=list(
                {**dict(channel_options(controller_host(identity.cluster))), **dict(options or [])}.items()
            ),
        )
        self.streams: Final = StreamChannel(self._channel)
        """For the stubs of further streams to the same controller."""
        self._stream: ClientStream | None = None
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def hang_up(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close(None)

    def handshake(self, **fields: Any) -> Handshake:
        defaults: dict[str, Any] = {
            "node_id": self.identity.node_id,
            "version": VERSION,
            "protocol_version": PROTOCOL_VERSION,
            "machine_id": "machine-1",
            "boot_id": "boot-1",
            "spool_id": "spool-1",
            "features": [name for name in FEATURES if name != RUN_ENDS],  # not answered here
        }
        return Handshake(**{**defaults, **fields})

    async def open(self, first: DaemonMessage | bytes | None = None) -> ClientStream:
        """Open the stream and, if given, send its first frame."""
        connect = self.streams.stream_stream(
            _CONNECT, request_serializer=_serialize, response_deserializer=ControllerMessage.FromString
        )
        self._stream = connect()
        if first is not None:
            await self.send(first)
        return self._stream

    async def greet(self, **fields: Any) -> ControllerMessage:
        """Handshake; the answer is the controller's first frame."""
        await self.open(DaemonMessage(handshake=self.handshake(**fields)))
        return await self.read()

    async def send(self, message: DaemonMessage | bytes) -> None:
        """Write a frame, or any bytes, after those of earlier calls: gRPC ends a stream on which two tasks
        write at once. When the stream is over, `read` or `ending` have the reason."""
        async with self._writing:
            await self._opened.write(message)

    async def read(self) -> ControllerMessage:
        """The next frame; raises our error when the controller ended the stream."""
        async with asyncio.timeout(20):
            frame = await self._opened.read()
        if not isinstance(frame, ControllerMessage):
            raise await self.ending()
        return frame

    async def read_until(self, kind: str) -> ControllerMessage:
        """Skip frames until one of this kind, looking into batches."""
        while True:
            frame = await self.read()
            for message in messages_of(frame):
                if kind_of(message) == kind:
                    return message

    @contextlib.asynccontextmanager
    async def answering_pings(self) -> AsyncIterator[None]:
        """For as long as this is open, incoming frames are dropped and pings answered, so that a slow test
        does not end the session."""
        async with Tasks() as tasks:
            tasks.spawn(self._answer_pings(), name="scripted/pongs")
            yield

    async def _answer_pings(self) -> None:
        while True:
            ping = (await self.read_until("ping")).ping
            await self.send(DaemonMessage(pong=Pong(sequence=ping.sequence)))

    async def ending(self) -> Exception:
        """Why the stream ended, as our own error."""
        async with asyncio.timeout(20):
            reason = await self._opened.ending(peer="controller")
        return reason or ConnectionAbortedError("the stream ended without an error")

    @property
    def _opened(self) -> ClientStream:
        assert self._stream is not None, "open the stream first"
        return self._stream


Script = Callable[[Any], Awaitable[None]]
"""The behaviour of a scripted controller on one stream; the argument has `read` and `write`, which takes any bytes, too."""

_SERVICE: Final = "corral.v1.DaemonService"
_CONNECT: Final = f"/{_SERVICE}/Connect"


def _serialize(message: Any) -> bytes:
    body: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return body


class ScriptedController:
    """A controller that follows a script, with certificates of an authority of its own."""

    def __init__(self, script: Script, *, also: Callable[[grpc.aio.Server], None] = lambda _: None) -> None:
        """`also` adds other services to the server."""
        clock, entropy = SystemClock(), SystemEntropy()
        cluster = ClusterId("scripted")
        cluster_key = ClusterKey(entropy.secret(32))
        sealed = Authority.create(cluster=cluster, cluster_key=cluster_key, clock=clock, entropy=entropy)
        self._authority = Authority.open(sealed, cluster=cluster, cluster_key=cluster_key, clock=clock)
        self._script = script
        self._also = also
        self._server: grpc.aio.Server | None = None
        self.address = ""
        self.streams = 0

    async def __aenter__(self) -> Self:
        certificates = ServerCertificates(
            authority=self._authority,
            holder="scripted",
            trusted_ca_pem=self._authority.certificate_pem,
            clock=SystemClock(),
        )
        self._server, port = bind("127.0.0.1:0", certificates.mutual())
        self._server.add_generic_rpc_handlers((self._handler(),))
        self._also(self._server)
        await self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def _handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        connect = grpc.stream_stream_rpc_method_handler(
            self._connect, request_deserializer=DaemonMessage.FromString, response_serializer=_serialize
        )
        return grpc.method_handlers_generic_handler(_SERVICE, {"Connect": connect})

    async def _connect(self, _: Any, context: Any) -> None:
        self.streams += 1
        await self._script(context)

    def enrol(self, data: pathlib.Path, node_id: str) -> Identity:
        """Put an identity of this controller's cluster into a daemon's data directory."""
        data.mkdir(parents=True, exist_ok=True)
        key = new_key()
        issued = self._authority.issue_node(NodeId(node_id), key.public_key(), life=dt.timedelta(days=1))
        identity = Identity(
            node_id=NodeId(node_id),
            cluster=self._authority.cluster,
            key_pem=key_pem(key).decode(),
            certificate_pem=issued.certificate_pem.decode(),
            trusted_ca_pem=self._authority.certificate_pem.decode(),
            join_token_id="scripted",
        )
        save_identity(data, identity)
        return identity


def ticketed(tickets: StartTickets, run: RunningInstance, *, node: str, serial: int) -> RunningInstance:
    """The same run, with the ticket that its node would have received."""
    record = InstanceRecord(
        id=InstanceId(run.instance_id),
        group=GroupName(run.group),
        node=NodeId(node),
        incarnation=Incarnation(run.incarnation),
        state=InstanceState.SCHEDULED,
        wanted=Wanted.RUN,
        plan_hash=run.plan_hash,
        created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        serial=serial,
    )
    run.ticket = tickets.of(record)
    return run
