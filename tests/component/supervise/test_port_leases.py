"""Ports of this node: whom they belong to, and until when."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest
from supervised_node import FIRST

from corral.daemon.node.port_probe import check_free, lingers_for
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import RunIntent
from corral.daemon.runs.run_start import Interrupted, RunStart
from corral.daemon.workload.start_order import StartOrder, default_stop_ladder
from corral.domain.ids import Incarnation, InstanceId
from corral.errors import Retryable
from corral.testing import workloads
from corral.testing.ports import free_range
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import NamedPort, StopRung

TRANSIENT = 2


def named(port: int, protocol: str = "both") -> list[NamedPort]:
    return [NamedPort(name="primary", port=port, protocol=protocol)]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
async def test_a_port_that_somebody_else_has_is_refused_for_now(node, kind):
    with socket.socket(socket.AF_INET, kind) as taken:
        port = free_range(1)[0]
        taken.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        ack = await node.start("one", workloads.silent(), ports=named(port))
        assert (ack.error_code, ack.failure_disposition, ack.stage) == ("PORT_IN_USE", TRANSIENT, 1)
        assert str(port) in ack.error_message

    async def starts() -> bool:
        """A refusal for now is retried, as the controller does: the failed run may not be over yet."""
        again = await node.start("one", workloads.silent(), ports=named(port), incarnation=FIRST + 1024)
        assert again.accepted or again.failure_disposition == TRANSIENT, again
        return bool(again.accepted)

    assert await eventually(starts)


async def test_a_port_of_the_other_protocol_is_no_obstacle(node):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        port = free_range(1)[0]
        taken.bind(("0.0.0.0", port))
        assert (await node.start("one", workloads.silent(), ports=named(port, "tcp"))).accepted


@pytest.mark.trap("T24")
async def test_a_port_is_not_given_away_before_nothing_is_left_of_the_run_that_had_it(node):
    port = free_range(1)[0]
    ladder = [StopRung(command="stop", wait_ms=3_600_000)]
    first = await node.start("one", workloads.slow_stopper(3600), ports=named(port), stop_ladder=ladder)
    assert first.accepted
    await node.says("one", "up")
    await node.stop("one")
    await node.says("one", "stopping")  # it has no socket open, and lives
    for id, protocol in (("two", "tcp"), ("three", "udp")):
        ack = await node.start(id, workloads.silent(), ports=named(port, protocol))
        assert (ack.error_code, ack.failure_disposition) == ("PORT_IN_USE", TRANSIENT)
        assert f"one.{FIRST}" in ack.error_message
    await node.reopen()
    ack = await node.start("four", workloads.silent(), ports=named(port))
    assert ack.error_code == "PORT_IN_USE", "the next daemon forgot whose it is"
    await node.stop("one", force=True)
    await node.settled("one")
    assert (await node.start("five", workloads.silent(), ports=named(port))).accepted


async def test_a_workload_gets_its_ports_by_name(node):
    port, extra = free_range(2)
    ports = [*named(port), NamedPort(name="query", port=extra, protocol="udp")]
    await node.start("one", workloads.holding_ports(tcp="%PORT%", udp="%PORT_QUERY%"), ports=ports)
    await eventually(lambda: f"up tcp:{port} udp:{extra}" in node.console("one"))
    assert node.supervision.services.ports.numbers() == sorted({port, extra})


_HANGS_UP_FIRST = """
import socket, sys
server = socket.socket()  # without SO_REUSEADDR
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print("listens", flush=True)
server.accept()[0].close()
sys.stdin.readline()
sys.exit(1)
"""


async def test_a_restart_waits_for_the_lingering_connections_of_the_run_before(node):
    port = free_range(1)[0]
    command = (sys.executable, "-c", _HANGS_UP_FIRST, str(port))
    await node.start("one", command, ports=named(port, "tcp"), attempts=1)
    await node.says("one", "listens")
    with socket.create_connection(("127.0.0.1", port)) as client:
        assert client.recv(1) == b""  # the server hung up first: the connection lingers on its side
    assert not lingers_for(port)  # its socket is there
    await node.command("one", "die")
    await eventually(
        lambda: "starts again when its port" in node.run("one").reason, state=lambda: node.run("one")
    )
    run = node.run("one")
    assert (run.state, run.order.incarnation) == ("SCHEDULED", FIRST + 1)
    assert (
        f"port {port}/tcp ('primary') is not free yet: connections of a program that has ended" in run.reason
    )
    assert 0 < lingers_for(port) <= 60
    with pytest.raises(Retryable, match="TIME_WAIT") as refused:
        check_free(run.order.ports)
    assert 0 < refused.value.retry_after <= 60
    await node.stop("one")
    assert (await node.settled("one")).outcome.outcome == "never_started"


@pytest.mark.system
async def test_a_restart_waits_a_moment_for_a_port_that_somebody_took(node):
    port = free_range(1)[0]
    await node.start(
        "one", workloads.crashing(code=1, after_seconds=1.0), ports=named(port, "udp"), attempts=1
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        await eventually(lambda: "by something that is no instance of it" in node.run("one").reason)
        assert (node.run("one").state, node.run("one").order.incarnation) == ("SCHEDULED", FIRST + 1)
    await node.until("one", "RUNNING", incarnation=FIRST + 1)
    await node.settled("one")


async def test_a_stop_that_comes_while_a_restart_looks_at_its_ports_ends_it_there(node):
    services = node.supervision.services
    order = StartOrder(
        instance_id=InstanceId("one"),
        group="test",
        incarnation=Incarnation(FIRST + 1),
        command=tuple(workloads.silent()),
        ladder=default_stop_ladder(),
    )
    intent = RunIntent(order=order, boot_id=services.boot_id, accepted_at_ms=0)
    run = Run(services, services.runs.files("one", FIRST + 1), intent)
    looking = asyncio.create_task(RunStart(services, run).wait_for_ports())
    await asyncio.sleep(0)  # it begins to look, in a thread
    run.stop.requested.set()
    with pytest.raises(Interrupted):
        await looking
