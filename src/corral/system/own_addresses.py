"""Addresses of this machine, as the kernel lists them."""

from __future__ import annotations

import ipaddress
import pathlib
import re
from typing import Final

_IPV4: Final = pathlib.Path("/proc/net/fib_trie")
_IPV6: Final = pathlib.Path("/proc/net/if_inet6")
_LEAF: Final = re.compile(r"\|-- (\d+\.\d+\.\d+\.\d+)\n(?:\s+/\d+ .*\n)*?\s+/32 host LOCAL")
_MOST: Final = 1024 * 1024


def own_addresses() -> frozenset[str]:
    """All of its addresses but those that mean something on one wire only. What cannot be read is left out."""
    found = {*_LEAF.findall(_read(_IPV4)), *map(_colons, _read(_IPV6).splitlines())}
    return frozenset(
        address for address in found if address and not ipaddress.ip_address(address).is_link_local
    )


def _colons(line: str) -> str:
    digits = line.partition(" ")[0]
    return str(ipaddress.IPv6Address(int(digits, 16))) if len(digits) == 32 else ""


def _read(path: pathlib.Path) -> str:
    try:
        with path.open() as file:
            return file.read(_MOST)
    except OSError:
        return ""
