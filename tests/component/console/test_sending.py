"""Consoles arrive whole and in order, whatever the link does, and never take more than their share of it."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random

import pytest

from corral.daemon.console.feed import BEGIN_BEFORE_END, CEILING_BYTES, FLOOR_BYTES, ConsoleKey
from corral.runtimes.keeper.console_pump import Pump
from corral.testing.waiting import eventually
from corral.wire.features import BATCH, FEATURES


class Written:
    """A console that is written while it is sent."""

    def __init__(
        self, directory: pathlib.Path, *, segment_bytes: int = 100_000, quota_bytes: int = 0
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.source, self.sink = os.pipe()
        self.pump = Pump(str(directory), self.source, segment_bytes=segment_bytes, quota_bytes=quota_bytes)
        self.data = b""

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), 32768):
            os.write(self.sink, data[start : start + 32768])
            self.pump.drain()
        self.data += data

    def close(self) -> None:
        self.pump.close()
        os.close(self.source)
        os.close(self.sink)


@pytest.fixture
def written(scratch, node):
    made = []

    def make(name: str, *, attach: bool = True, **sizes: int) -> Written:
        console = Written(scratch / "runs" / name / "console", **sizes)
        made.append(console)
        if attach:
            node.consoles.attach(name, 1, str(console.directory))
        return console

    yield make
    for console in made:
        console.close()


def has(peer, name: str, data: bytes) -> bool:
    assert peer.complaints == []
    return bytes(peer.data.get(ConsoleKey(name, 1), b"")) == data


async def connected(node) -> None:
    await eventually(lambda: node.connection is not None)


async def arrived(peer, name: str, console: Written) -> None:
    key = ConsoleKey(name, 1)
    await eventually(
        lambda: has(peer, name, console.data),
        state=lambda: (
            f"{len(peer.data.get(key, b''))} of {len(console.data)} bytes, from offset {peer.first.get(key)} on, "
            f"complaints: {peer.complaints}"
        ),
    )


async def arrived_from_a_line_before_its_end(peer, name: str, console: Written) -> None:
    """For one that was not written any more when the session began."""
    key = ConsoleKey(name, 1)
    await eventually(lambda: key in peer.data and peer.end(key) == len(console.data))
    assert peer.complaints == []
    first = peer.first[key]
    assert len(console.data) - BEGIN_BEFORE_END <= first <= len(console.data) - BEGIN_BEFORE_END + 20
    assert console.data[first - 1 : first] == b"\n"
    assert peer.data[key] == console.data[first:]


async def test_what_a_console_gets_arrives_in_order_with_its_times(node, peer, written):
    await connected(node)
    console = written("lobby-1")
    for number in range(200):
        console.write(b"line %d\n" % number)
        await asyncio.sleep(0)
    await arrived(peer, "lobby-1", console)
    assert peer.times == sorted(peer.times)
    console.write(b"a prompt without an end: ")
    await arrived(peer, "lobby-1", console)
    console.write(b"and its end\n")
    await arrived(peer, "lobby-1", console)


async def test_a_console_that_was_long_quiet_is_noticed_by_the_kernels_word(node, peer, written):
    """Two looks find nothing, then only the watch or the floor tells; both do."""
    await connected(node)
    console = written("lobby-1")
    for number in range(5):
        console.write(b"line %d\n" % number)
        await arrived(peer, "lobby-1", console)
        await eventually(lambda: node.consoles._sender is None or not node.consoles._sender._growing)


async def test_a_console_that_is_written_while_no_controller_is_there_arrives_later(
    node, peer, proxy, written
):
    await connected(node)
    console = written("lobby-1")
    console.write(b"before\n")
    await arrived(peer, "lobby-1", console)
    await proxy.cut(refuse=True)
    await eventually(lambda: node.connection is None)
    console.write(os.urandom(1_000_000))
    proxy.heal()
    await arrived(peer, "lobby-1", console)


async def test_cut_connections_lose_and_double_nothing(node, peer, proxy, written):
    await connected(node)
    chance = random.Random(5)
    consoles = {f"lobby-{n}": written(f"lobby-{n}") for n in range(5)}
    for name, console in consoles.items():
        console.write(b"known from its first byte on\n")
        await arrived(peer, name, console)
    for _ in range(15):
        for console in consoles.values():
            console.write(b"".join(b"%d\n" % chance.getrandbits(60) for _ in range(chance.randrange(5000))))
        await asyncio.sleep(chance.random() * 0.05)
        await proxy.cut(refuse=False)
    for name, console in consoles.items():
        await arrived(peer, name, console)
    assert node.connections > 5


async def test_nothing_is_sent_beyond_the_credit_until_it_is_acknowledged(node, peer, written):
    peer.acknowledging.clear()
    await connected(node)
    consoles = {f"lobby-{n}": written(f"lobby-{n}") for n in range(4)}
    for console in consoles.values():
        console.write(b"0123456789abcde\n" * 40_000)
    await eventually(lambda: node.consoles._sender._starved)
    await eventually(lambda: sum(map(len, peer.data.values())) > FLOOR_BYTES * 0.7)
    assert peer.most_unacknowledged <= FLOOR_BYTES
    sizes = [len(data) for data in peer.data.values()]
    assert len(sizes) == 4
    assert min(sizes) >= FLOOR_BYTES / 4 * 0.5, "one console took the credit of the others"
    peer.acknowledging.set()
    for name, console in consoles.items():
        await arrived(peer, name, console)
    assert peer.most_unacknowledged <= CEILING_BYTES
    assert peer.largest_frame <= 132 * 1024


@pytest.mark.system
async def test_a_flood_does_not_starve_a_quiet_console(node, peer, written):
    await connected(node)
    flood, quiet = written("flood"), written("quiet")
    peer.acknowledging.clear()
    flood.write(b"x" * 79 + b"\n")
    flood.write((b"x" * 79 + b"\n") * 50_000)
    await eventually(lambda: node.consoles._sender._starved)
    quiet.write(b"hear me\n")
    peer.acknowledging.set()
    await arrived(peer, "quiet", quiet)
    await arrived(peer, "flood", flood)


async def test_a_peer_that_acknowledges_slowly_delays_lines_but_loses_none(node, peer, proxy, written):
    await connected(node)
    console = written("lobby-1")
    proxy.delay(0.02)
    console.write(b"slowly\n" * 300_000)
    await arrived(peer, "lobby-1", console)


async def test_a_console_unknown_to_the_controller_begins_at_a_line_before_its_end(node, peer, written):
    await connected(node)
    console = written("lobby-1", attach=False)
    console.write(b"".join(b"line %d\n" % number for number in range(100_000)))
    node.consoles.attach("lobby-1", 1, str(console.directory))
    await arrived_from_a_line_before_its_end(peer, "lobby-1", console)


async def test_a_console_of_which_a_cut_left_nothing_begins_at_a_line_before_its_end(
    node, peer, proxy, written
):
    """It was sent from its first byte on, but the controller does not know it: none of that arrived."""
    await connected(node)
    proxy.stall()
    console = written("lobby-1")
    console.write(b"".join(b"line %d\n" % number for number in range(100_000)))
    await eventually(lambda: node.consoles._feeds[ConsoleKey("lobby-1", 1)].sent > 0)
    await proxy.cut(refuse=True)
    await eventually(lambda: node.connection is None)
    assert not peer.data
    proxy.heal()
    await arrived_from_a_line_before_its_end(peer, "lobby-1", console)


async def test_what_was_given_up_before_it_was_sent_is_told_as_a_gap(node, peer, proxy, written):
    await connected(node)
    console = written("lobby-1", segment_bytes=8192, quota_bytes=32768)
    console.write(b"before\n")
    await arrived(peer, "lobby-1", console)
    await proxy.cut(refuse=True)
    await eventually(lambda: node.connection is None)
    console.write(b"lost\n" * 10_000 + b"kept\n")
    proxy.heal()
    key = ConsoleKey("lobby-1", 1)
    await eventually(lambda: peer.data[key].endswith(b"kept\n"))
    assert peer.complaints == []
    assert len(peer.data[key]) == len(console.data)
    assert [reason for *_, reason in peer.gaps] == ["retention"]


async def test_an_ended_console_is_sent_to_its_end_and_then_left_alone(node, peer, proxy, written):
    await connected(node)
    console = written("lobby-1")
    console.write(b"last words")
    node.consoles.ended("lobby-1", 1)
    await arrived(peer, "lobby-1", console)
    feed = node.consoles._feeds[ConsoleKey("lobby-1", 1)]
    await eventually(lambda: feed.settled)
    connections = node.connections
    peer.data.clear()
    await proxy.cut(refuse=False)
    await eventually(lambda: node.connections > connections and node.connection is not None)
    other = written("lobby-2")
    other.write(b"alive\n")
    await arrived(peer, "lobby-2", other)
    assert ConsoleKey("lobby-1", 1) not in peer.data


async def test_a_detached_console_gives_back_its_credit(node, peer, written, scratch):
    await connected(node)
    peer.acknowledging.clear()
    console = written("lobby-1")
    console.write(b"x" * 2_000_000)
    sender = node.consoles._sender
    await eventually(lambda: sender._starved)
    node.consoles.detach("lobby-1", 1)
    assert sender.credit.under_way == 0
    peer.acknowledging.set()
    other = written("lobby-2")
    other.write(b"here\n")
    await arrived(peer, "lobby-2", other)


async def test_all_credit_comes_back_and_of_many_consoles_by_few_messages(node, peer, written):
    await connected(node)
    consoles = {f"c-{n}": written(f"c-{n}") for n in range(50)}
    sender = node.consoles._sender
    peer.acknowledging.clear()
    for console in consoles.values():
        console.write(b"0123456789abcde\n" * 20)
    await eventually(lambda: sum(map(len, peer.data.values())) == 50 * 320)
    assert sender.credit.under_way >= 50 * 320
    before = peer.ack_frames
    peer.acknowledging.set()
    await eventually(lambda: sender.credit.under_way == 0, state=lambda: sender.credit.under_way)
    assert peer.ack_frames - before == 1
    for name, console in consoles.items():
        feed = node.consoles._feeds[ConsoleKey(name, 1)]
        assert feed.acknowledged == feed.sent == len(console.data)
        assert feed.forget_under_way() == []


async def test_without_the_feature_each_line_is_a_message(node, peer, proxy, written):
    peer.features = [BATCH]
    await connected(node)
    console = written("lobby-1", segment_bytes=5000)
    lines = [f"line {number} é" for number in range(3000)] + ["", "", "x" * 5000]
    console.write("".join(f"{line}\n" for line in lines).encode())
    await eventually(lambda: len(peer.lines) == len(lines), state=lambda: len(peer.lines))
    assert [output.line for output in peer.lines] == lines
    assert all(output.timestamp_ms for output in peer.lines)
    console.write(b"\n" * 30_000)
    await eventually(lambda: len(peer.lines) == len(lines) + 30_000, state=lambda: len(peer.lines))
    connections = node.connections
    assert connections == 1, "so many lines are no reason to lose the stream"
    await proxy.cut(refuse=False)
    await eventually(lambda: node.connections > connections and node.connection is not None)
    console.write(b"no end")
    await eventually(lambda: peer.lines[-1].line == "no end")
    assert len(peer.lines) == len(lines) + 30_001


async def test_hundred_consoles_at_once_arrive_whole(node, peer, written):
    await connected(node)
    peer.watched = True
    consoles = {f"c-{n}": written(f"c-{n}") for n in range(100)}
    for round_ in range(10):
        for name, console in consoles.items():
            console.write(b"".join(b"%s %d %d\n" % (name.encode(), round_, n) for n in range(100)))
        await asyncio.sleep(0)
    for name, console in consoles.items():
        await arrived(peer, name, console)
    assert set(FEATURES) == set(peer.features)


async def test_a_console_that_cannot_be_read_when_a_session_begins_goes_on_where_the_controller_is(
    node, peer, proxy, written
):
    """What the last session had sent beyond that never arrived."""
    await connected(node)
    console = written("lobby-1")
    console.write(b"first\n" * 100)
    await arrived(peer, "lobby-1", console)
    del peer.data[ConsoleKey("lobby-1", 1)][300:]
    aside = console.directory.with_name("aside")
    console.directory.rename(aside)
    console.directory.symlink_to(console.directory.name)
    sessions = node.connections
    await proxy.cut(refuse=False)
    await eventually(lambda: node.connections > sessions and node.connection is not None)
    console.directory.unlink()
    aside.rename(console.directory)
    console.write(b"second\n" * 100)
    await arrived(peer, "lobby-1", console)
