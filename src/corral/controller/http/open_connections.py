"""The connections that are open now: how many there may be, in all and of one address, and which of them goes when
another one comes."""

from __future__ import annotations

import asyncio
import collections
import ipaddress
import resource
from typing import Final

import structlog

from corral.system.config_schema import HttpLimitsSection

log = structlog.get_logger(__name__)

_LOOPBACK: Final = "loopback"
_TOLD_SECONDS: Final = 10.0


class OpenConnections:
    """A register of transports.

    Where there is no place left, the connection that has waited longest without a request makes room: of the same
    address when that has too many, else of any. Only when every one of them is at work the new one is refused.
    The host itself counts as one address, with half of all places: a proxy before us may stand there.
    """

    def __init__(self, limits: HttpLimitsSection) -> None:
        self.limits = limits
        self.expired = 0
        """How many were cut because they took too long."""
        self.refused = 0
        self.displaced = 0
        self._most = _affordable(limits.connections)
        self._addresses: dict[asyncio.Transport, str] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._waiting: dict[str, dict[asyncio.Transport, None]] = {}
        """By address, the one that waits longest first."""
        self._told = -_TOLD_SECONDS

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, transport: asyncio.Transport) -> bool:
        """Register a connection; False when there is no place for it."""
        address = _counted_as(transport)
        own = self._of_one(address)
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
        """It has no whole request that we work on: it may have to make room. Since when counts, not how often."""
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

    def _of_one(self, address: str) -> int:
        limit = self.limits.connections_per_address
        if limit and address == _LOOPBACK:
            return max(limit, self._most // 2)
        return limit

    def _displace(self, address: str) -> bool:
        waiting = self._waiting.get(address)
        if not waiting:
            return False
        transport = next(iter(waiting))
        self.leave(transport)
        transport.abort()
        self.displaced += 1
        return True

    def _displace_any(self) -> bool:
        """Of the address with the most: one that floods us does not push others out."""
        if not self._waiting:
            return False
        return self._displace(max(self._waiting, key=lambda address: self._counts[address]))

    def _refuse(self, address: str) -> bool:
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._told >= _TOLD_SECONDS:
            self._told = now
            log.warning("http.connections_refused", address=address, open=len(self), refused=self.refused)
        return False


def _affordable(wanted: int) -> int:
    """Half of the file descriptors that the process may have: the store, nodes and modules need some, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, soft // 2) if wanted else 0


def _counted_as(transport: asyncio.Transport) -> str:
    """The peer's address; of IPv6 its network, for a host has as many addresses there as it likes."""
    peer = transport.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (TypeError, IndexError, ValueError):
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, 64), strict=False)
            return _LOOPBACK if address.is_loopback else str(network)
        address = address.ipv4_mapped
    return _LOOPBACK if address.is_loopback else str(address)
