"""Which ports are taken."""

from __future__ import annotations

import socket

import pytest

from corral.daemon.node.port_probe import HeldPorts, check_free, taken_by
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.errors import Code, Retryable
from corral.testing.ports import free_range


def port(number: int, protocol: str = "both") -> LeasedPort:
    return LeasedPort(name="primary", port=number, protocol=PortProtocol(protocol))


def test_a_port_belongs_to_one_run_until_it_is_released():
    held = HeldPorts()
    held.take("a.1", [port(5), port(6, "tcp")])
    held.take("a.1", [port(5)])
    for wanted in (port(5, "udp"), port(5, "tcp"), port(6)):
        with pytest.raises(Retryable) as refused:
            held.take("b.1", [port(9), wanted])
        assert refused.value.code is Code.PORT_IN_USE
    held.take("b.1", [port(6, "udp")])
    assert held.numbers() == [5, 6], "a refused request takes nothing"
    held.release("a.1")
    held.release("a.1")
    held.take("c.1", [port(5), port(6, "tcp")])


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
@pytest.mark.parametrize(("kind", "protocol"), [(socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")])
def test_whoever_has_it_on_whichever_address_is_seen(address, kind, protocol):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    number, _ = free_range(1)
    other = "udp" if protocol == "tcp" else "tcp"
    with socket.socket(family, kind) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address, number))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        assert taken_by(port(number, protocol))
        assert taken_by(port(number))
        assert not taken_by(port(number, other))
        with pytest.raises(Retryable) as refused:
            check_free([port(number)])
        assert refused.value.code is Code.PORT_IN_USE
    assert not taken_by(port(number))


def test_connections_that_merely_linger_do_not_count():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        number, _ = free_range(1)
        server.bind(("127.0.0.1", number))
        server.listen()
        client = socket.create_connection(("127.0.0.1", number))
        accepted, _ = server.accept()
        accepted.close()  # this side closes first and lingers in TIME_WAIT
        client.recv(1)
        client.close()
    assert not taken_by(port(number))
