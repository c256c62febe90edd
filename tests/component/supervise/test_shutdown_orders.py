"""Orders of a controller that drains a node: no new runs, stops, and the end of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from supervised_node import QUICK_LADDER, start_frame
from test_daemon_wiring import OrderingController

from corral.domain.ids import first_incarnation
from corral.testing import workloads
from corral.testing.cluster import LocalCluster, LocalDaemon
from corral.testing.ports import free_range
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.features import FEATURES
from corral.wire.v1.instance_pb2 import (
    START_FAILURE_DISPOSITION_TRANSIENT,
    NamedPort,
    StopRung,
)
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import ShutdownMode, ShutdownNode

STUBBORN_LADDER = (StopRung(signal="SIGTERM", wait_ms=400), StopRung(signal="SIGINT", wait_ms=400))
DRAIN = "drain-1"


class DrainedNode:
    """A daemon, and the controller that drains it."""

    def __init__(self, cluster: LocalCluster, daemon: LocalDaemon, controller: OrderingController) -> None:
        self.cluster = cluster
        self.daemon = daemon
        self.controller = controller

    def order(self, mode: str = "", *, drain_id: str = DRAIN, epoch: int = 0) -> None:
        number = ShutdownMode.Value(f"SHUTDOWN_MODE_{mode}") if mode else 0
        order = ShutdownNode(reason="kernel update", mode=number, drain_id=drain_id)
        self.controller.orders.put_nowait(ControllerMessage(shutdown_node=order, epoch=epoch))

    def start(self, id: str, command: Any = None, **fields: Any) -> None:
        self.controller.orders.put_nowait(start_frame(id, command or workloads.reading_commands(), **fields))

    async def started(self, id: str, command: Any = None, **fields: Any) -> Any:
        self.start(id, command, **fields)
        return await self.answer_of(id, accepted=True)

    async def answer_of(self, id: str, *, accepted: bool) -> Any:
        def last() -> Any:
            answers = [ack for ack in self.controller.of("start_instance_ack") if ack.instance_id == id]
            return answers[-1] if answers and answers[-1].accepted is accepted else None

        return await eventually(last, state=lambda: self.controller.of("start_instance_ack"))

    async def acks(self, count: int) -> list[Any]:
        """All answers to orders of the drain, once there are so many."""
        await eventually(
            lambda: len(self.controller.of("shutdown_node_ack")) >= count,
            state=lambda: self.controller.of("shutdown_node_ack"),
        )
        return self.controller.of("shutdown_node_ack")

    async def ended(self, id: str) -> None:
        await eventually(
            lambda: any(
                update.instance_id == id and update.HasField("exit")
                for update in self.controller.of("instance_status")
            ),
            state=self.controller.states,
        )


@contextlib.asynccontextmanager
async def drained_node(
    scratch: Any, *, features: tuple[str, ...] = FEATURES, confirms: bool = True
) -> AsyncIterator[DrainedNode]:
    script = OrderingController(features=features, confirms=confirms)
    script.epoch = 7
    async with ScriptedController(script) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[controller.address])
        yield DrainedNode(cluster, daemon, script)


@pytest.fixture
async def node(scratch: Any, request: pytest.FixtureRequest) -> AsyncIterator[DrainedNode]:
    async with drained_node(scratch, confirms=getattr(request, "param", True)) as found:
        yield found


async def test_an_announcement_is_answered_and_ends_the_intake_of_runs_but_no_run(node: DrainedNode) -> None:
    ladder = (StopRung(command="stop", wait_ms=12_000), StopRung(signal="SIGTERM", wait_ms=3_500))
    await node.started("one", stop_ladder=ladder)
    await node.started("two", stop_ladder=QUICK_LADDER)
    node.order("ANNOUNCE")
    [ack] = await node.acks(1)
    assert (ack.running_instances, ack.estimated_drain_seconds) == (2, 16)
    assert (ack.mode, ack.drain_id, ack.done) == (ShutdownMode.SHUTDOWN_MODE_ANNOUNCE, DRAIN, False)

    node.start("three")
    refusal = await node.answer_of("three", accepted=False)
    assert refusal.error_code == "NODE_DRAINING"
    assert refusal.failure_disposition == START_FAILURE_DISPOSITION_TRANSIENT
    assert refusal.retry_after_seconds > 0
    assert "kernel update" in refusal.error_message
    node.start("one", stop_ladder=ladder)  # repeated: it has that one
    await eventually(lambda: len(node.controller.of("start_instance_ack")) == 4)
    assert node.controller.of("start_instance_ack")[-1].accepted
    assert [run.state for run in node.daemon.app.supervision.supervisor.instances.runs()] == ["RUNNING"] * 2


async def test_a_crashed_run_restarts_on_a_node_that_is_only_announced(node: DrainedNode) -> None:
    await node.started("one", workloads.shell("sleep 0.3; exit 3"), attempts=1)
    node.order("ANNOUNCE")
    await eventually(lambda: node.controller.of("crash_report"))
    assert node.controller.of("crash_report")[0].restarted_as
    await eventually(lambda: node.controller.states().count("RUNNING") >= 2, state=node.controller.states)


async def test_runs_are_taken_again_after_the_end_of_the_drain(node: DrainedNode) -> None:
    node.order("ANNOUNCE")
    node.start("one")
    await node.answer_of("one", accepted=False)
    node.order("RESUME")
    await node.started("one")
    assert [ack.mode for ack in await node.acks(2)] == [
        ShutdownMode.SHUTDOWN_MODE_ANNOUNCE,
        ShutdownMode.SHUTDOWN_MODE_RESUME,
    ]


async def test_a_new_session_begins_without_the_order_of_the_last_one(node: DrainedNode) -> None:
    node.order("ANNOUNCE")
    await node.acks(1)
    connection = node.daemon.app.link._current.connection
    assert connection is not None
    await connection.close()
    await eventually(lambda: len(node.controller.greetings) == 2)
    await node.started("one")


async def test_an_order_of_a_published_controller_has_no_mode_and_stops_what_runs(scratch: Any) -> None:
    async with drained_node(scratch, features=()) as node:
        await node.started("one", incarnation=0)
        node.order()
        [ack] = await node.acks(1)
        assert (ack.running_instances, ack.done) == (1, False)
        await eventually(lambda: "STOPPED" in node.controller.states(), state=node.controller.states)
        assert "kernel update" in node.controller.of("instance_status")[-1].reason
        node.start("two", incarnation=0)
        assert (await node.answer_of("two", accepted=False)).error_code == "NODE_DRAINING"
        assert len(node.controller.of("shutdown_node_ack")) == 1, "the published protocol has one answer"
        assert node.daemon.app.ready.is_set()


async def test_a_stop_ends_what_runs_and_the_daemon_stays(node: DrainedNode) -> None:
    await node.started("one")
    await node.started("two", workloads.ignoring_signals(), stop_ladder=STUBBORN_LADDER)
    node.order("STOP")
    node.order("STOP")  # twice is once
    first, second, done = await node.acks(3)
    assert (first.running_instances, first.done, second.done) == (2, False, False)
    assert (done.running_instances, done.done, done.mode) == (0, True, ShutdownMode.SHUTDOWN_MODE_STOP)
    await node.ended("one")
    await node.ended("two")
    node.start("three")
    assert (await node.answer_of("three", accepted=False)).error_code == "NODE_DRAINING"
    assert node.daemon.app.ready.is_set()


@pytest.mark.parametrize(
    "node",
    [True, pytest.param(False, marks=pytest.mark.system)],
    indirect=True,
    ids=["confirmed", "nothing confirmed, for which it waits a while"],
)
async def test_an_order_to_end_stops_the_rest_frees_its_ports_and_ends_the_daemon_once(
    node: DrainedNode,
) -> None:
    port, _ = free_range(1)
    ports = [NamedPort(name="primary", port=port, protocol="tcp")]
    await node.started("one", workloads.holding_ports(tcp=port), ports=ports, port=port)
    await node.started("two", workloads.ignoring_signals(), stop_ladder=STUBBORN_LADDER)
    keeper = keeper_pid(node.daemon.config.data)
    running = asyncio.create_task(node.daemon.app.run())
    node.order("EXIT")
    node.order("EXIT")
    await running
    acks = node.controller.of("shutdown_node_ack")
    assert (acks[0].running_instances, acks[0].done) == (2, False)
    assert sum(ack.done for ack in acks) <= 1
    await node.ended("one")
    await node.ended("two")
    ends = [
        place for place, heard in enumerate(node.controller.heard) if heard.instance_status.HasField("exit")
    ]
    dones = [place for place, heard in enumerate(node.controller.heard) if heard.shutdown_node_ack.done]
    assert all(max(ends) < place for place in dones), "the exits come first"
    await node.daemon.app.stop()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
    await eventually(lambda: not _lives(keeper))

    # the next daemon of this directory: the same drain does not end it again, another one does
    again = await node.cluster.restart(node.daemon)
    await eventually(again.app.ready.is_set)
    before = len(node.controller.of("shutdown_node_ack"))
    node.order("EXIT")
    answer = (await node.acks(before + 1))[-1]
    assert (answer.done, answer.running_instances) == (True, 0)
    assert not again.app._exit_ordered.is_set()
    node.start("three", incarnation=first_incarnation(3))
    assert (await node.answer_of("three", accepted=False)).error_code == "NODE_DRAINING"
    running = asyncio.create_task(again.app.run())
    node.order("EXIT", drain_id="drain-2")
    await running


def _lives(pid: int) -> bool:
    import pathlib

    return pathlib.Path(f"/proc/{pid}").exists()


async def test_an_order_of_an_old_epoch_is_ignored(node: DrainedNode) -> None:
    await node.started("one")
    node.order("EXIT", epoch=3)
    await eventually(lambda: [each.error_code for each in node.controller.of("error_report")])
    assert node.controller.of("error_report")[0].error_code == "STALE_EPOCH"
    await node.started("two")
    assert node.controller.of("shutdown_node_ack") == []


async def test_a_mode_of_a_newer_controller_stops_nothing(node: DrainedNode) -> None:
    await node.started("one")
    node.controller.orders.put_nowait(ControllerMessage(shutdown_node=ShutdownNode(mode=77)))  # type: ignore[arg-type]
    await node.acks(1)
    node.start("two")
    assert (await node.answer_of("two", accepted=False)).error_code == "NODE_DRAINING"
    assert node.daemon.app.supervision.supervisor.live_count() == 1


async def test_a_daemon_that_is_stopped_while_it_is_drained_leaves_its_runs_alive(node: DrainedNode) -> None:
    ack = await node.started("one")
    node.order("ANNOUNCE")
    await node.acks(1)
    await node.daemon.app.stop()
    assert _lives(ack.pid)
