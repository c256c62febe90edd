"""The runs of an instance over the API, what each was started with, and lines by their times."""

from __future__ import annotations

import datetime as dt

import httpx
import msgspec
import pytest
from http_rig import Rig
from stand_in_node import T0, StandInNode

from corral.controller.state.collections import CRASHES
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.instance_records import (
    EARLIER_STARTS,
    EarlierStart,
    ExitRecord,
    InstanceRecord,
    earlier_starts,
)
from corral.domain.ids import Incarnation, NodeId
from corral.store.port import ABSENT

NODE = NodeId("node-1")


def at(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat().replace("+00:00", "Z")


async def running(rig: Rig) -> tuple[InstanceRecord, StandInNode, str]:
    record = await rig.instance()
    return record, rig.sessions.links[NODE], f"/api/v1/instances/{record.id}"


def exited(code: int) -> ExitRecord:
    return ExitRecord(
        known=True,
        code=code,
        signal=None,
        crashed=True,
        outcome="crashed",
        summary=f"exited with code {code}",
        ended_at=dt.datetime(2026, 1, 1, 12, 0, 10, tzinfo=dt.UTC),
    )


async def crashed(
    rig: Rig, record: InstanceRecord, incarnation: int, *, nonce: str = "", second: bool = False
) -> None:
    crash = CrashRecord(
        id=f"{record.id}.{incarnation}" + (f".{nonce}" if second else ""),
        nonce=nonce,
        instance=record.id,
        incarnation=Incarnation(incarnation),
        group=record.group,
        node=record.node,
        at=rig.clock.now(),
        exit=exited(3),
        crash_class="unknown",
        signature="",
        uptime_ms=4000,
    )
    await rig.ledger.commit(CRASHES.put(crash.id, crash, expect=ABSENT))


async def test_runs_are_listed_from_the_record_the_crashes_and_the_node(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await running(rig)
    first = record.incarnation
    for run in range(3):
        node.write(record.id, first + run, b"line\n")
    await crashed(rig, record, first)
    await rig.report(record.id, incarnation=Incarnation(first + 2), console_end=5)
    answer = (await client.get(f"{path}/runs")).json()
    assert (answer["next"], answer["notes"]) == (None, [])
    newest, middle, oldest = answer["items"]
    assert (newest["incarnation"], newest["state"], newest["exit"], newest["end_offset"]) == (
        first + 2,
        "RUNNING",
        None,
        5,
    )
    assert newest["plan_hash"] == record.plan_hash
    assert (middle["state"], middle["exit"]["code"], middle["crash"]) == ("CRASHED", 3, None)
    assert (middle["started_at"], middle["ended_at"]) == (at(T0 + first + 1), at(T0 + first + 501))
    assert (oldest["crash"], oldest["ended_at"]) == (f"{record.id}.{first}", "2026-01-01T12:00:10Z")
    assert oldest["started_at"] == "2026-01-01T12:00:06Z"
    page = (await client.get(f"{path}/runs", params={"limit": 1})).json()
    assert ([run["incarnation"] for run in page["items"]], page["next"]) == ([first + 2], first + 2)
    rest = (await client.get(f"{path}/runs", params={"before": page["next"]})).json()
    assert [run["incarnation"] for run in rest["items"]] == [first + 1, first]


@pytest.mark.trap("T73")
async def test_two_runs_with_one_number_are_listed_as_two_each_with_its_own_crash(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, _, path = await running(rig)
    first = record.incarnation
    await crashed(rig, record, first, nonce="n-a")
    await rig.report(record.id, incarnation=first, nonce="n-b")

    async def listed() -> list[tuple[int, str, str | None]]:
        items = (await client.get(f"{path}/runs")).json()["items"]
        return [(run["incarnation"], run["nonce"], run["crash"]) for run in items]

    assert await listed() == [(first, "n-b", None), (first, "n-a", f"{record.id}.{first}")]
    await crashed(rig, record, first, nonce="n-b", second=True)
    assert (await listed())[0] == (first, "n-b", f"{record.id}.{first}.n-b")


@pytest.mark.parametrize("how", ["away", "former version"])
async def test_runs_of_a_node_that_cannot_be_asked_are_those_that_were_reported(
    client: httpx.AsyncClient, rig: Rig, how: str
) -> None:
    record, node, path = await running(rig)
    first = record.incarnation
    node.write(record.id, first + 1, b"only the node knows it\n")
    await crashed(rig, record, first)
    await rig.report(record.id, incarnation=Incarnation(first + 2))
    if how == "away":
        del rig.sessions.links[NODE]
    else:
        node.lacks("run_lists")
    answer = (await client.get(f"{path}/runs")).json()
    assert [run["incarnation"] for run in answer["items"]] == [first + 2, first]
    (note,) = answer["notes"]
    assert note.startswith("node 'node-1' cannot be asked")


async def test_a_node_names_runs_of_the_starts_it_was_given_alone(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await running(rig)
    other = await rig.online("node-2")
    again = Incarnation(record.incarnation + 1024)
    start = EarlierStart(
        node=NODE, incarnation=record.incarnation, plan_hash=record.plan_hash, exit=exited(4)
    )
    await rig.report(record.id, node=NodeId("node-2"), incarnation=again, earlier=(start,))
    for forger in (node, other):
        for run in (record.incarnation, record.incarnation + 1, again, again + 1):
            forger.write(record.id, run, b"x\n")
    answer = (await client.get(f"{path}/runs")).json()
    assert [(run["incarnation"], run["node"]) for run in answer["items"]] == [
        (again, "node-2"),
        (record.incarnation, "node-1"),
    ]
    assert answer["items"][1]["exit"]["code"] == 4


async def test_a_plan_is_shown_by_run_as_long_as_it_is_kept(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await running(rig)
    first = record.incarnation
    start = EarlierStart(node=NODE, incarnation=Incarnation(first + 1), plan_hash=record.plan_hash)
    again = Incarnation(first + 1024)
    await rig.report(record.id, incarnation=again, earlier=(start,), plan_hash="0" * 64)
    for run in (first, first + 1):
        shown = await client.get(f"{path}/plan", params={"incarnation": run})
        assert (shown.status_code, shown.json()["hash"]) == (200, record.plan_hash)
    gone = await client.get(f"{path}/plan", params={"incarnation": again})
    assert (gone.status_code, gone.json()["error"]["field"]) == (404, "incarnation")
    never = await client.get(f"{path}/plan", params={"incarnation": 7})
    assert (never.status_code, never.json()["error"]["code"]) == (404, "NOT_FOUND")
    node.write(record.id, 7, b"a run that only the node knows\n")
    unknown = await client.get(f"{path}/plan", params={"incarnation": 7})
    assert "not kept any more" in unknown.json()["error"]["message"]


async def test_lines_are_found_by_when_they_came(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await running(rig)
    for second in range(6):
        node.write(record.id, record.incarnation, b"line %d\n" % second)
        node.flush(record.id, record.incarnation)  # each block comes a millisecond later for each byte

    async def lines(**params: object) -> list[str]:
        page = await client.get(f"{path}/console", params=params)
        assert page.status_code == 200, page.text
        return [item["line"] for item in page.json()["items"]]

    times = {"since": at(T0 + 14), "until": at(T0 + 35)}
    assert await lines(**times) == ["line 2", "line 3", "line 4"]
    page = (await client.get(f"{path}/console", params=times)).json()
    assert (page["next_offset"], page["end_offset"], page["gap"]) == (35, 35, False)
    assert await lines(since=at(T0 + 15)) == ["line 3", "line 4", "line 5"]
    assert await lines(until=at(T0 + 7)) == ["line 0"]
    assert await lines(since=at(T0 + 36)) == []
    assert await lines(since=at(T0), after=21) == ["line 3", "line 4", "line 5"]
    for bad in ({"since": "yesterday"}, {"since": "2026-01-01T00:00:00"}, {**times, "newest": "true"}):
        refused = await client.get(f"{path}/console", params=bad)
        assert refused.status_code in (400, 422), refused.text


async def test_lines_that_are_not_here_any_more_are_found_on_the_node_by_their_times(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await running(rig)
    text = b"".join(b"%06d\n" % number for number in range(100_000))
    node.say(record.id, record.incarnation, text)
    times = {"since": at(T0), "until": at(T0 + 65_536)}
    page = (await client.get(f"{path}/console", params=times)).json()
    (query,) = node.queries
    assert (query.since_ms, query.until_ms) == (T0, T0 + 65_536)
    assert page["items"][0]["line"] == "000000"


async def test_what_a_record_remembers_of_earlier_starts_is_bounded_and_only_what_ran(rig: Rig) -> None:
    record = await rig.instance()
    assert earlier_starts(None) == ()
    assert earlier_starts(msgspec.structs.replace(record, started_at=None)) == ()
    for _ in range(20):
        again = Incarnation(record.incarnation + 1024)
        record = msgspec.structs.replace(record, incarnation=again, earlier=earlier_starts(record))
    assert len(record.earlier) == EARLIER_STARTS
    assert record.earlier[-1].incarnation == record.incarnation - 1024
