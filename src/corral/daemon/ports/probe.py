"""Is a port free, as far as the kernel can tell? Blocking: call it in a worker thread.

Binding is tried for every address of both families. TCP sockets that merely linger after an end
(TIME_WAIT) do not count, which is what SO_REUSEADDR means there; for UDP the same option would let
two programs share the port, so it is not set. A connection that is accepted tells of listeners that
binding does not see, such as a forwarding rule.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable
from typing import Final

from corral.domain.groups import PortProtocol
from corral.domain.instance_records import LeasedPort
from corral.errors import Code, Retryable

_CONNECT_SECONDS: Final = 0.2
_ANY: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - it is tried, not served
_LOCAL: Final = "127.0.0.1"
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def check_free(ports: Iterable[LeasedPort]) -> None:
    """PORT_IN_USE for the first that somebody else has; TRANSIENT by nature."""
    for port in ports:
        taken = taken_by(port)
        if taken:
            raise Retryable(
                Code.PORT_IN_USE,
                f"port {port.port} ('{port.name}') is in use on this node: {taken}",
                hint="another port of the range is tried next",
                field="port",
            )


def taken_by(port: LeasedPort) -> str:
    """What was found on this port; empty: nothing."""
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


def _refusal(family: socket.AddressFamily, kind: socket.SocketKind, port: int) -> str:
    try:
        with socket.socket(family, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((_ANY[family], port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)  # two that both set SO_REUSEADDR may bind, but only one may listen
    except OSError as error:
        return "" if error.errno in _NO_SUCH_FAMILY else (error.strerror or str(error))
    return ""


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        probe.connect((_LOCAL, port))
        # A port of the range for outgoing connections may be given to this very socket, which then
        # talks to itself.
        return bool(probe.getsockname() != probe.getpeername())
    return False
