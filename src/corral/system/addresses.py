"""Network addresses as people write them (HOST:PORT, IPv6 in brackets), and the share of connections that one address may
have, whichever listener it connects to.
"""

from __future__ import annotations

import ipaddress
import re
import resource
from collections.abc import Sequence
from typing import Final, NamedTuple

from corral.errors import Code, Rejected

_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]{1,32})?")
_FORM: Final = "write HOST:PORT, for example 127.0.0.1:8480, db.example.org:8480 or [::1]:8480"
MAX_PORT: Final = 65535
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
"""What a listener on all addresses of the machine is given as its host."""
_BROADCAST: Final = 2**32 - 1


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Address(NamedTuple):
    """A host, without brackets, and a port; port 0 requests a free one from the kernel."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, *, field: str = "address", any_port: bool = False) -> Address:
    """Read HOST:PORT. Port 0 is accepted only for listening (`any_port`): it cannot be dialled."""
    host, colon, digits = text.rpartition(":")
    if not colon or not host:
        raise _refused(text, "it has no host" if colon else "it has no port", field)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 5 or int(digits) > MAX_PORT:
        raise _refused(text, f"the port is not a number up to {MAX_PORT}", field)
    port = int(digits)
    if port == 0 and not any_port:
        raise _refused(text, "port 0 cannot be dialled", field)
    if host.startswith("[") and host.endswith("]"):
        return Address(_ipv6(host[1:-1], text, field), port)
    if ":" in host:
        raise _refused(text, "an IPv6 address needs brackets", field)
    return Address(_name(host, text, field), port)


def parse_host(text: str, *, field: str = "host") -> str:
    """Read a host alone: a name, an IPv4 or an IPv6 address (brackets optional)."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare:
        return _ipv6(bare, text, field)
    return _name(bare, text, field)


def usable_host(text: str) -> str:
    """The host, if a peer can be sent there; empty: it is none, or an address that no single host has."""
    try:
        host = parse_host(text)
    except Rejected:
        return ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    limited = isinstance(address, ipaddress.IPv4Address) and int(address) == _BROADCAST
    return "" if address.is_unspecified or address.is_multicast or limited else host


def _ipv6(host: str, text: str, field: str) -> str:
    try:
        if _IPV6.fullmatch(host) is None:  # the library accepts anything as a zone
            raise ValueError
        ipaddress.IPv6Address(host)
    except ValueError:
        raise _refused(text, "the part in brackets is not an IPv6 address", field) from None
    return host


def _name(host: str, text: str, field: str) -> str:
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refused(text, "the host is neither a name nor an address", field)
    if labels[-1].isdigit():  # a name never ends in a number, so this was meant as IPv4
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise _refused(text, "the host is not a whole IPv4 address", field) from None
    return host


def _refused(text: str, why: str, field: str) -> Rejected:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return Rejected(Code.INVALID_FIELD, f"{shown!r} is not an address: {why}", hint=_FORM, field=field)


LOOPBACK: Final = "loopback"
"""The key of this host, whichever of its own addresses it used."""
DESCRIPTORS: Final = 65_536
"""Files that a role may have open, where the system allows so many."""


def plain_address(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The same, as IPv4 where it is IPv4 that a listener on IPv6 shows in its own form."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_within(host: str, networks: Sequence[Network]) -> bool:
    """Whether a peer's address lies in one of these networks."""
    if not networks:
        return False
    try:
        address = plain_address(ipaddress.ip_address(host))
    except ValueError:
        return False
    return any(address in network for network in networks)


def counted_as(host: str) -> str:
    """The key by which a peer's connections are counted: its address, for IPv6 its /64, because a host can
    have any number of addresses there. Empty for what is no address."""
    try:
        address = plain_address(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return ""
    if address.is_loopback:
        return LOOPBACK
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def network_of(host: str) -> str:
    """The key of those who have many addresses: for IPv4 its /24, for IPv6 its /48; this host as of `counted_as`."""
    key = counted_as(host)
    if key in ("", LOOPBACK):
        return key
    prefix = 48 if ":" in key else 24
    return str(ipaddress.ip_network(f"{key.partition('/')[0]}/{prefix}", strict=False))


def share_of(address: str, *, per_address: int, most: int, is_proxy: bool = False) -> int:
    """Connections that the key may have, 0: no limit. A proxy has half of all, and so has the host itself: it may run
    one."""
    if per_address and (is_proxy or address == LOOPBACK):
        return max(per_address, most // 2) if most else 0
    return per_address


def affordable(requested: int, *, part: int) -> int:
    """At most one `part`th of the file descriptors that the process may have, 0: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or not requested:
        return requested
    return min(requested, max(1, soft // part))


def raise_descriptors() -> None:
    """Raise the limit of file descriptors to the maximum: a service holds connections or runs, and the usual
    1024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
