"""Open connections: their limits, in all and for each address, and which one is closed when a new one needs a place."""

from __future__ import annotations

import asyncio
import collections
import enum
from collections.abc import Sequence
from typing import Final

import structlog

from corral.system.addresses import Network, affordable, counted_as, is_within, share_of
from corral.system.http_config import HttpLimitsSection

log = structlog.get_logger("corral.controller.http")

_LOG_SECONDS: Final = 10.0


class Cut(enum.StrEnum):
    """Why a connection was cut."""

    EXPIRED = "expired"
    """The client took too long for a head or for the rest of an answered body, or did not read its answer."""
    DISPLACED = "displaced"
    """The connection was idle, or its client did not read the answer, and another one needed the place."""
    REFUSED = "refused"
    """There was no place for it."""
    MALFORMED = "malformed"
    """The client sent no HTTP, or more than may come beside a body."""


class OpenConnections:
    """A register of transports.

    Where there is no place left, the connection that has waited longest without a request makes room: of the same
    address when that has too many, else of any. Only when every one of them is at work the new one is refused.
    The host itself counts as one address, with half of all places, and so does each trusted proxy: many people come
    through it.
    """

    def __init__(self, limits: HttpLimitsSection, *, proxies: Sequence[Network] = ()) -> None:
        self.limits = limits
        self._proxies = proxies
        self.cut: collections.Counter[Cut] = collections.Counter()
        """How many were cut, and why."""
        self._most = affordable(limits.connections, part=2)
        self._addresses: dict[asyncio.Transport, str] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._waiting: dict[str, dict[asyncio.Transport, None]] = {}
        """By address, the one that waits longest first."""
        self._logged_at = -_LOG_SECONDS

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, transport: asyncio.Transport) -> bool:
        """Register a connection; False when there is no place for it."""
        host = _host_of(transport)
        address = counted_as(host)
        own = share_of(
            address,
            per_address=self.limits.connections_per_address,
            most=self._most,
            is_proxy=is_within(host, self._proxies),
        )
        if own and self._counts[address] >= own and not self._displace(address):
            return self._refuse(address)
        if self._most and len(self) >= self._most and not self._displace_any():
            return self._refuse(address)
        self._addresses[transport] = address
        self._counts[address] += 1
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Idempotent: a connection that became a WebSocket leaves as one."""
        address = self._addresses.pop(transport, None)
        if address is None:
            return
        self._forget_waiting(transport, address)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def waits(self, transport: asyncio.Transport) -> None:
        """The connection has no complete request in work: it may be closed. Since when counts, not how often."""
        address = self._addresses.get(transport)
        if address is not None:
            self._waiting.setdefault(address, {}).setdefault(transport)

    def works(self, transport: asyncio.Transport) -> None:
        address = self._addresses.get(transport)
        if address is not None:
            self._forget_waiting(transport, address)

    def _forget_waiting(self, transport: asyncio.Transport, address: str) -> None:
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.pop(transport, None)
            if not waiting:
                del self._waiting[address]

    def _displace(self, address: str) -> bool:
        waiting = self._waiting.get(address)
        if not waiting:
            return False
        transport = next(iter(waiting))
        self.leave(transport)
        transport.abort()
        self.cut[Cut.DISPLACED] += 1
        return True

    def _displace_any(self) -> bool:
        """Of the address with the most: one that floods us does not push others out."""
        if not self._waiting:
            return False
        return self._displace(max(self._waiting, key=lambda address: self._counts[address]))

    def _refuse(self, address: str) -> bool:
        self.cut[Cut.REFUSED] += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "http_connection.refused", address=address, open=len(self), refused=self.cut[Cut.REFUSED]
            )
        return False


def _host_of(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""
