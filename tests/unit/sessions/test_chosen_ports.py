"""Ports that a controller chooses for itself."""

from __future__ import annotations

import socket

import pytest

from corral.controller.term.listen_addresses import ChosenPorts
from corral.system.addresses import parse_address


def chosen_port(*, besides: int = 0) -> int:
    with ChosenPorts() as chosen:
        return parse_address(chosen.choose("127.0.0.1:0", besides=besides)).port


@pytest.mark.system
def test_the_port_for_joining_is_never_the_one_of_the_link_which_is_not_bound_yet() -> None:
    taken = chosen_port()
    assert taken not in {chosen_port(besides=taken) for _ in range(30_000)}


@pytest.mark.parametrize(
    ("listen", "family"),
    [("127.0.0.1:0", socket.AF_INET), ("0.0.0.0:0", socket.AF_INET), ("[::1]:0", socket.AF_INET6)],
)
def test_a_port_is_its_choosers_until_it_listens(listen: str, family: socket.AddressFamily) -> None:
    """Two controllers that start at once would publish the same port, and one of them would end."""
    with ChosenPorts() as chosen:
        address = parse_address(chosen.choose(listen))
        with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.socket(family) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
            server.listen()
            chosen.close()
            with socket.create_connection(("::1" if ":" in address.host else "127.0.0.1", address.port)):
                pass
    with socket.socket(family) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)
