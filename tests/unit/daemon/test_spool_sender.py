"""Sending a spool: what goes out is on disk as sent, and nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sqlite3

import pytest

from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_sender import WINDOW_RECORDS, SpoolSender
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, HandshakeAck

REPORT = DaemonMessage(error_report=ErrorReport(error_message="something")).SerializeToString()


class ListeningController:
    """The far end of a connection: it looks at the node's disk with each record that it gets."""

    address = "listening"

    def __init__(self, directory: pathlib.Path, *, confirmed: int = 0) -> None:
        self.ack = HandshakeAck(spool_confirmed=confirmed)
        self.heard: list[int] = []
        self.too_early: list[int] = []
        self._disk = sqlite3.connect(directory / "spool.db", isolation_level=None)

    def send(self, message: DaemonMessage) -> bool:
        (marked,) = self._disk.execute("select through from sent").fetchone()
        if marked < message.spool_sequence:
            self.too_early.append(message.spool_sequence)
        self.heard.append(message.spool_sequence)
        return True

    def close(self) -> None:
        self._disk.close()


@pytest.fixture
async def spool(tmp_path):
    opened = Spool.open(tmp_path, entropy=SystemEntropy(), log_bytes=10**6, max_bytes=10**6)
    yield opened
    await opened.close()


@contextlib.asynccontextmanager
async def connected(spool: Spool, directory: pathlib.Path, *, confirmed: int = 0):
    controller = ListeningController(directory, confirmed=confirmed)
    sender = SpoolSender(spool=spool, connection=controller)
    running = asyncio.create_task(sender.run())
    try:
        yield controller, sender
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        controller.close()


async def test_whatever_goes_out_counts_as_sent_on_disk_before(spool, tmp_path):
    for _ in range(300):
        spool.log(REPORT)
    await spool.put(REPORT)
    async with connected(spool, tmp_path) as (controller, sender):
        for _ in range(100):
            spool.log(REPORT)
            await spool.put(REPORT)
            sender.confirmed(len(controller.heard))
        await eventually(lambda: len(controller.heard) == 501)
        assert controller.heard == list(range(1, 502))
        assert controller.too_early == []


async def test_once_the_connection_is_over_additions_do_not_count_as_sent(spool, tmp_path):
    async with connected(spool, tmp_path) as (controller, _):
        await spool.put(REPORT)
        await eventually(lambda: controller.heard == [1])
        await spool.put(REPORT)
        await eventually(lambda: controller.heard == [1, 2])
    await spool.put(REPORT)
    assert spool.sent == 2
    async with connected(spool, tmp_path, confirmed=1) as (controller, _):
        await eventually(lambda: controller.heard == [2, 3])
        assert controller.too_early == []


async def test_what_the_window_does_not_let_out_does_not_count_as_sent(spool, tmp_path):
    async with connected(spool, tmp_path) as (controller, sender):
        for _ in range(WINDOW_RECORDS):
            spool.log(REPORT)
        await eventually(lambda: len(controller.heard) == WINDOW_RECORDS)
        await eventually(lambda: not spool._table.streaming)
        await spool.put(REPORT)
        assert spool.sent == WINDOW_RECORDS
        sender.confirmed(1)
        await eventually(lambda: len(controller.heard) == WINDOW_RECORDS + 1)
        assert controller.too_early == []


async def test_a_full_spool_takes_more_as_soon_as_the_controller_confirms(tmp_path):
    spool = Spool.open(tmp_path, entropy=SystemEntropy(), log_bytes=10**6, max_bytes=10 * len(REPORT))
    async with connected(spool, tmp_path) as (controller, sender):
        for already in range(0, 50, 10):
            for _ in range(10):
                await spool.put(REPORT)
            await eventually(lambda heard=already + 10: len(controller.heard) == heard)
            sender.confirmed(already + 10)
    await spool.close()
