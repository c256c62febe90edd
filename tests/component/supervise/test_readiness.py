"""When an instance is ready, what it waits for until then, and who hears of it."""

from __future__ import annotations

import sys

import pytest
from supervised_node import SupervisedNode, base_plan

from corral.domain.groups.plans import PlanProbe
from corral.domain.groups.probes import ProbeKind
from corral.testing import workloads
from corral.testing.ports import free_range
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import NamedPort, Readiness

_LISTENS_WHEN_TOLD = """
import socket, sys
kept = []
print("waits for orders", flush=True)
for line in sys.stdin:
    kind, _, port = line.partition(" ")
    if kind == "stop":
        break
    kept.append(socket.socket(type={"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[kind]))
    kept[-1].bind(("127.0.0.1", int(port)))
    if kind == "tcp":
        kept[-1].listen()
    print("listens", kind, port.strip(), flush=True)
"""
LISTENS_WHEN_TOLD = (sys.executable, "-c", _LISTENS_WHEN_TOLD)


def shown(node: SupervisedNode) -> list[str]:
    """What those who look at the node's instances are told that they wait for."""
    return [each.instance_status.reason for each in node.sent if each.instance_status.reason]


async def test_an_instance_without_probes_runs_at_once_and_is_ready_when_it_has_lived(node):
    await node.start("one", workloads.reading_commands(), min_alive_ms=60_000, startup_timeout_seconds=1)
    run = await node.until("one", "RUNNING")
    assert not run.readiness.ready
    await eventually(lambda: any("has lived" in reason for reason in shown(node)))
    await eventually(lambda: run.uptime_ms > 2000)  # past the time of its start, which ends no such run
    assert (await node.last_status("one")).readiness == Readiness.READINESS_WAITING
    assert (run.state, run.readiness.ready) == ("RUNNING", False)

    await node.start("two", workloads.reading_commands(), min_alive_ms=50)
    await eventually(lambda: node.run("two").readiness.ready)
    await eventually(lambda: node.supervision.services.reporter.waiting == 0)
    assert (await node.last_status("two")).readiness == Readiness.READINESS_READY


@pytest.mark.trap("T87")
async def test_a_server_that_listens_elsewhere_is_not_ready_and_says_where(node):
    places = {}
    for protocol, kind in (("udp", "udp"), ("tcp", "tcp"), ("both", "udp")):
        leased, elsewhere = places[protocol] = free_range(2)
        port = NamedPort(name="primary", port=leased, protocol=protocol)
        await node.start(protocol, LISTENS_WHEN_TOLD, ports=[port])
        await node.says(protocol, "waits for orders")
        await node.command(protocol, f"{kind} {elsewhere}")
    for protocol, kind in (("udp", "udp"), ("tcp", "tcp"), ("both", "udp")):
        leased, elsewhere = places[protocol]
        run = await node.until(protocol, "RUNNING")
        sought = f"{leased}" if protocol == "both" else f"{leased}/{kind}"
        words = f"nothing listens on {sought} yet; its processes listen on {elsewhere}/{kind}"
        await eventually(
            lambda run=run, words=words: run.reason == words and words in shown(node),
            state=lambda run=run: (run.reason, shown(node)),
        )
        assert not run.readiness.ready
        await node.command(protocol, f"{kind} {leased}")
    for protocol in places:
        run = node.run(protocol)
        await eventually(lambda run=run: run.readiness.ready, state=lambda run=run: run.reason)
        assert (run.state, run.reason) == ("RUNNING", "")
        assert (await node.last_status(protocol)).readiness == Readiness.READINESS_READY


async def test_a_daemon_that_finds_a_run_knows_whether_it_was_ready(node):
    first, second = free_range(2)
    for id, port in (("one", first), ("two", second)):
        await node.start(id, LISTENS_WHEN_TOLD, ports=[NamedPort(name="primary", port=port, protocol="tcp")])
        await node.says(id, "waits for orders")
    await node.command("one", f"tcp {first}")
    await eventually(lambda: node.run("one").readiness.ready)
    await eventually(lambda: node.run("two").files.is_waiting())
    await node.reopen()
    assert (node.run("one").state, node.run("one").readiness.ready) == ("RUNNING", True)
    assert (node.run("two").state, node.run("two").readiness.ready) == ("RUNNING", False)
    await node.command("two", f"tcp {second}")
    await eventually(lambda: node.run("two").readiness.ready)
    assert not node.run("two").files.is_waiting()


async def test_what_a_probe_waits_for_is_told_while_it_waits(node):
    probes = (PlanProbe(kind=ProbeKind.LOG, pattern="Done"),)
    await node.begin("one", base_plan(LISTENS_WHEN_TOLD, probes=probes))
    words = "not ready yet: log probe 'Done': none of 1 line matched, the last one was 'waits for orders'"
    await eventually(lambda: any(words in each for each in shown(node)), state=lambda: shown(node))
    run = node.run("one")
    assert run.state == "STARTING"
    assert words in run.reason
    assert len(shown(node)) < 4  # however often a probe looks
