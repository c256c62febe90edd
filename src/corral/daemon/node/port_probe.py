"""Ports of this node: whether the kernel has one free, and which ones its runs hold.

`check_free` tries to bind every address of both families; it blocks: call it in a worker thread. TCP connections that
merely linger after a close (TIME_WAIT) do not count, which is what SO_REUSEADDR means there, unless the program that
closed them had not set it: then no program gets the port until the kernel drops them, and `check_free` reports when.
For UDP the same option would let two programs share the port, so it is not set. An accepted connection reveals
listeners that binding does not detect, such as a forwarding rule.

`HeldPorts` has the ports of runs from before they start until nothing of them is left, because the kernel's view is not
enough: a workload that shuts down slowly may have closed its socket, and one that starts slowly has not opened it yet.
It is read and changed in one step of the event loop, so two starts cannot both get a port.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import socket
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.errors import Code, Retryable

_log = structlog.get_logger("corral.daemon.node")

_CONNECT_SECONDS: Final = 0.2
_NO_INODE: Final = b"0"
_TIME_WAIT: Final = b"03"
"""The kind of timer that such a connection has."""
_TICKS: Final = 100
_LONGEST_LINGER: Final = 60.0
_ANY: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - probed, not served
_LOCAL: Final = "127.0.0.1"
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def check_free(ports: Iterable[LeasedPort]) -> None:
    """PORT_IN_USE for the first port that is taken; TRANSIENT by nature."""
    for port in ports:
        taken = taken_by(port)
        _log.debug("port_probe.finished", name=port.name, port=port.port, found=taken or "nothing")
        if not taken:
            continue
        if left := lingers_for(port.port):
            raise Retryable(
                Code.PORT_IN_USE,
                f"port {port.port}/tcp ('{port.name}') is not free yet: connections of a program that has ended "
                f"linger there (TIME_WAIT), for {left:.0f} s more",
                hint="a program that sets SO_REUSEADDR has its port back at once",
                field="port",
                retry_after=left,
            )
        raise Retryable(
            Code.PORT_IN_USE,
            f"port {port.port} ('{port.name}') is in use on this node by something that is no instance of it: "
            f"{taken}",
            hint="free it, or give the group a range in which others are free",
            field="port",
        )


def taken_by(port: LeasedPort) -> str:
    """The listeners found on this port; empty: nothing."""
    kinds = []
    if port.protocol in (PortProtocol.TCP, PortProtocol.BOTH):
        kinds.append(("TCP", socket.SOCK_STREAM))
    if port.protocol in (PortProtocol.UDP, PortProtocol.BOTH):
        kinds.append(("UDP", socket.SOCK_DGRAM))
    for label, kind in kinds:
        for family in _ANY:
            if found := _refusal(family, kind, port.port):
                return f"{label} cannot be bound ({found})"
        if kind == socket.SOCK_STREAM and _answers(port.port):
            return "something accepts TCP connections there"
    return ""


def lingers_for(port: int) -> float:
    """How many seconds this TCP port stays unavailable because of connections that belong to no process any more; 0:
    that is not the cause."""
    longest = 0.0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/self/net/{name}").read_bytes().splitlines()[1:]:
                words = line.split(maxsplit=10)
                if int(words[1].rpartition(b":")[2], 16) != port:
                    continue
                if words[9] != _NO_INODE:
                    return 0.0
                kind, _, ticks = words[5].partition(b":")
                left = int(ticks, 16) / _TICKS if kind == _TIME_WAIT else _LONGEST_LINGER
                longest = max(longest, min(left, _LONGEST_LINGER), 1.0)
    return longest


def _refusal(family: socket.AddressFamily, kind: socket.SocketKind, port: int) -> str:
    try:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((_ANY[family], port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)  # two programs that both set SO_REUSEADDR may bind, but only one may listen
    except OSError as error:
        return "" if error.errno in _NO_SUCH_FAMILY else (error.strerror or str(error))
    return ""


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        probe.connect((_LOCAL, port))
        # A port of the range for outgoing connections may be given to this very socket, which then
        # connects to itself.
        return bool(probe.getsockname() != probe.getpeername())
    return False


class HeldPorts:
    """Ports by the name of the run that holds them."""

    def __init__(self) -> None:
        self._holders: dict[tuple[int, str], str] = {}

    def take(self, run: str, ports: Iterable[LeasedPort]) -> None:
        """Take all of them, or none and PORT_IN_USE. A run that has them already keeps them."""
        requested = list(ports)
        for port in requested:
            for key in _keys(port):
                holder = self._holders.get(key, run)
                if holder != run:
                    raise Retryable(
                        Code.PORT_IN_USE,
                        f"port {port.port}/{key[1]} ('{port.name}') is held by the run {holder} on this node",
                        hint="it is free once nothing of that run is left",
                        field="port",
                    )
        for port in requested:
            for key in _keys(port):
                self._holders[key] = run

    def release(self, run: str) -> None:
        """Release all ports of a run. Idempotent."""
        for key in [key for key, holder in self._holders.items() if holder == run]:
            del self._holders[key]

    def numbers(self) -> list[int]:
        return sorted({number for number, _ in self._holders})


def _keys(port: LeasedPort) -> Iterator[tuple[int, str]]:
    if port.protocol in (PortProtocol.TCP, PortProtocol.BOTH):
        yield port.port, "tcp"
    if port.protocol in (PortProtocol.UDP, PortProtocol.BOTH):
        yield port.port, "udp"
