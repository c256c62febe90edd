"""The addresses of this machine."""

from __future__ import annotations

import ipaddress
import socket

from corral.system.own_addresses import own_addresses


def test_they_are_addresses_that_a_listener_can_have() -> None:
    found = own_addresses()
    assert "127.0.0.1" in found
    for address in found:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((address, 0))
