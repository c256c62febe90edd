"""The periodic check: growth is found without a notification, sooner where none can come."""

from __future__ import annotations

import pytest

from corral.daemon.console.feed import ConsoleKey, ConsoleSource
from corral.daemon.console.growth_watch import GrowthWatch
from corral.daemon.console.sender import NOTIFIED_SECONDS, BatchSender
from corral.system.clock import SystemClock


class HandClock(SystemClock):
    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


class NoConnection:
    def send(self, message: object) -> None: ...


@pytest.fixture
async def watch():
    with GrowthWatch[ConsoleSource](lambda feed: None) as made:
        yield made


@pytest.fixture
async def quiet(consoles, watch, scratch):
    """A console with nothing new, its sender, and the clock; its watch is at a directory where nothing happens."""
    console, clock = consoles(), HandClock()
    console.write(b"before\n")
    feed = ConsoleSource(ConsoleKey("lobby-1", 1), str(console.directory))
    feed.begin(None)
    feed.sent = feed.acknowledged = console.log.end_offset
    sender = BatchSender(NoConnection(), watch, clock)
    feed.note_quiet()
    feed.looked_at = clock.time
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    watch.arm(feed, str(elsewhere))
    yield console, feed, sender, clock
    sender.close()
    feed.release()


async def test_a_console_that_is_notified_is_looked_at_now_and_then(quiet):
    console, feed, sender, clock = quiet
    console.write(b"without a notification\n")
    clock.time += 1
    sender.look_at_all([feed])
    assert feed not in sender._growing
    clock.time += NOTIFIED_SECONDS
    sender.look_at_all([feed])
    assert feed in sender._growing


async def test_a_console_without_a_watch_is_looked_at_each_time(quiet, watch):
    console, feed, sender, clock = quiet
    watch.disarm(feed)
    console.write(b"without a notification\n")
    clock.time += 1
    sender.look_at_all([feed])
    assert feed in sender._growing


async def test_a_console_that_could_not_be_read_is_tried_again_each_time(quiet):
    _, feed, sender, clock = quiet
    feed.note_unreadable()
    clock.time += 1
    sender.look_at_all([feed])
    assert feed in sender._growing
