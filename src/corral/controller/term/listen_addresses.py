"""The listen addresses of a controller with all ports chosen, and the addresses under which others reach it."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import socket
from typing import Final

import msgspec

from corral.system.addresses import Address, parse_address
from corral.system.controller_config import ControllerConfig

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_OUTGOING: Final = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_TRIES: Final = 50


def choose_port(listen: str, *, besides: int = 0) -> str:
    """The address with a currently free port in place of port 0, different from `besides`.

    The port is bound only later, because the lease publishes it first. So it is chosen below the range of
    ephemeral ports, where no outgoing connection takes it in between.
    """
    address = parse_address(listen, any_port=True)
    if address.port:
        return listen
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    below = _first_outgoing()
    for _ in range(_TRIES if below > _LOWEST + 1000 else 0):
        port = _LOWEST + secrets.randbelow(below - _LOWEST)
        if port == besides:
            continue
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.bind((address.host, port))
            return str(Address(address.host, port))
    with socket.socket(family) as probe:
        probe.bind((address.host, 0))
        return str(Address(address.host, probe.getsockname()[1]))


def _first_outgoing() -> int:
    """The first ephemeral port, at most 20,000: servers are commonly configured on higher ports."""
    try:
        return min(int(_OUTGOING.read_text().split()[0]), 20_000)
    except (OSError, ValueError, IndexError):
        return 20_000


def reachable(listen: str) -> str:
    """An address that others can dial: for a wildcard, the name of this host."""
    host, port = parse_address(listen)
    return str(Address(socket.gethostname(), port)) if host in _WILDCARDS else listen


def with_ports(config: ControllerConfig, *, grpc_listen: str) -> ControllerConfig:
    """The configuration with all ports chosen."""
    host, _ = config.bootstrap_address
    listens_anywhere = not config.bootstrap_address.port
    taken = parse_address(grpc_listen, any_port=True).port  # not bound yet
    bootstrap = (
        choose_port(str(Address(host, 0)), besides=taken) if listens_anywhere else config.bootstrap.listen
    )
    return msgspec.structs.replace(
        config,
        grpc=msgspec.structs.replace(config.grpc, listen=grpc_listen),
        bootstrap=msgspec.structs.replace(config.bootstrap, listen=bootstrap),
    )
