"""Followers of a console over several runs and over nodes that are away: every run is told, late is not lost."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from http_rig import Rig
from sse_client import Frame, SseClient, following
from stand_in_node import StandInNode
from test_console_streams import heard, lines_of, named, socket_to, talking

from corral.domain.groups.instance_records import EarlierStart, InstanceRecord
from corral.domain.ids import Incarnation, NodeId
from corral.domain.instance_states import InstanceState
from corral.testing.waiting import eventually

NODE = NodeId("node-1")


async def after_crashes(rig: Rig, runs: int = 4) -> tuple[InstanceRecord, StandInNode, str]:
    """An instance that its node has restarted so often while no controller was there; only the last run is held."""
    record, node, path = await talking(rig)
    for later in range(runs):
        node.write(record.id, record.incarnation + later, b"run %d\nends\n" % later)
    await rig.report(record.id, incarnation=Incarnation(record.incarnation + runs))
    node.say(record.id, record.incarnation + runs, b"run %d\n" % runs)
    return record, node, path


def away(rig: Rig) -> StandInNode:
    return rig.sessions.links.pop(NODE)


def gaps_of(frame: Frame) -> list[dict[str, Any]]:
    assert frame.data is not None
    return frame.data["gaps"]


async def told_until(reader: SseClient, last: str) -> list[tuple[str, Any]]:
    """Names of frames with the lines, run or gaps they tell, up to a line."""
    found: list[tuple[str, Any]] = []
    while True:
        frame = await reader.event()
        assert frame.data is not None
        data = frame.data
        what = data["incarnation"] if frame.event == "run" else [i["line"] for i in data["items"]]
        found.append((frame.event, [g["reason"] for g in data["gaps"]] if frame.event == "gap" else what))
        if frame.event == "page" and last in what:
            return found


@pytest.mark.trap("T74")
async def test_a_follower_that_comes_back_goes_through_every_run(client: httpx.AsyncClient, rig: Rig) -> None:
    record, _, path = await after_crashes(rig)
    first = record.incarnation
    async with following(client, path, headers={"Last-Event-ID": f"{first}-6"}) as reader:
        told = await told_until(reader, "run 4")
    expected: list[tuple[str, Any]] = [("page", ["ends"])]
    for later in range(1, 4):
        expected += [("run", first + later), ("page", [f"run {later}", "ends"])]
    assert told == [*expected, ("run", first + 4), ("page", ["run 4"])]


@pytest.mark.trap("T74")
async def test_runs_that_the_node_does_not_keep_are_a_gap(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await after_crashes(rig)
    first = record.incarnation
    del node.kept[record.id, first + 1], node.kept[record.id, first + 2]
    async with following(client, path, headers={"Last-Event-ID": f"{first}-11"}) as reader:
        told = await told_until(reader, "run 4")
    gap = f"runs {first + 1} to {first + 2}: not kept any more, or never begun"
    assert told[:3] == [("gap", [gap]), ("run", first + 3), ("page", ["run 3", "ends"])]


@pytest.mark.trap("T74")
async def test_a_daemon_that_cannot_list_its_runs_is_a_gap_with_a_reason(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await after_crashes(rig)
    node.lacks("run_lists")
    async with following(client, path, headers={"Last-Event-ID": f"{record.incarnation}-11"}) as reader:
        told = await told_until(reader, "run 4")
    ((name, (reason,)), *_) = told
    assert name == "gap"
    assert reason.startswith(f"runs {record.incarnation + 1} to {record.incarnation + 3}: the daemon of node")


@pytest.mark.trap("T74")
async def test_a_node_that_is_back_soon_delays_a_follower_and_costs_it_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    rig.consoles.patience_seconds = 60.0
    record, node, path = await after_crashes(rig)
    node.refuse_queries = "NODE_OFFLINE"
    async with following(client, path, headers={"Last-Event-ID": f"{record.incarnation}-6"}) as reader:
        await eventually(lambda: len(node.queries) > 1)
        node.refuse_queries = ""
        told = await told_until(reader, "run 4")
    assert [name for name, _ in told] == ["page", "run"] * 4 + ["page"]


@pytest.mark.system
@pytest.mark.trap("T74")
@pytest.mark.parametrize("blocks", [False, True])
async def test_what_lies_on_a_node_that_stays_away_is_late_and_is_told_when_it_is_back(
    client: httpx.AsyncClient, rig: Rig, blocks: bool
) -> None:
    record, _, path = await after_crashes(rig)
    first = record.incarnation
    node = away(rig)
    params = {"format": "blocks"} if blocks else {}
    headers = {"Last-Event-ID": f"{first}-6"}
    async with following(client, path, params=params, headers=headers) as reader:
        rest, runs = await named(reader, "gap"), await named(reader, "gap")
        assert [gap["late"] for gap in gaps_of(rest) + gaps_of(runs)] == [True, True]
        assert "node-1" in gaps_of(rest)[0]["reason"]
        assert gaps_of(runs)[0]["reason"].startswith(f"runs {first + 1} to {first + 3}: ")
        present = await reader.event()
        assert (present.event, present.id) == ("run", f"{first + 4}-0")
        held = await reader.event()
        assert held.event == ("text" if blocks else "page")
        rig.sessions.links[NODE] = node
        late: list[tuple[int, str]] = []
        while len(late) < 7:
            frame = await named(reader, "late")
            assert frame.data is not None
            assert frame.id == f"{first + 4}-6", "who breaks off now goes on at its own place"
            late += [(frame.data["incarnation"], item["line"]) for item in frame.data["items"]]
        expected = [(first + later, line) for later in range(4) for line in (f"run {later}", "ends")]
        assert late == expected[1:]
        node.say(record.id, first + 4, b"goes on\n")
        following_frame = await reader.event()
        assert following_frame.id == f"{first + 4}-14"


@pytest.mark.trap("T74")
async def test_the_older_part_of_a_run_is_late_while_its_node_is_away(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = b"".join(b"%06d\n" % number for number in range(100_000))
    record, _, path = await talking(rig, text)
    ring = rig.consoles.ring((record.id, record.incarnation))
    assert ring is not None
    begin = ring.begin
    node = away(rig)
    async with following(client, path, params={"after": 0}) as reader:
        (gap,) = gaps_of(await named(reader, "gap"))
        assert (gap["from_offset"], gap["to_offset"], gap["late"]) == (0, begin, True)
        newest = await lines_of(reader, 100_000 - begin // 7)
        assert newest[-1] == "099999"
        rig.sessions.links[NODE] = node
        older: list[str] = []
        while sum(len(line) + 1 for line in older) < begin:
            frame = await named(reader, "late")
            assert frame.data is not None
            older += [item["line"] for item in frame.data["items"]]
        assert "".join(older)[:12] == "000000000001"
        assert older[100] == "000100"


@pytest.mark.trap("T74")
async def test_a_socket_tells_runs_gaps_and_what_is_late_as_a_stream_does(rig: Rig) -> None:
    record, _, path = await after_crashes(rig)
    node = away(rig)
    first = record.incarnation
    async with socket_to(rig, f"{path}?after=0&incarnation={first}") as ws:
        gap = await heard(ws)
        assert gap["gaps"][0]["late"] is True
        assert "end" in await heard(ws), "one run was asked for"
        rig.sessions.links[NODE] = node
        late = (await heard(ws))["late"]
        assert [item["line"] for item in late["items"]] == ["run 0", "ends"]
    async with socket_to(rig, f"{path}?resume={first}-6") as ws:
        assert [item["line"] for item in (await heard(ws))["items"]] == ["ends"]
        assert (await heard(ws))["run"]["incarnation"] == first + 1


@pytest.mark.trap("T74")
async def test_runs_of_an_instance_that_moved_are_read_where_they_lie(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig)
    first = record.incarnation
    node.write(record.id, first, b"there\n")
    node.write(record.id, first + 1, b"there again\n")
    other = await rig.online("node-2")
    again = Incarnation(first + 1024)
    start = EarlierStart(node=NODE, incarnation=Incarnation(first + 1), console_end=12)
    await rig.report(record.id, node=NodeId("node-2"), incarnation=again, earlier=(start,))
    other.say(record.id, again, b"here\n")
    async with following(client, path, headers={"Last-Event-ID": f"{first}-0"}) as reader:
        told = await told_until(reader, "here")
    assert told == [
        ("page", ["there"]),
        ("run", first + 1),
        ("page", ["there again"]),
        ("run", again),
        ("page", ["here"]),
    ]
    page = (await client.get(path.removesuffix("/stream"), params={"incarnation": first + 1})).json()
    assert [item["line"] for item in page["items"]] == ["there again"]


async def test_followers_that_wait_for_a_node_end_with_their_instance(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, _, path = await after_crashes(rig)
    away(rig)
    async with following(client, path, headers={"Last-Event-ID": f"{record.incarnation}-6"}) as reader:
        await rig.report(record.id, state=InstanceState.STOPPED)
        await client.delete(f"/api/v1/instances/{record.id}")
        assert await reader.end() == "the stream has ended"
