"""Ports that a controller chooses for itself."""

from __future__ import annotations

from corral.controller.term.listen_addresses import choose_port
from corral.system.addresses import parse_address


def test_the_port_for_joining_is_never_the_one_of_the_link_which_is_not_bound_yet() -> None:
    taken = parse_address(choose_port("127.0.0.1:0")).port
    chosen = {parse_address(choose_port("127.0.0.1:0", besides=taken)).port for _ in range(30_000)}
    assert taken not in chosen
