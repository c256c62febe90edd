"""How many connections an address may have, whichever listener it calls: what counts as one address, and its share."""

from __future__ import annotations

import ipaddress
import resource
from typing import Final

LOOPBACK: Final = "loopback"
"""The host itself, whichever of its own addresses it used."""
_DESCRIPTORS: Final = 65_536


def counted_as(host: str) -> str:
    """What a peer is counted as: its address, of IPv6 its /64, for a host has as many addresses there as it likes.
    Empty for what is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return LOOPBACK
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def share_of(address: str, *, per_address: int, most: int) -> int:
    """Connections that it may have, 0: no limit. The host itself has half of all: a proxy may stand there."""
    if per_address and address == LOOPBACK:
        return max(per_address, most // 2) if most else 0
    return per_address


def affordable(wanted: int, *, part: int) -> int:
    """At most one `part`th of the file descriptors that the process may have, 0: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or not wanted:
        return wanted
    return min(wanted, max(1, soft // part))


def raise_descriptors() -> None:
    """As many file descriptors as we may have: a service holds connections or runs, and the usual 1024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
