"""Consoles over the API: pages from memory and from the node, search, download."""

from __future__ import annotations

import asyncio
import datetime as dt

import httpx
import msgspec
import pytest
from http_rig import Rig
from stand_in_node import T0, StandInNode

from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role
from corral.testing.waiting import eventually
from corral.wire.features import PeerSupport
from corral.wire.v1.instance_pb2 import ConsoleOutput

KIB = 1024


async def talking(rig: Rig, text: bytes = b"") -> tuple[InstanceRecord, StandInNode, str]:
    record = await rig.instance()
    node = rig.sessions.links[NodeId("node-1")]
    if text:
        node.say(record.id, record.incarnation, text)
    return record, node, f"/api/v1/instances/{record.id}/console"


async def test_a_page_has_lines_with_offsets_and_times(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"one\ntwo\r\n\nfour\n")
    page = (await client.get(path, params={"after": 0})).json()
    assert [(item["offset"], item["line"]) for item in page["items"]] == [
        (0, "one"),
        (4, "two"),
        (9, ""),
        (10, "four"),
    ]
    assert page["items"][0]["time"] == "2023-11-14T22:13:20Z"
    assert (page["next_offset"], page["gap"], page["gaps"], page["tail"]) == (15, False, [], None)
    assert (page["first_offset"], page["end_offset"]) == (0, 15)
    after = (await client.get(path, params={"after": page["next_offset"]})).json()
    assert (after["items"], after["next_offset"]) == ([], 15)


async def test_pages_go_on_where_the_last_one_ended(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"".join(b"line %d\n" % number for number in range(1000)))
    seen: list[str] = []
    after = 0
    while True:
        page = (await client.get(path, params={"after": after, "limit": 77})).json()
        if not page["items"]:
            break
        seen += [item["line"] for item in page["items"]]
        after = page["next_offset"]
    assert seen == [f"line {number}" for number in range(1000)]


async def test_the_newest_lines_come_without_asking_anybody(client: httpx.AsyncClient, rig: Rig) -> None:
    _, node, path = await talking(rig, b"".join(b"line %d\n" % number for number in range(5000)))
    page = (await client.get(path, params={"newest": "true", "limit": 3})).json()
    assert [item["line"] for item in page["items"]] == ["line 4997", "line 4998", "line 4999"]
    assert node.queries == []


async def test_a_line_that_is_not_finished_is_a_tail_until_it_is(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"done\nprom")
    page = (await client.get(path, params={"after": 0})).json()
    assert ([item["line"] for item in page["items"]], page["tail"]["line"]) == (["done"], "prom")
    assert page["next_offset"] == 5
    node.say(record.id, record.incarnation, b"pt\n")
    page = (await client.get(path, params={"after": 5})).json()
    assert ([item["line"] for item in page["items"]], page["tail"]) == (["prompt"], None)
    node.say(record.id, record.incarnation, b"last words")
    await rig.report(record.id, state=InstanceState.CRASHED, console_end=22)
    page = (await client.get(path, params={"after": 12})).json()
    assert [item["line"] for item in page["items"]] == ["last words"], "nothing will finish it"


@pytest.mark.trap("T17")
async def test_hostile_bytes_are_lines_like_any_other(client: httpx.AsyncClient, rig: Rig) -> None:
    huge = b"x" * (10 * 1024 * KIB)
    record, node, path = await talking(rig)
    text = (
        b"bad \xff\xfe utf-8\n\x1b[2J\x1b]0;owned\x07red\n<script>alert(1)</script>\n" + huge + b"\nafter\n"
    )
    node.say(record.id, record.incarnation, text)
    page = (await client.get(path, params={"after": 0, "limit": 3})).json()
    assert [item["line"] for item in page["items"]] == [
        "bad \ufffd\ufffd utf-8",
        "\x1b[2J\x1b]0;owned\x07red",
        "<script>alert(1)</script>",
    ]
    answer = await client.get(path, params={"after": 0, "limit": 3})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    after, pieces = page["next_offset"], []
    while True:
        page = (await client.get(path, params={"after": after, "limit": 5000})).json()
        if not page["items"]:
            break
        pieces += page["items"]
        after = page["next_offset"]
    assert pieces[-1]["line"] == "after"
    assert max(len(item["line"]) for item in pieces) == 16 * KIB
    assert sum(len(item["line"]) for item in pieces[:-1]) == len(huge)
    assert all(item["partial"] for item in pieces[:-2])
    assert "partial" not in pieces[-1]


