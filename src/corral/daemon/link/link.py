"""Link of a daemon: stays connected to the leading controller, and to no other.

Each round dials every known controller once, in random order, following a redirect to the leader; the delay between
rounds grows. At most one connection serves at a time; only while a certificate is exchanged is the next one opened
before the old one is closed.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from corral.daemon.link.connection import CurrentConnection, LinkConnection, closing_on_error
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.dialler import Dialler, Facts
from corral.daemon.link.renewal import NodeCertificateRenewal
from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_sender import SpoolSender
from corral.daemon.node.identity import Identity, StoredIdentity, with_trust
from corral.daemon.node.known_controllers import KnownControllers
from corral.domain.causes import cause_of, request_of
from corral.errors import Code, CorralError, Retryable
from corral.system import log_context
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks, first_of
from corral.system.clock import Clock
from corral.system.daemon_config import DaemonLinkSection
from corral.system.entropy import Entropy
from corral.system.logger import LogQuota
from corral.wire.frame_table import kind_of
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, NodeStatus, Pong

_STEADY_SECONDS: Final = 5.0
_ERROR_TEXT_MAX: Final = 500
_log = structlog.get_logger("corral.daemon.link")
_OFTEN: Final = frozenset(("ping", "pong", "spool_ack", "console_ack"))
"""Frames that are not logged one by one: logging that a log record was confirmed would never end."""


class LinkHost(Facts, Protocol):
    """The parts of the daemon that the link needs."""

    def status(self) -> NodeStatus: ...

    def set_log_level(self, level: str) -> None: ...


Handler = Callable[[LinkConnection, ControllerMessage], None]
Reply = Callable[[DaemonMessage], bool]
Order = Callable[[Reply, ControllerMessage], None]
"""Handles one kind of frame; its reply goes to the controller that is connected by then."""


class SessionListener(Protocol):
    """A component that sends over the connection on its own initiative."""

    def on_connected(self, connection: LinkConnection) -> None: ...

    def on_disconnected(self) -> None: ...


class DaemonLink:
    """Owns the connection. `send` uses the current one; without one nothing is sent."""

    def __init__(
        self,
        *,
        data: pathlib.Path,
        identity: Identity,
        memory: KnownControllers,
        spool: Spool,
        host: LinkHost,
        settings: DaemonLinkSection,
        clock: Clock,
        entropy: Entropy,
        current: CurrentConnection | None = None,
        orders: Mapping[str, Order] | None = None,
        listeners: Sequence[SessionListener] = (),
    ) -> None:
        self._identity = StoredIdentity(data, identity)
        self._memory = memory
        self._spool = spool
        self._host = host
        self._settings = settings
        self._clock = clock
        self._backoff = Backoff(longest=settings.reconnect_max_seconds, entropy=entropy)
        self._renewal = NodeCertificateRenewal(data=data, identity=self._identity, clock=clock)
        self._dialler = Dialler(
            identity=self._identity,
            memory=memory,
            spool=spool,
            host=host,
            receive=self._receive,
            handshake_seconds=settings.handshake_timeout_seconds,
            clock=clock,
            entropy=entropy,
        )
        self._current = current or CurrentConnection()
        self._sender: SpoolSender | None = None
        self._handlers: dict[str, Handler] = {
            "ping": self._ping,
            "spool_ack": self._spool_ack,
            "certificate_issued": self._certificate_issued,
            "set_log_level": self._set_log_level,
            "error_report": self._error_report,
            **{kind: self._ordered(order) for kind, order in (orders or {}).items()},
        }
        self._listeners = tuple(listeners)
        self._quota = LogQuota(clock=clock)
        self.connected = asyncio.Event()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of frames that have a handler here."""
        return frozenset(self._handlers)

    @property
    def session_id(self) -> str:
        connection = self._current.connection
        return connection.ack.session_id if connection else ""

    def send(self, message: DaemonMessage) -> bool:
        """Send to the controller of the current connection; False when there is none. For messages whose loss with the
        connection does no harm; everything else goes through the spool. The message carries the id of the request
        behind it."""
        if not message.cause:
            message.cause = cause_of(log_context.bound_request())
        return self._current.send(message)

    def _ordered(self, order: Order) -> Handler:
        return lambda _, message: order(self.send, message)

    def data_channel(self) -> DataChannel:
        """A second channel to the same controller, for bulk transfers; the caller closes it."""
        connection = self._current.connection
        if connection is None or not connection.supports.bulk:
            raise Retryable(Code.UNREACHABLE, "there is no controller to transfer data with", retry_after=1.0)
        return DataChannel(connection)

    async def run(self) -> None:
        """Connect and stay connected until cancelled; nothing else ends it."""
        while True:
            began = self._clock.monotonic()
            served = await self._round()
            if served and self._clock.monotonic() - began >= _STEADY_SECONDS:
                self._backoff.reset()
                continue  # a connection that worked was lost: look for the next at once
            delay = self._backoff.delay()
            _log.info("link_retry.delayed", seconds=round(delay, 1))
            await asyncio.sleep(delay)

    async def _round(self) -> bool:
        """Try every known controller once; True when one of them served this node."""
        try:
            connection = await self._dialler.any()
            if connection is None:
                return False
            await self._serve(connection)
        except Exception as error:
            # A node without a link is out of its operator's reach: retry whatever the error was.
            _log.error("dial_round.failed", exc_info=error)
            return False
        return True

    async def _serve(self, connection: LinkConnection) -> None:
        """Serve this connection and the ones that renewals replace it with, until one of them is lost."""
        while True:
            successor = await self._serve_one(connection)
            if successor is None:
                return
            connection = successor

    async def _serve_one(self, connection: LinkConnection) -> LinkConnection | None:
        tasks = Tasks()
        running: list[asyncio.Task[Any]] = []
        successor: LinkConnection | None = None
        try:
            renewal, running = self._begin(connection, tasks)
            await first_of(*running)
            if renewal.done() and renewal.exception() is None:
                # The successor does its handshake while the old stream still serves; the controller ends the old one.
                successor = await self._dialler.reach(connection.address)
        finally:
            async with closing_on_error(successor):
                await self._part(connection, tasks, running)
        return successor

    def _begin(
        self, connection: LinkConnection, tasks: Tasks
    ) -> tuple[asyncio.Task[None], list[asyncio.Task[Any]]]:
        """Make this the connection of the link; returns the renewal of its certificate, and all tasks of the
        connection."""
        self._trust(connection)
        self._switch_log_level(connection.ack.log_level)
        self._current.connection = connection
        self._sender = SpoolSender(spool=self._spool, connection=connection)
        self.connected.set()
        self._each_listener(lambda listener: listener.on_connected(connection))
        _log.info(
            "link.connected",
            address=connection.address,
            session=connection.ack.session_id,
            epoch=self._memory.epoch,
        )
        name = f"{connection.address}/{connection.generation}"
        renewal = tasks.spawn(self._renewal.run(connection), name=f"link/renew/{name}", awaited=True)
        return renewal, [
            renewal,
            tasks.spawn(connection.serve(), name=f"link/serve/{name}", awaited=True),
            tasks.spawn(self._sender.run(), name=f"link/spool/{name}", awaited=True),
            tasks.spawn(self._report_status(connection), name=f"link/status/{name}", awaited=True),
        ]

    def _trust(self, connection: LinkConnection) -> None:
        """Store the trusted authorities that the controller sent, so that a change of the authority does not cut this
        node off; a list that cannot be stored changes nothing."""
        bundle = connection.ack.trusted_ca_pem
        if not bundle:
            _log.debug("link_trust.kept", address=connection.address, reason="no authority was named")
            return
        if bundle == self._identity.current.trusted_ca_pem.encode():
            return
        try:
            self._identity.replace(with_trust(self._identity.current, bundle))
        except CorralError as error:
            _log.warning("link_trust.kept", address=connection.address, reason=str(error))
        else:
            _log.info("link_trust.changed", address=connection.address)

    async def _part(
        self, connection: LinkConnection, tasks: Tasks, running: Sequence[asyncio.Task[Any]]
    ) -> None:
        if self._current.connection is connection:
            self._current.connection = None
            self.connected.clear()
            self._each_listener(lambda listener: listener.on_disconnected())
        await connection.close()
        await tasks.close()
        for task in running:
            outcome = None if task.cancelled() else (task.exception() or task.result())
            if isinstance(outcome, CorralError):
                _log.warning("link.lost", address=connection.address, reason=str(outcome))
            elif isinstance(outcome, Exception):
                _log.error("link.failed", address=connection.address, exc_info=outcome)

    async def _report_status(self, connection: LinkConnection) -> None:
        """Report the host's status. A host that cannot be measured, as when its disk fails, does not end the
        connection."""
        while True:
            try:
                connection.outbox.replace("status", DaemonMessage(node_status=self._host.status()))
            except OSError as error:
                _log.error("link_status.refused", address=connection.address, reason=str(error))
            await asyncio.sleep(self._settings.status_seconds)

    def _receive(self, connection: LinkConnection, message: ControllerMessage) -> None:
        kind = kind_of(message)
        handler = self._handlers.get(kind)
        if handler is None:
            # Additive by design: an unknown frame of a newer controller does not end the connection.
            _log.warning("frame.skipped", kind=kind or "unknown", address=connection.address)
            return
        if not message.cause:
            self._handle(kind, handler, connection, message)
            return
        with log_context.bound(request=request_of(message.cause)):
            self._handle(kind, handler, connection, message)

    def _handle(
        self, kind: str, handler: Handler, connection: LinkConnection, message: ControllerMessage
    ) -> None:
        if kind not in _OFTEN:
            _log.debug("frame.received", kind=kind, address=connection.address)
        try:
            handler(connection, message)
        except Exception as error:
            self._report_failure(connection, kind, error)

    def _report_failure(self, connection: LinkConnection, kind: str, error: Exception) -> None:
        """Report and skip a frame whose handler failed: the link stays up for all other frames. Closing the connection
        would only make the controller send the frame again."""
        if (unsaid := self._quota.admit(kind)) is None:
            return
        _log.error("frame.failed", kind=kind, address=connection.address, unsaid=unsaid, exc_info=error)
        text = f"{kind} could not be dealt with: {type(error).__name__}: {error}"[:_ERROR_TEXT_MAX]
        report = ErrorReport(
            error_code=error.code.name if isinstance(error, CorralError) else Code.INTERNAL.name,
            error_message=text.encode(errors="replace").decode(),
            context=f"frame:{kind}",
        )
        connection.send(DaemonMessage(error_report=report))

    def _each_listener(self, call: Callable[[SessionListener], None]) -> None:
        """Call every listener; one that fails affects neither the link nor the other listeners."""
        for listener in self._listeners:
            try:
                call(listener)
            except Exception:
                _log.exception("link_listener.failed", listener=type(listener).__name__)

    def _ping(self, connection: LinkConnection, message: ControllerMessage) -> None:
        connection.send(DaemonMessage(pong=Pong(sequence=message.ping.sequence)))

    def _spool_ack(self, connection: LinkConnection, message: ControllerMessage) -> None:
        if connection is self._current.connection and self._sender is not None:
            self._sender.confirmed(message.spool_ack.sequence)

    def _certificate_issued(self, _: LinkConnection, message: ControllerMessage) -> None:
        self._renewal.issued(message.certificate_issued)

    def _set_log_level(self, _: LinkConnection, message: ControllerMessage) -> None:
        self._switch_log_level(message.set_log_level.level)

    def _switch_log_level(self, level: str) -> None:
        try:
            self._host.set_log_level(level)
        except CorralError as error:  # a newer controller may know more levels than this daemon
            _log.warning("log_level.refused", reason=str(error))

    def _error_report(self, connection: LinkConnection, message: ControllerMessage) -> None:
        report = message.error_report
        _log.warning(
            "error_report.received",
            address=connection.address,
            code=report.error_code,
            reason=report.error_message,
            context=report.context,
        )
