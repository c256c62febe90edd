"""The link: whatever happens, be connected to the controller that leads, and to no other.

Each round dials every known controller once, in random order, following a redirect to the leader;
between rounds it waits longer and longer. At most one connection serves at a time; only while a
certificate is exchanged is the next one opened before the old one is closed.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from corral.daemon.identity import Identity
from corral.daemon.link.backoff import Backoff
from corral.daemon.link.connection import Connection
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.memory import LinkMemory
from corral.daemon.link.renewal import Renewal
from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_sender import SpoolSender
from corral.errors import Code, CorralError, Retryable
from corral.system.clock import Clock
from corral.system.config_schema import DaemonLinkSection
from corral.system.entropy import Entropy
from corral.wire import features
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, NodeStatus, Pong

_MAX_REDIRECTS: Final = 3
_STEADY_SECONDS: Final = 5.0
_STAGGER_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.link")


class Host(Protocol):
    """What the link needs to know of the rest of the daemon."""

    def handshake(self) -> Handshake:
        """This node's present facts; the link adds its own."""

    def status(self) -> NodeStatus: ...

    def set_log_level(self, level: str) -> None: ...


class Link:
    """Owns the connection. `send` goes to the present one, or nowhere."""

    def __init__(
        self,
        *,
        data: pathlib.Path,
        identity: Identity,
        memory: LinkMemory,
        spool: Spool,
        host: Host,
        settings: DaemonLinkSection,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._identity = identity
        self._memory = memory
        self._spool = spool
        self._host = host
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._backoff = Backoff(longest=settings.reconnect_max_seconds, entropy=entropy)
        self._renewal = Renewal(data=data, clock=clock)
        self._generation = 0
        self._current: Connection | None = None
        self._sender: SpoolSender | None = None
        self._handlers: dict[str, Callable[[Connection, ControllerMessage], None]] = {
            "ping": self._ping,
            "spool_ack": self._spool_ack,
            "certificate_issued": self._certificate_issued,
            "set_log_level": self._set_log_level,
            "error_report": self._error_report,
        }
        self.connected = asyncio.Event()

    @property
    def session_id(self) -> str:
        return self._current.ack.session_id if self._current else ""

    def data_channel(self) -> DataChannel:
        """A second channel to the same controller, for bulk; the caller closes it."""
        connection = self._current
        if connection is None or features.DATA not in connection.features:
            raise Retryable(Code.UNREACHABLE, "there is no controller to transfer data with", retry_after=1.0)
        return DataChannel(connection)

    async def run(self) -> None:
        """Connect and stay connected until cancelled."""
        while True:
            began = self._clock.monotonic()
            served = await self._round()
            if served and self._clock.monotonic() - began >= _STEADY_SECONDS:
                self._backoff.reset()
                continue  # a connection that worked was lost: look for the next at once
            delay = self._backoff.delay()
            _log.info("link.waiting", seconds=round(delay, 1))
            await asyncio.sleep(delay)

    async def _round(self) -> bool:
        """Try every known controller once; True when one of them served us."""
        connection = await self._first_reached(
            sorted(self._memory.addresses, key=lambda _: self._entropy.fraction())
        )
        if connection is None:
            return False
        await self._serve(connection)
        return True

    async def _first_reached(self, addresses: Sequence[str]) -> Connection | None:
        """Dial one after the other, but let none that hangs keep us from the next for long."""
        dialling: set[asyncio.Task[Connection | None]] = set()
        try:
            for address in addresses:
                dialling.add(asyncio.create_task(self._reach(address), name=f"link/dial/{address}"))
                if (found := await _first_success(dialling, timeout=_STAGGER_SECONDS)) is not None:
                    return found
            while dialling:
                if (found := await _first_success(dialling, timeout=None)) is not None:
                    return found
            return None
        finally:
            for task in dialling:
                task.cancel()
            for late in await asyncio.gather(*dialling, return_exceptions=True):
                if isinstance(late, Connection):
                    await late.close()

    async def _reach(self, address: str) -> Connection | None:
        """A greeted connection to the leader, found from this address; None when there is none."""
        for _ in range(_MAX_REDIRECTS):
            connection = self._dial(address)
            try:
                ack = await connection.open(
                    self._greeting(), deadline=self._settings.handshake_timeout_seconds
                )
            except CorralError as error:
                await connection.close()
                _log.warning("link.refused", address=address, code=error.code.name, reason=str(error))
                return None
            except BaseException:
                await connection.close()
                raise
            if ack.session_id:
                return connection
            await connection.close()
            if not ack.leader_grpc_addr or ack.leader_grpc_addr == address:
                _log.info("link.no_leader", address=address)
                return None
            _log.info("link.redirected", address=address, leader=ack.leader_grpc_addr)
            address = ack.leader_grpc_addr
        return None

    def _dial(self, address: str) -> Connection:
        self._generation += 1
        return Connection(
            address=address,
            generation=self._generation,
            identity=self._identity,
            memory=self._memory,
            receive=self._receive,
            clock=self._clock,
        )

    def _greeting(self) -> Handshake:
        handshake = self._host.handshake()
        handshake.node_id = self._identity.node_id
        handshake.known_epoch = self._memory.epoch
        handshake.spool_id = self._spool.spool_id
        handshake.features.extend(features.FEATURES)
        handshake.connection_generation = self._generation
        return handshake

    async def _serve(self, connection: Connection) -> None:
        """Serve this connection and those that renewals put in its place, until one of them is lost."""
        while True:
            successor = await self._serve_one(connection)
            if successor is None:
                return
            connection = successor

    async def _serve_one(self, connection: Connection) -> Connection | None:
        self._current = connection
        self._sender = SpoolSender(spool=self._spool, connection=connection)
        self._host.set_log_level(connection.ack.log_level)
        self.connected.set()
        _log.info("link.connected", address=connection.address, session=connection.ack.session_id)
        name = f"{connection.address}/{connection.generation}"
        stream = asyncio.create_task(connection.serve(), name=f"link/serve/{name}")
        renewal = asyncio.create_task(self._renewal.wait(connection), name=f"link/renew/{name}")
        helpers: list[asyncio.Task[None]] = [
            asyncio.create_task(self._sender.run(), name=f"link/spool/{name}"),
            asyncio.create_task(self._report_status(connection), name=f"link/status/{name}"),
        ]
        try:
            await asyncio.wait([stream, renewal, *helpers], return_when=asyncio.FIRST_COMPLETED)
            if not renewal.done() or renewal.exception() is not None:
                return None
            # The successor greets while the old stream still serves; the controller ends that one.
            self._identity = renewal.result()
            return await self._reach(connection.address)
        finally:
            await self._part(connection, [stream, renewal, *helpers])

    async def _part(self, connection: Connection, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if self._current is connection:
            self._current = None
            self.connected.clear()
        await connection.close()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, CorralError):
                _log.warning("link.lost", address=connection.address, reason=str(result))
            elif isinstance(result, Exception):
                _log.error("link.failed", address=connection.address, exc_info=result)

    async def _report_status(self, connection: Connection) -> None:
        while True:
            connection.outbox.replace("status", DaemonMessage(node_status=self._host.status()))
            await asyncio.sleep(self._settings.status_seconds)

    def _receive(self, connection: Connection, message: ControllerMessage) -> None:
        kind = message.WhichOneof("payload") or ""
        handler = self._handlers.get(kind)
        if handler is None:
            # Additive by design: what a newer controller may say is no reason to part.
            _log.warning("link.frame_ignored", kind=kind or "unknown", address=connection.address)
            return
        handler(connection, message)

    def _ping(self, connection: Connection, message: ControllerMessage) -> None:
        connection.outbox.send(DaemonMessage(pong=Pong(sequence=message.ping.sequence)))

    def _spool_ack(self, connection: Connection, message: ControllerMessage) -> None:
        if connection is self._current and self._sender is not None:
            self._sender.confirmed(message.spool_ack.sequence)

    def _certificate_issued(self, _: Connection, message: ControllerMessage) -> None:
        self._renewal.issued(message.certificate_issued)

    def _set_log_level(self, _: Connection, message: ControllerMessage) -> None:
        self._host.set_log_level(message.set_log_level.level)

    def _error_report(self, connection: Connection, message: ControllerMessage) -> None:
        report = message.error_report
        _log.warning(
            "link.error_report",
            address=connection.address,
            code=report.error_code,
            reason=report.error_message,
            context=report.context,
        )


async def _first_success(
    dialling: set[asyncio.Task[Connection | None]], *, timeout: float | None
) -> Connection | None:
    """A connection that one of the tasks reached; tasks that ended are taken out of the set."""
    done, _ = await asyncio.wait(dialling, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    dialling -= done
    found = [connection for task in done if (connection := task.result()) is not None]
    for surplus in found[1:]:
        await surplus.close()
    return found[0] if found else None
