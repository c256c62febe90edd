"""Who counts as silent: somebody who lets intervals pass without any pong, however often he was asked."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from corral.controller.sessions.heartbeat import Heartbeat
from corral.controller.sessions.live_nodes import HostIdentity, SessionFacts
from corral.domain.ids import Epoch, NodeId, SessionId
from corral.errors import Code, Retryable
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually
from corral.wire.features import PeerSupport


def heartbeat(sent: list[int], *, seconds: float) -> Heartbeat:
    facts = SessionFacts(
        id=SessionId("s"),
        node_id=NodeId("n1"),
        serial="1",
        certificate_expires_at=dt.datetime.max.replace(tzinfo=dt.UTC),
        host=HostIdentity(machine_id="", boot_id="", run_id=""),
        spool_id="",
        epoch=Epoch(1),
        supports=PeerSupport(),
    )

    def send(message) -> bool:
        sent.append(message.ping.sequence)
        return True

    return Heartbeat(
        facts, send=send, seconds=seconds, missed_pongs=3, clock=SystemClock(), on_round_trip=lambda _: None
    )


@pytest.mark.trap("T94")
async def test_probes_whose_answer_is_on_its_way_are_no_missed_heartbeats():
    sent: list[int] = []
    beat = heartbeat(sent, seconds=600)
    for _ in range(5):
        assert not await beat.answers(within=0.001, over=asyncio.Event())
    assert sent == [1, 2, 3, 4, 5]
    running = asyncio.create_task(beat.run())
    await eventually(lambda: running.done() or len(sent) == 6)
    assert not running.done(), running.exception()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_copies_that_dial_at_once_share_one_probe():
    sent: list[int] = []
    beat = heartbeat(sent, seconds=600)
    probes = [asyncio.create_task(beat.answers(within=20, over=asyncio.Event())) for _ in range(6)]
    await eventually(lambda: beat._probes == 6)
    assert sent == [1]
    beat.pong(1)
    assert await asyncio.gather(*probes) == [True] * 6


async def test_three_intervals_without_a_pong_are_the_end_and_any_pong_begins_them_anew():
    sent: list[int] = []
    beat = heartbeat(sent, seconds=0.02)
    running = asyncio.create_task(beat.run())
    await eventually(lambda: len(sent) >= 1)
    beat.pong(1)
    with pytest.raises(Retryable) as silent:
        await running
    assert silent.value.code is Code.UNREACHABLE
    assert len(sent) >= 4, "the one that was answered and three that were not"
