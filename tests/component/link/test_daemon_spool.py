"""The spool on its way: a disk in trouble delays it, and a disk put back in time does not fool it."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import sqlite3

import pytest
import structlog

from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.features import SPOOL
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import HandshakeAck, Ping, SpoolAck


async def stored_messages(controller) -> list[str]:
    """Every log record the controller has stored of the node, oldest first."""
    found, after = [], 0
    while True:
        page = await controller.call("GET", f"/api/v1/logs?source=node:n1&limit=500&after={after}")
        if not page["items"]:
            return [record["message"] for record in found]
        found += page["items"]
        after = page["items"][-1]["number"]


async def all_stored(controller, count: int) -> list[str]:
    async def enough():
        messages = await stored_messages(controller)
        return messages if len(messages) >= count else None

    return await eventually(enough, deadline=60)


@pytest.mark.system
async def test_a_spool_that_cannot_be_read_for_a_while_delays_its_records_and_nothing_else(cluster):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        await proxy.cut(refuse=True)
        await eventually(lambda: not daemon.app.ready.is_set())
        daemon.log.write("said before")
        await eventually(lambda: daemon.app._spool.head == 1)
        other = sqlite3.connect(daemon.config.data / "spool" / "spool.db", isolation_level=None)
        with structlog.testing.capture_logs() as logged:
            other.execute("begin immediate")
            proxy.heal()  # now the sender has something to take, and finds the spool locked
            await eventually(lambda: any(line["event"] == "spool_send.retried" for line in logged))
            session = daemon.app.link.session_id
            other.execute("rollback")
            other.close()
            daemon.log.write("said afterwards")
            assert await all_stored(controller, 2) == ["said before", "said afterwards"]
        assert daemon.app.link.session_id == session
        assert [line["event"] for line in logged].count("spool_send.retried") == 1
        await daemon.app.stop()


async def off(disk: pathlib.Path) -> None:
    """Until nothing of a stopped node writes there: its keeper goes a moment after its daemon."""
    await eventually(lambda: not any(path.is_socket() for path in disk.rglob("*")))


async def copy_disk(source: pathlib.Path, target: pathlib.Path) -> None:
    await off(source)
    shutil.copytree(source, target)


async def put_back(copy: pathlib.Path, disk: pathlib.Path) -> None:
    await off(disk)
    shutil.rmtree(disk)
    shutil.copytree(copy, disk)


async def say_alone(cluster, controller, messages: list[str]) -> None:
    """A life of the daemon in which it says this and reaches nobody."""
    daemon = await cluster.daemon("n1", controller, connect=False)
    for message in messages:
        daemon.log.write(message)
    await daemon.app.stop()


async def run_on(cluster, controller, daemon, messages: list[str], *, waiting: int = 0) -> None:
    """A life of the daemon in which it says this, and has it confirmed; `waiting` were in its spool."""
    before = len(await stored_messages(controller))
    again = await cluster.restart(daemon)
    if waiting:
        await all_stored(controller, before + waiting)
    for message in messages:
        again.log.write(message)
    await all_stored(controller, before + waiting + len(messages))
    await eventually(lambda: again.app._spool._table.committed.log_bytes == 0)
    await again.app.stop()


@pytest.mark.system
async def test_a_node_restored_from_an_older_copy_of_its_disk_loses_and_doubles_nothing(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    early = [f"before the copy {number}" for number in range(5)]
    await run_on(cluster, controller, daemon, early)
    await copy_disk(scratch / "n1", scratch / "copy")
    later = [f"after the copy {number}" for number in range(300)]
    await run_on(cluster, controller, daemon, later)

    await put_back(scratch / "copy", scratch / "n1")
    restored = await cluster.restart(daemon)
    former = restored.app._spool.spool_id
    again = [f"restored {number}" for number in range(400)]
    for message in again[:200]:
        restored.log.write(message)  # before there is a connection
    await asyncio.wait_for(restored.app.ready.wait(), 20)
    for message in again[200:]:
        restored.log.write(message)
    assert await all_stored(controller, 705) == early + later + again
    assert restored.app._spool.spool_id != former
    await restored.app.stop()


async def test_a_restored_node_that_said_more_than_it_had_lost_before_it_could_connect_is_found_out(
    cluster, scratch
):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        await daemon.app.stop()
        await copy_disk(scratch / "n1", scratch / "copy")
        later = [f"after the copy {number}" for number in range(20)]
        await run_on(cluster, controller, daemon, later)

        await put_back(scratch / "copy", scratch / "n1")
        await proxy.cut(refuse=True)
        again = [f"restored {number}" for number in range(90)]
        for life in range(3):  # its numbers pass those of the other life while nobody hears it
            await say_alone(cluster, controller, again[life * 30 : life * 30 + 30])
        proxy.heal()
        last = await cluster.daemon("n1", controller)
        assert await all_stored(controller, 110) == later + again
        await last.app.stop()


async def test_a_node_that_sent_what_it_said_alone_and_was_then_put_back_loses_and_doubles_nothing(
    cluster, scratch
):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        await daemon.app.stop()
        await proxy.cut(refuse=True)
        alone = [f"alone {number}" for number in range(10)]
        await say_alone(cluster, controller, alone)
        proxy.heal()
        early = [f"before the copy {number}" for number in range(10)]
        await run_on(cluster, controller, daemon, early, waiting=len(alone))
        await copy_disk(scratch / "n1", scratch / "copy")
        later = [f"after the copy {number}" for number in range(15)]
        await run_on(cluster, controller, daemon, later)

        await put_back(scratch / "copy", scratch / "n1")
        await proxy.cut(refuse=True)
        again = [f"restored {number}" for number in range(40)]
        await say_alone(cluster, controller, again)  # more than it had lost
        proxy.heal()
        last = await cluster.daemon("n1", controller)
        assert await all_stored(controller, 75) == alone + early + later + again
        await last.app.stop()


async def test_a_controller_that_confirms_what_it_was_never_sent_makes_us_forget_nothing(cluster, scratch):
    received: list[int] = []
    confirmed = asyncio.Event()

    async def script(context):
        await context.read()
        ack = HandshakeAck(
            session_id="s", protocol_version=1, protocol_compatible=True, epoch=1, features=[SPOOL]
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        for number in (2**64 - 1, 2**63, 1000):
            await context.write(ControllerMessage(spool_ack=SpoolAck(sequence=number), epoch=1))
        await context.write(ControllerMessage(ping=Ping(sequence=7), epoch=1))
        while isinstance(frame := await context.read(), DaemonMessage):
            if frame.HasField("pong"):
                confirmed.set()  # frames are read in their order
            if frame.spool_sequence:
                received.append(frame.spool_sequence)

    async with ScriptedController(script) as peer:
        peer.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[peer.address])
        await asyncio.wait_for(confirmed.wait(), 60)
        for number in range(600):
            daemon.log.write(f"record {number}")
        await eventually(lambda: len(received) >= 512)
        assert received == list(range(1, len(received) + 1))
        await eventually(lambda: daemon.app._spool.head == 600)
        assert len(await daemon.app._spool.take(0, limit=1000)) == 600
        assert peer.streams == 1
        await daemon.app.stop()


@pytest.mark.trap("T95")
async def test_a_controller_without_confirmations_gets_every_record_once_over_reconnects_and_restarts(
    cluster, scratch
):
    received: list[str] = []
    numbered: list[int] = []

    async def script(context):
        await context.read()
        ack = HandshakeAck(session_id="s", protocol_version=1, protocol_compatible=True, epoch=1)
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        while isinstance(frame := await context.read(), DaemonMessage):
            numbered.append(frame.spool_sequence)
            if frame.WhichOneof("payload") == "daemon_log_record":
                received.append(frame.daemon_log_record.message)
                if len(received) == 1500:
                    return  # hangs up

    async with ScriptedController(script) as peer:
        peer.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[peer.address])
        said = [f"record {number}" for number in range(1500)]
        for message in said:
            daemon.log.write(message)
        await eventually(lambda: len(received) >= 1500)
        await eventually(lambda: peer.streams > 1 and daemon.app.ready.is_set())
        daemon.log.write("after the reconnect")
        await eventually(lambda: received[-1] == "after the reconnect")
        again = await cluster.restart(daemon)
        await asyncio.wait_for(again.app.ready.wait(), 20)
        again.log.write("after the restart")
        await eventually(lambda: received[-1] == "after the restart")
        await again.app.stop()
    assert received == [*said, "after the reconnect", "after the restart"]
    assert set(numbered) == {0}, "a published controller is sent published frames"
