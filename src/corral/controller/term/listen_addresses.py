"""The listen addresses of a controller with all ports chosen, and the addresses under which others reach it."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import socket
from typing import Final

import msgspec

from corral.controller.http.pipeline.browser_checks import LOCALHOST
from corral.system.addresses import WILDCARDS, Address, parse_address
from corral.system.controller_config import ControllerConfig
from corral.system.http_config import HttpSection
from corral.system.own_addresses import own_addresses

_OUTGOING: Final = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 10_000
_TRIES: Final = 50


class ChosenPorts(contextlib.ExitStack):
    """Ports that were chosen and on which nobody listens yet, because the lease publishes them first.

    Until it is closed they are bound: no other controller that looks for a free port gets one of them. A server that
    sets SO_REUSEADDR, as gRPC does, listens on them all the same.
    """

    def choose(self, listen: str, *, besides: int = 0) -> str:
        """The address with a free port in place of port 0, different from `besides`.

        It lies below the range of ephemeral ports, so that no outgoing connection takes it while its controller
        restarts.
        """
        address = parse_address(listen, any_port=True)
        if address.port:
            return listen
        below = _first_outgoing()
        for _ in range(_TRIES if below > _LOWEST + 1000 else 0):
            port = _LOWEST + secrets.randbelow(below - _LOWEST)
            if port != besides:
                with contextlib.suppress(OSError):
                    return self._hold(address.host, port)
        return self._hold(address.host, 0)

    def _hold(self, host: str, port: int) -> str:
        with contextlib.ExitStack() as failed:
            holding = failed.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            holding.bind((host, port))
            # Not before: with it, two that look for a port could bind the same one.
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.push(failed.pop_all())
        return str(Address(host, holding.getsockname()[1]))


def _first_outgoing() -> int:
    """The first ephemeral port, at most 20,000: servers are commonly configured on higher ports."""
    try:
        return min(int(_OUTGOING.read_text().split()[0]), 20_000)
    except (OSError, ValueError, IndexError):
        return 20_000


def reachable(listen: str) -> str:
    """An address that others can dial: for a wildcard, the name of this host."""
    host, port = parse_address(listen)
    return str(Address(socket.gethostname(), port)) if host in WILDCARDS else listen


def certificate_names(http: HttpSection) -> frozenset[str]:
    """The names and addresses under which HTTP is reached, as far as they are known here. They may change with those
    of the machine. Blocking."""
    host = parse_address(http.listen, any_port=True).host
    names = {*LOCALHOST, *http.allowed_hosts}
    names |= {socket.gethostname(), *own_addresses()} if host in WILDCARDS else {host}
    if http.advertise:
        names.add(parse_address(http.advertise).host)
    if http.public_host:
        names.add(http.public_host)
    return frozenset(name.lower().removesuffix(".") for name in names)


def with_ports(config: ControllerConfig, chosen: ChosenPorts) -> ControllerConfig:
    """The configuration with all ports chosen."""
    grpc_listen = chosen.choose(config.grpc.listen)
    host, _ = config.bootstrap_address
    listens_anywhere = not config.bootstrap_address.port
    taken = parse_address(grpc_listen).port  # not held if it is configured
    bootstrap = (
        chosen.choose(str(Address(host, 0)), besides=taken) if listens_anywhere else config.bootstrap.listen
    )
    return msgspec.structs.replace(
        config,
        grpc=msgspec.structs.replace(config.grpc, listen=grpc_listen),
        bootstrap=msgspec.structs.replace(config.bootstrap, listen=bootstrap),
    )


def first_admin_url(http: HttpSection, reached: str) -> str:
    """The address of the page of the first administrator. Its code is accepted over TLS and on this host alone, so without
    TLS it is the address for this host."""
    if http.public_url.startswith("https:"):
        return f"{http.public_url}/first-admin"
    listen = parse_address(http.listen, any_port=True)
    if http.scheme == "http" and listen.host in WILDCARDS:
        reached = str(Address(LOCALHOST[1], parse_address(reached).port))
    return f"{http.scheme}://{reached}/first-admin"
