"""Dialler: finds the leading controller by dialling every known one and following redirects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from corral.daemon.link.connection import LinkConnection, Receive, closing_on_error
from corral.daemon.link.spool import Spool
from corral.daemon.node.identity import StoredIdentity
from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import CorralError
from corral.system.aio.tasks import Tasks, cancel_and_wait, failure_of, first_of
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.wire import features
from corral.wire.v1.node_pb2 import Handshake

_MAX_HOPS: Final = 3
_STAGGER_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.link")


class Facts(Protocol):
    """Provides the host's facts for the handshake."""

    def handshake(self) -> Handshake:
        """This node's current facts; the link adds its own."""


class Dialler:
    """Makes connections that have completed the handshake and have a session. The failure of an attempt is logged here
    and never raised."""

    def __init__(
        self,
        *,
        identity: StoredIdentity,
        memory: KnownControllers,
        spool: Spool,
        host: Facts,
        receive: Receive,
        handshake_seconds: float,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._identity = identity
        self._memory = memory
        self._spool = spool
        self._host = host
        self._receive = receive
        self._handshake_seconds = handshake_seconds
        self._clock = clock
        self._entropy = entropy
        self._generation = 0

    async def any(self) -> LinkConnection | None:
        """Try every known controller once, in random order; the caller closes the connection it gets."""
        return await self._first_of(sorted(self._memory.addresses, key=lambda _: self._entropy.fraction()))

    async def _first_of(self, addresses: Sequence[str]) -> LinkConnection | None:
        """Dial one after the other; an attempt that hangs delays the next one only briefly."""
        tasks = Tasks()
        dialling: set[asyncio.Task[LinkConnection | None]] = set()
        found: LinkConnection | None = None
        try:
            for address in addresses:
                dialling.add(tasks.spawn(self.reach(address), name=f"link/dial/{address}", awaited=True))
                if (found := await _first_success(dialling, timeout=_STAGGER_SECONDS)) is not None:
                    break
            while dialling and found is None:
                found = await _first_success(dialling, timeout=None)
        finally:
            async with closing_on_error(found):
                await _dismiss(dialling)
        return found

    async def reach(self, address: str) -> LinkConnection | None:
        """A connection to the leader, found from this address; None, and a line in the log, when there is none."""
        try:
            for _ in range(_MAX_HOPS):
                _log.debug("link.dialled", address=address)
                found = await self._greet(address)
                if isinstance(found, LinkConnection):
                    return found
                if not found:
                    return None
                address = found
            _log.warning("leader_lookup.failed", address=address, reason="sent from one to the next")
        except CorralError as error:
            _log.warning("link.refused", address=address, code=error.code.name, reason=str(error))
        except Exception as error:
            # Whatever the error is, the next attempt may succeed; only the link's owner ends the link.
            _log.error("dial.failed", address=address, exc_info=error)
        return None

    async def _greet(self, address: str) -> LinkConnection | str:
        """A connection with a session, or the address to try instead; empty: there is none."""
        connection = self._dial(address)
        try:
            greeting = self._greeting()
            ack = await connection.open(greeting, deadline=self._handshake_seconds)
            if ack.session_id and await self._is_our_spool(greeting.spool_id, ack.spool_confirmed):
                return connection
        except BaseException:
            await connection.close()
            raise
        await connection.close()
        if ack.session_id:
            return address
        if not ack.leader_grpc_addr or ack.leader_grpc_addr == address:
            _log.info("leader_lookup.failed", address=address)
            return ""
        _log.info("link.redirected", address=address, leader=ack.leader_grpc_addr)
        return ack.leader_grpc_addr

    async def _is_our_spool(self, greeted: str, confirmed: int) -> bool:
        """False when the handshake has to be repeated, because the spool got a new id."""
        if self._spool.spool_id != greeted:
            return False
        if confirmed <= self._spool.sent:
            return True
        await self._spool.start_over(confirmed=confirmed)
        return False

    def _dial(self, address: str) -> LinkConnection:
        self._generation += 1
        return LinkConnection(
            address=address,
            generation=self._generation,
            identity=self._identity.current,
            memory=self._memory,
            receive=self._receive,
            clock=self._clock,
        )

    def _greeting(self) -> Handshake:
        handshake = self._host.handshake()
        handshake.node_id = self._identity.current.node_id
        handshake.known_epoch = self._memory.epoch
        handshake.spool_id = self._spool.spool_id
        handshake.spool_head = self._spool.head
        handshake.spool_confirmed = self._spool.through
        handshake.features.extend(features.FEATURES)
        handshake.connection_generation = self._generation
        return handshake


async def _first_success(
    dialling: set[asyncio.Task[LinkConnection | None]], *, timeout: float | None
) -> LinkConnection | None:
    """A connection that one of the tasks reached. Tasks that reached none are taken out of the set, and so is the
    winner; others that reached one stay in, for the caller to close."""
    await first_of(*dialling, timeout=timeout)
    for task in [task for task in dialling if task.done()]:
        if (connection := task.result()) is not None:
            dialling.discard(task)
            return connection
        dialling.discard(task)
    return None


async def _dismiss(dialling: set[asyncio.Task[LinkConnection | None]]) -> None:
    """Cancel attempts that are no longer needed, and close the connections of those that succeeded."""
    await cancel_and_wait(*dialling)
    for task in dialling:
        if not task.cancelled() and failure_of(task) is None and (late := task.result()) is not None:
            await late.close()
