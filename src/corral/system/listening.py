"""Whether this machine can listen on an address."""

from __future__ import annotations

import errno
import socket

from corral.system.addresses import Address


def bind_problem(address: Address) -> int | None:
    """The error number with which listening is refused; None: it would work. Nothing listens there afterwards."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno
    return None
