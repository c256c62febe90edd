"""How many connections an address may have, and who has more."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from corral.controller.http.server.open_connections import OpenConnections
from corral.system.http_config import HttpLimitsSection

PROXY = "192.0.2.1"


class Connected(asyncio.Transport):
    """A connection of a peer that is at work."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 4711)})


@pytest.mark.parametrize(
    ("host", "places"),
    [("192.0.2.7", 3), (PROXY, 10), (f"::ffff:{PROXY}", 10), ("127.0.0.1", 10), ("2001:db8::1", 3)],
)
async def test_a_trusted_proxy_has_half_of_all_places_like_the_host_itself(host: str, places: int) -> None:
    connections = OpenConnections(
        HttpLimitsSection(connections=20, connections_per_address=3), proxies=[ipaddress.ip_network(PROXY)]
    )
    assert [connections.enter(Connected(host)) for _ in range(12)] == [True] * places + [False] * (
        12 - places
    )
    assert connections.enter(Connected("203.0.113.9"))