async def test_a_character_is_never_cut_in_two(client: httpx.AsyncClient, rig: Rig) -> None:
    text = "x" + "€" * 20_000
    _, _, path = await talking(rig, text.encode() + b"\n")
    page = (await client.get(path, params={"after": 0})).json()
    assert "".join(item["line"] for item in page["items"]) == text
    assert page["items"][0]["offset"] == 0


async def test_what_is_older_than_the_ring_is_read_from_the_node(client: httpx.AsyncClient, rig: Rig) -> None:
    text = b"".join(b"%06d\n" % number for number in range(100_000))  # 700 KB
    _, node, path = await talking(rig, text)
    page = (await client.get(path, params={"after": 0, "limit": 2})).json()
    assert [item["line"] for item in page["items"]] == ["000000", "000001"]
    assert len(node.queries) == 1
    assert (page["first_offset"], page["end_offset"], page["gap"]) == (0, len(text), False)
    late = (await client.get(path, params={"after": 699_993})).json()
    assert [item["line"] for item in late["items"]] == ["099999"]
    assert len(node.queries) == 1, "that one was in memory"


async def test_the_newest_lines_may_reach_further_back_than_the_ring(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = b"".join(b"%0199d\n" % number for number in range(5000))  # 1 MB
    _, node, path = await talking(rig, text)
    page = (await client.get(path, params={"newest": "true", "limit": 4000})).json()
    assert [int(item["line"]) for item in page["items"]] == list(range(1000, 5000))
    assert len(node.queries) == 1


async def test_what_retention_took_is_a_gap(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    node.first[record.id, record.incarnation] = 7000
    page = (await client.get(path, params={"after": 0, "limit": 1})).json()
    assert (page["items"][0]["line"], page["gap"], page["first_offset"]) == ("001000", True, 7000)
    assert page["gaps"] == [{"from_offset": 0, "to_offset": 7000, "reason": "not kept any more"}]


async def test_bytes_the_node_could_not_keep_are_a_gap_with_its_reason(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"before\nhalf a li")
    node.skip(record.id, record.incarnation, 100)
    page = (await client.get(path, params={"after": 0})).json()
    assert [item["line"] for item in page["items"]] == ["before", "half a li", "after"]
    assert page["items"][1]["partial"] is True
    assert page["gaps"] == [{"from_offset": 16, "to_offset": 116, "reason": "the disk was full"}]
    assert node.queries == []


async def test_a_hole_nobody_explains_is_read_from_the_node(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"a\n")
    node.write(record.id, record.incarnation, b"b\nc\n")
    node.flush(record.id, record.incarnation, begin=4)
    page = (await client.get(path, params={"after": 0})).json()
    assert [item["line"] for item in page["items"]] == ["a", "b", "c"]
    assert (len(node.queries), page["gap"]) == (1, False)


async def test_bytes_that_come_twice_count_once(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"one\ntwo\n")
    node.write(record.id, record.incarnation, b"three\n")
    node.flush(record.id, record.incarnation, begin=0)
    node.flush(record.id, record.incarnation, begin=4)
    page = (await client.get(path, params={"after": 0})).json()
    assert [item["line"] for item in page["items"]] == ["one", "two", "three"]
    assert node.acked[record.id, record.incarnation] == 14


async def test_a_node_speaks_for_its_own_instances_alone(client: httpx.AsyncClient, rig: Rig) -> None:
    record, _, path = await talking(rig, b"mine\n")
    other = await rig.online("node-2")
    other.say(record.id, record.incarnation, b"forged\n")
    assert other.acked[record.id, record.incarnation] == 7, "confirmed, or it would block its others"
    page = (await client.get(path, params={"after": 0})).json()
    assert [item["line"] for item in page["items"]] == ["mine"]


async def test_a_node_that_is_away_takes_its_older_console_along(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    del rig.sessions.links[NodeId("node-1")]
    answer = await client.get(path, params={"after": 0})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NODE_OFFLINE")
    assert "node-1" in answer.json()["error"]["message"]
    newest = (await client.get(path, params={"newest": "true", "limit": 1})).json()
    assert [item["line"] for item in newest["items"]] == ["099999"]


async def test_a_session_that_ends_during_a_query_is_noticed_at_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, node, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    node.silent = True
    asking = asyncio.create_task(client.get(path, params={"after": 0}))
    await eventually(lambda: rig.uploads.expected)
    node.over.set()
    answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NODE_OFFLINE")
    assert rig.uploads.expected == {}, "nobody expects it any more"


async def test_a_console_the_node_dropped_is_gone_and_says_so(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    del node.kept[record.id, record.incarnation]
    answer = await client.get(path, params={"after": 0})
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "CONSOLE_GONE")


async def test_an_instance_that_has_not_begun_has_an_empty_console(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    node = await rig.online()
    await rig.group()
    made = (await client.post("/api/v1/instances", json={"group": "lobby"})).json()
    page = (await client.get(f"/api/v1/instances/{made['id']}/console")).json()
    assert (page["items"], page["next_offset"], node.queries) == ([], 0, [])


async def test_an_earlier_run_keeps_its_console(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"first run\n")
    await rig.report(record.id, incarnation=record.incarnation + 1)
    node.say(record.id, record.incarnation + 1, b"second run\n")
    newest = (await client.get(path)).json()
    assert ([item["line"] for item in newest["items"]], newest["incarnation"]) == (
        ["second run"],
        record.incarnation + 1,
    )
    older = (await client.get(path, params={"incarnation": record.incarnation})).json()
    assert [item["line"] for item in older["items"]] == ["first run"]
    never = await client.get(path, params={"incarnation": record.incarnation + 2})
    assert (never.status_code, never.json()["error"]["field"]) == (404, "incarnation")


@pytest.mark.trap("T67")
async def test_a_block_of_a_run_that_is_no_longer_kept_is_confirmed_and_read_from_its_node(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig)
    for later in range(1, 7):
        await rig.report(record.id, incarnation=record.incarnation + later)
        node.say(record.id, record.incarnation + later, b"run %d\n" % later)
    node.say(record.id, record.incarnation, b"the first run, late\n")
    assert node.acked[record.id, record.incarnation] == 20
    for incarnation, line in ((record.incarnation, "the first run, late"), (record.incarnation + 6, "run 6")):
        page = (await client.get(path, params={"incarnation": incarnation})).json()
        assert [item["line"] for item in page["items"]] == [line]


@pytest.mark.trap("T65")
async def test_after_a_move_no_number_of_the_former_node_keeps_the_new_console_out(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"mine\n")
    for made_up in range(100, 110):
        node.say(record.id, record.incarnation + made_up, b"made up\n")
    assert rig.consoles.ring((record.id, record.incarnation)) is not None, "the present run is not pushed out"
    other = await rig.online("node-2")
    again = record.incarnation + 1024
    await rig.report(record.id, node=NodeId("node-2"), incarnation=again)
    for made_up in range(10):
        node.say(record.id, again + made_up, b"made up\n")
    other.say(record.id, again, b"moved\n")
    ring = rig.consoles.ring((record.id, again))
    assert ring is not None
    assert (ring.writer, other.acked[record.id, again]) == ("node-2", 6)
    page = (await client.get(path)).json()
    assert [item["line"] for item in page["items"]] == ["moved"]


async def test_a_search_finds_lines_with_their_offsets(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"".join(b"line %d\n" % number for number in range(1000)))
    page = (await client.get(f"{path}/search", params={"pattern": r"line \d*99$", "limit": 5})).json()
    assert [item["line"] for item in page["items"]] == [
        "line 99",
        "line 199",
        "line 299",
        "line 399",
        "line 499",
    ]
    rest = (
        await client.get(f"{path}/search", params={"pattern": r"line \d*99$", "after": page["next_offset"]})
    ).json()
    assert [item["line"] for item in rest["items"]] == [
        "line 599",
        "line 699",
        "line 799",
        "line 899",
        "line 999",
    ]
    assert rest["next_offset"] == rest["end_offset"]


async def test_what_is_no_pattern_is_refused_before_anybody_is_asked(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, node, path = await talking(rig, b"x\n")
    for pattern in ["(", "a(?=b)", r"(a)\1", "[z-a]", "*"]:
        answer = await client.get(f"{path}/search", params={"pattern": pattern})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_PATTERN"), pattern
        assert node.queries == [], pattern


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(x+x+)+y", "((a{0,100}){0,100}){0,100}"])
async def test_a_pattern_that_explodes_elsewhere_is_answered_or_refused(
    client: httpx.AsyncClient, rig: Rig, pattern: str
) -> None:
    record, node, path = await talking(rig)
    node.write(record.id, record.incarnation, b"a" * 20_000 + b"!\n")
    node.flush(record.id, record.incarnation)
    async with asyncio.timeout(20):  # an engine that tries every way would outlast all of us
        answer = await client.get(f"{path}/search", params={"pattern": pattern})
    assert answer.status_code in (200, 400)


async def test_a_download_is_the_console_byte_by_byte(client: httpx.AsyncClient, rig: Rig) -> None:
    text = bytes(range(256)) * 10_000  # 2.5 MB, most of it only on the node
    record, _, path = await talking(rig, text)
    answer = await client.get(f"{path}/download")
    assert answer.content == text
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == (
        f'attachment; filename="{record.id}.{record.incarnation}.log"'
    )
    part = await client.get(f"{path}/download", params={"after": len(text) - 10})
    assert part.content == text[-10:]


async def test_a_download_that_cannot_begin_is_a_refusal_and_one_that_breaks_is_no_whole_file(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, node, path = await talking(rig, b"x" * 3 * 1024 * KIB)
    del rig.sessions.links[NodeId("node-1")]
    refused = await client.get(f"{path}/download")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "NODE_OFFLINE")
    rig.sessions.links[NodeId("node-1")] = node
    async with client.stream("GET", f"{path}/download") as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in answer.aiter_bytes(65_536):
                node.refuse_queries = "DISK_FULL"


async def test_a_viewer_sees_instances_and_not_their_consoles(rig: Rig) -> None:
    record, _, path = await talking(rig, b"secret\n")
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        assert (await viewer.get(f"/api/v1/instances/{record.id}")).status_code == 200
        for suffix in ("", "/search?pattern=x", "/download", "/stream", "/ws"):
            assert (await viewer.get(path + suffix)).status_code == 403


async def test_rings_of_ended_instances_shrink_and_those_of_forgotten_ones_go(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, _, _ = await talking(rig, b"x\n" * 100_000)
    assert 200_000 <= rig.consoles.rings.bytes < 201_000
    await rig.report(record.id, state=InstanceState.STOPPED)
    await eventually(lambda: 0 < rig.consoles.rings.bytes <= 128 * KIB)
    await client.delete(f"/api/v1/instances/{record.id}")
    await eventually(lambda: rig.consoles.rings.bytes == 0)


def test_times_stay_sane_whatever_a_node_claims() -> None:
    from corral.controller.consoles.span import moment

    assert moment(T0).year == 2023
    assert moment(-5).year == 1970
    assert moment(2**62).year == 9999


async def test_the_newest_lines_of_the_controller_are_shown_when_the_node_cannot_be_asked(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    node = rig.sessions.links[NodeId("node-1")]
    node.say(record.id, record.incarnation, b"".join(b"%06d\n" % number for number in range(100_000)))
    ring = rig.consoles.ring((record.id, record.incarnation))
    assert ring is not None
    ring.shrink(4096)
    node.refuse_queries = "NOT_SUPPORTED"
    answer = await client.get(
        f"/api/v1/instances/{record.id}/console", params={"newest": True, "limit": 5000}
    )
    assert answer.status_code == 200
    assert answer.json()["items"][-1]["line"] == "099999"


async def test_single_lines_of_an_old_daemon_stay_whole_whatever_they_hold(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    """Its offsets count the bytes on its disk; what it sends is text, and may be longer or shorter."""
    record = await rig.instance()
    offset = 0
    for raw, text in ((b"\xff\xfe\n", "\ufffd\ufffd"), (b"dos\r\n", "dos"), (b"last\n", "last")):
        line = ConsoleOutput(
            instance_id=record.id, line=text, timestamp_ms=1, incarnation=record.incarnation, offset=offset
        )
        rig.consoles.receive_line(NodeId("node-1"), line)
        offset += len(raw)
    page = (await client.get(f"/api/v1/instances/{record.id}/console")).json()
    assert [item["line"] for item in page["items"]] == ["\ufffd\ufffd", "dos", "last"]
    assert not page["gap"]


async def test_of_a_daemon_that_cannot_be_asked_what_is_held_is_shown_after_a_gap(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    node = rig.sessions.links[NodeId("node-1")]
    node.facts = msgspec.structs.replace(node.facts, supports=PeerSupport())
    for number in range(3000):
        text = f"{number:06d} " + "x" * 200
        line = ConsoleOutput(instance_id=record.id, line=text, timestamp_ms=1, incarnation=record.incarnation)
        rig.consoles.receive_line(NodeId("node-1"), line)
    answer = await client.get(f"/api/v1/instances/{record.id}/console", params={"limit": 5000})
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["gap"]
    assert page["gaps"][0]["from_offset"] == 0
    assert page["gaps"][0]["to_offset"] == page["items"][0]["offset"] > 0
    after = {"limit": 5000, "after": page["next_offset"]}
    rest = (await client.get(f"/api/v1/instances/{record.id}/console", params=after)).json()
    numbers = [int(item["line"][:6]) for item in (*page["items"], *rest["items"])]
    assert numbers == list(range(numbers[0], 3000)), "from there on nothing is missing"


async def test_pages_before_an_offset_lead_back_to_the_first_byte(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = b"".join(b"line %d\n" % number for number in range(60_000))  # most of it only on the node
    _, _, path = await talking(rig, text)
    page = (await client.get(path, params={"newest": "true", "limit": 5000})).json()
    seen = [item["line"] for item in page["items"]]
    while page["previous_offset"]:
        page = (await client.get(path, params={"before": page["previous_offset"], "limit": 5000})).json()
        assert not any("continued" in item or "partial" in item for item in page["items"])
        seen[:0] = [item["line"] for item in page["items"]]
    assert seen == [f"line {number}" for number in range(60_000)]
    assert (page["items"][0]["offset"], page["next_offset"] < len(text)) == (0, True)


async def test_a_page_around_a_time_has_half_of_it_on_each_side(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig)
    for number in range(100):
        node.say(record.id, record.incarnation, b"line %02d\n" % number)  # one millisecond a byte
    at = (dt.datetime.fromtimestamp(T0 / 1000, dt.UTC) + dt.timedelta(milliseconds=8 * 40)).isoformat()
    page = (await client.get(path, params={"at": at, "limit": 6})).json()
    assert [item["line"] for item in page["items"]] == [f"line {number}" for number in range(37, 43)]
    assert (page["previous_offset"], page["next_offset"]) == (8 * 37, 8 * 43)
    first = (await client.get(path, params={"at": "2001-01-01T00:00:00Z", "limit": 6})).json()
    assert [item["line"] for item in first["items"]] == ["line 00", "line 01", "line 02"]
    last = (await client.get(path, params={"at": "2033-01-01T00:00:00Z", "limit": 6})).json()
    assert [item["line"] for item in last["items"]] == [f"line {number}" for number in range(94, 100)]
    await rig.report(record.id, incarnation=record.incarnation + 1)
    before = (await client.get(path, params={"at": at, "limit": 2})).json()
    assert before["incarnation"] == record.incarnation, "that run was there then"


async def test_a_page_is_in_one_place(client: httpx.AsyncClient, rig: Rig) -> None:
    _, _, path = await talking(rig, b"one\n")
    at = "2033-01-01T00:00:00Z"
    for wrong in (
        {"before": 3, "after": 1},
        {"before": 3, "newest": "true"},
        {"before": 3, "at": at},
        {"at": at, "since": at},
        {"at": at, "after": 0},
    ):
        answer = await client.get(path, params=wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BAD_REQUEST"), wrong
    for wrong in ({"before": -1}, {"before": 2**63}, {"at": "yesterday"}):
        assert (await client.get(path, params=wrong)).status_code in (400, 422), wrong


async def test_what_lies_before_the_ring_waits_for_its_node(client: httpx.AsyncClient, rig: Rig) -> None:
    _, node, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    node.lacks("run_lists")
    at = "2001-01-01T00:00:00Z"
    answer = await client.get(path, params={"at": at})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NOT_SUPPORTED")
    del rig.sessions.links[NodeId("node-1")]
    held = (await client.get(path, params={"before": 699_993, "limit": 2})).json()
    assert [item["line"] for item in held["items"]] == ["099997", "099998"]
    for params in ({"before": 1000}, {"at": at}):
        answer = await client.get(path, params=params)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NODE_OFFLINE")
