"""Reports while the spool takes nothing: over the live link at once, into the spool later, never out of order."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from corral.daemon.link.spool import Spool
from corral.daemon.runs.reporter import Reporter
from corral.errors import CorralError
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage

STARTING, RUNNING, CRASHED = (
    wire.INSTANCE_STATE_STARTING,
    wire.INSTANCE_STATE_RUNNING,
    wire.INSTANCE_STATE_CRASHED,
)


def status(id: str, state: wire.InstanceState) -> DaemonMessage:
    return DaemonMessage(instance_status=wire.InstanceStatusUpdate(instance_id=id, state=state))


def crash(id: str) -> DaemonMessage:
    return DaemonMessage(crash_report=wire.CrashReport(instance_id=id, group="g"))


@pytest.fixture
async def full_spool(tmp_path):
    spool = Spool.open(tmp_path, entropy=SystemEntropy(), log_bytes=1000, max_bytes=1000)
    with contextlib.suppress(CorralError):
        while True:
            await spool.put(b"x" * 10)
    yield spool
    await spool.close()


@contextlib.asynccontextmanager
async def running(reporter: Reporter):
    task = asyncio.create_task(reporter.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.trap("T72")
async def test_what_the_spool_does_not_take_is_told_live_once_and_kept_later_without_what_is_past(full_spool):
    told: list[DaemonMessage] = []
    stored: list[int] = []

    def live(message: DaemonMessage) -> bool:
        told.append(message)
        return True

    reporter = Reporter(full_spool, live=live)
    messages = [status("a", STARTING), status("b", RUNNING), status("a", RUNNING), crash("a")]
    end = status("a", CRASHED)
    async with running(reporter):
        for message in messages:
            reporter.report(message)
        await eventually(lambda: len(told) == 4)
        reporter.report(end, spooled=stored.append)
        assert told == [*messages, end], "at once, in order, each once"
        before = full_spool.head
        full_spool.confirm(before)
        await reporter.settled()
    kept = [DaemonMessage.FromString(record.body) for record in await full_spool.take(before, limit=100)]
    assert kept == [status("b", RUNNING), crash("a"), end]
    assert stored == [full_spool.head]
    assert len(told) == 5


@pytest.mark.trap("T72")
async def test_without_a_link_nothing_of_what_waits_is_left_out(full_spool):
    reporter = Reporter(full_spool, live=lambda _: False)
    messages = [status("a", STARTING), status("a", RUNNING), crash("a"), status("a", CRASHED)]
    async with running(reporter):
        for message in messages:
            reporter.report(message)
        before = full_spool.head
        full_spool.confirm(before)
        await reporter.settled()
    kept = [DaemonMessage.FromString(record.body) for record in await full_spool.take(before, limit=100)]
    assert kept == messages
