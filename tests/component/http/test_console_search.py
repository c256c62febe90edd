"""Searches of consoles over the API: backwards, with ranges, over all runs, and with any pattern."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
from http_rig import Rig, http_rig
from stand_in_node import StandInNode
from test_consoles import talking

from corral.controller.consoles.searches import SearchPlace, matches_of
from corral.controller.consoles.span import ConsoleSpan, Piece
from corral.domain.groups.instance_records import EarlierStart
from corral.domain.ids import RESTARTS_PER_START, Incarnation, NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.patterns import BytesPattern, compile_bytes
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually


async def found(client: httpx.AsyncClient, path: str, **params: object) -> list[dict[str, object]]:
    """All lines, over as many requests as the cursor leads to."""
    items: list[dict[str, object]] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        answer = await client.get(f"{path}/search", params={**params, **cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = {"cursor": page["next"]}
    raise AssertionError("the search has no end")


async def test_matches_have_ranges_in_characters(client: httpx.AsyncClient, rig: Rig) -> None:
    text = "plain\n🎲 Ada joined, Ada left €5\r\n".encode() + b"\xff Ada\xe2\x82 Ada\n"
    _, _, path = await talking(rig, text)
    items = await found(client, path, pattern="Ada")
    assert [(item["line"], item["match"]) for item in items] == [
        ("🎲 Ada joined, Ada left €5", [[2, 5], [14, 17]]),
        ("\ufffd Ada\ufffd Ada", [[2, 5], [7, 10]]),
    ]
    assert all(str(item["line"])[slice(*at)] == "Ada" for item in items for at in item["match"])  # type: ignore[misc,attr-defined]
    item, *_ = await found(client, path, pattern="^pl|n*$")
    assert item["match"] == [[0, 2], [4, 5]], "none of them is empty"


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", ["y*", "(z|y|)", "\\b"])
def test_matches_of_nothing_are_looked_at_a_bounded_number_of_times(pattern: str) -> None:
    looked_at = 0

    class Counted:
        """The pattern, whose matches are counted as they are asked for."""

        def finditer(self, text: bytes) -> Iterator[Any]:
            nonlocal looked_at
            for match in compile_bytes(pattern).finditer(text):
                looked_at += 1
                yield match

    line = b"x " * 8000 + b"\n"
    pieces = tuple(Piece(len(line) * number, line) for number in range(64))
    end = 64 * len(line)
    span = ConsoleSpan(pieces=pieces, times=(), gaps=(), first_offset=0, end_offset=end, next_offset=end)
    place = SearchPlace(backwards=False, every_run=False, incarnation=Incarnation(1), offset=0)
    items = matches_of(span, place, cast(BytesPattern, Counted()))
    assert (len(items), [item.match for item in items if item.match]) == (64, [])
    assert looked_at <= 64 * 500


async def test_a_search_goes_backwards_from_an_offset_or_the_end(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"".join(b"%05d\n" % number for number in range(2000)))
    forwards = [item["line"] for item in await found(client, path, pattern="00$", limit=3)]
    assert forwards == [f"{number:05d}" for number in range(0, 2000, 100)]
    backwards = [item["line"] for item in await found(client, path, pattern="00$", limit=3, newest="true")]
    assert backwards == forwards[::-1]
    before = [item["line"] for item in await found(client, path, pattern="00$", limit=3, before=6 * 500)]
    assert before == forwards[:5][::-1]
    assert await found(client, path, pattern="00$", before=0) == []


async def several_runs(rig: Rig) -> tuple[StandInNode, list[int], str]:
    record, node, path = await talking(rig, b"hit one\nmiss\n")
    runs = [record.incarnation, record.incarnation + 1, record.incarnation + 2]
    for number, run in enumerate(runs[1:]):
        await rig.report(record.id, incarnation=run)
        node.say(record.id, run, b"miss\nhit %d\nhit again\n" % number)
    return node, runs, path


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_all_runs_are_searched_one_after_the_other_in_both_directions(
    client: httpx.AsyncClient, rig: Rig, limit: int
) -> None:
    _, runs, path = await several_runs(rig)
    items = await found(client, path, pattern="^hit", runs="all", limit=limit)
    told = [(item["incarnation"], item["line"]) for item in items]
    assert told == [
        (runs[0], "hit one"),
        (runs[1], "hit 0"),
        (runs[1], "hit again"),
        (runs[2], "hit 1"),
        (runs[2], "hit again"),
    ]
    back = await found(client, path, pattern="^hit", runs="all", limit=limit, newest="true")
    assert [(item["incarnation"], item["line"]) for item in back] == told[::-1]


async def test_a_run_that_cannot_be_searched_is_noted_and_left_out(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    node, runs, path = await several_runs(rig)
    del node.kept["lobby-1", runs[1]]
    page = (
        await client.get(f"{path}/search", params={"pattern": "^hit", "runs": "all", "newest": "true"})
    ).json()
    assert {item["incarnation"] for item in page["items"]} == {runs[0], runs[2]}
    del rig.sessions.links[NodeId("node-1")]
    page = (await client.get(f"{path}/search", params={"pattern": "^hit", "runs": "all"})).json()
    assert (page["items"], page["next"]) == ([], None)
    assert any("node-1" in note for note in page["notes"])
    alone = await client.get(f"{path}/search", params={"pattern": "^hit"})
    assert alone.json()["error"]["code"] == "NODE_OFFLINE"


@pytest.mark.parametrize("newest", ["false", "true"])
async def test_runs_of_a_node_that_is_away_are_noted_in_both_directions(
    client: httpx.AsyncClient, rig: Rig, newest: str
) -> None:
    record, node, path = await talking(rig)
    node.write(
        record.id, record.incarnation, b"hit of the first node\n"
    )  # the controller holds nothing of it
    await rig.online("node-2")
    earlier = EarlierStart(node=node.id, incarnation=record.incarnation, plan_hash="")
    again = Incarnation(record.incarnation + RESTARTS_PER_START)
    await rig.report(record.id, node=NodeId("node-2"), incarnation=again, earlier=(earlier,))
    rig.sessions.links[NodeId("node-2")].say(record.id, again, b"hit of the second node\n")
    asked = {"pattern": "hit", "runs": "all", "newest": newest}
    both = (await client.get(f"{path}/search", params=asked)).json()
    assert (len(both["items"]), both["notes"]) == (2, [])
    del rig.sessions.links[node.id]
    page = (await client.get(f"{path}/search", params=asked)).json()
    assert [item["line"] for item in page["items"]] == ["hit of the second node"]
    assert any(("node-1" in note and "missing" in note) or "not searched" in note for note in page["notes"])


async def test_one_caller_has_two_searches_at_once_and_leaves_places_for_others(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, node, path = await talking(rig, b"one\n")
    _, operator = await rig.token(Role.OPERATOR)
    node.silent = True
    async with rig.client(operator) as other, asyncio.TaskGroup() as asking:
        waiting = [asking.create_task(client.get(f"{path}/search?pattern=one")) for _ in range(2)]
        await eventually(lambda: len(node.held) == 2)
        refused = await client.get(f"{path}/search?pattern=one")
        assert refused.json()["error"]["code"] == "RATE_LIMITED"
        assert "2 searches of consoles" in refused.json()["error"]["message"]
        node.silent = False
        assert (await other.get(f"{path}/search?pattern=one")).json()["items"]
        node.answer_held()
        for each in waiting:
            assert (await each).json()["items"]
        assert (await client.get(f"{path}/search?pattern=one")).json()["items"], "its places are free again"


async def test_a_search_counts_as_several_requests(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=6)) as rig:
        _, _, path = await talking(rig, b"one\n")
        _, operator = await rig.token(Role.OPERATOR)
        async with rig.client(operator) as client:
            assert (await client.get(f"{path}/search?pattern=one")).is_success
            refused = await client.get(f"{path}/search?pattern=one")
            assert "counts as 5" in refused.json()["error"]["message"]


async def test_what_is_no_search_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    record, _, path = await talking(rig, b"one\n")
    cursor = (await client.get("/api/v1/instances", params={"limit": 1})).json()["next"] or "bm9uZQ"
    for params, code in (
        ({"pattern": "(?=a)"}, "INVALID_PATTERN"),
        ({"pattern": ""}, "MISSING_FIELD"),
        ({"pattern": "x", "runs": "some"}, "INVALID_FIELD"),
        ({"pattern": "x", "runs": "all", "incarnation": record.incarnation}, "BAD_REQUEST"),
        ({"pattern": "x", "runs": "all", "before": 5}, "BAD_REQUEST"),
        ({"pattern": "x", "cursor": cursor}, "INVALID_CURSOR"),
        ({"pattern": "x", "before": -1}, "INVALID_FIELD"),
    ):
        answer = await client.get(f"{path}/search", params=params)
        assert (answer.status_code // 100, answer.json()["error"]["code"]) == (4, code), params
    await rig.report(record.id, state=InstanceState.STOPPED, console_end=4)
    assert [item["line"] for item in await found(client, path, pattern="one")] == ["one"]
