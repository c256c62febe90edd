"""Tests of stats-aggregator. Run them with: corral module test modules/stats-aggregator"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest
from stats_aggregator.contract import GroupStatistics, Totals
from stats_aggregator.counting import added, document_id, oldest_kept
from stats_aggregator.module import StatsAggregator

from corral.sdk import Event
from corral.testing.module_bench import ModuleBench
from corral.testing.module_house import ModuleHouse

NOON = dt.datetime(2026, 5, 4, 12, tzinfo=dt.UTC)


def event(type: str, **data: Any) -> Event:
    return Event(type=type, subject="lobby-1", at=NOON, cursor="1-1", data=data)


@pytest.fixture
async def bench() -> AsyncIterator[ModuleBench]:
    async with ModuleBench(StatsAggregator, manifest="module.yaml") as bench:
        await bench.start()
        yield bench


async def tell(bench: ModuleBench, *types: str, group: str = "lobby", instance: str = "lobby-1") -> None:
    for type in types:
        await bench.emit(f"INSTANCE_{type}", {"group": group}, subject=instance)


def test_an_event_without_a_group_adds_nothing() -> None:
    assert added(event("INSTANCE_RUNNING"), None) is None
    assert added(event("INSTANCE_RUNNING", group=5), None) is None
    assert added(event("GROUP_CREATED", group="lobby"), None) is None


def test_run_time_counts_only_where_the_start_is_known_and_never_backwards() -> None:
    stopped = event("INSTANCE_STOPPED", group="lobby")
    assert added(stopped, None) == {"stops": 1}
    assert added(stopped, NOON - dt.timedelta(minutes=2)) == {"stops": 1, "run_seconds": 120.0}
    assert added(stopped, NOON + dt.timedelta(minutes=2)) == {"stops": 1, "run_seconds": 0.0}


def test_today_is_one_of_the_days_that_are_kept() -> None:
    assert oldest_kept(NOON, 1) == "2026-05-04"
    assert oldest_kept(NOON, 4) == "2026-05-01"
    assert document_id("lobby", "2026-05-04") == "lobby:2026-05-04"


async def test_starts_stops_crashes_and_run_time_are_added_up(bench: ModuleBench) -> None:
    await tell(bench, "RUNNING")
    await bench.tick(30)
    await tell(bench, "CRASHED", "RUNNING", "STOPPED", "STOPPED")
    await tell(bench, "RUNNING", group="arena", instance="arena-1")
    rows = (await bench.request("GET", "/groups")).json(list[Totals])
    assert rows == [
        Totals(group="arena", starts=1),
        Totals(group="lobby", starts=2, stops=2, crashes=1, run_seconds=30.0),
    ]
    assert (await bench.metrics())["stats_events"] == 6


async def test_days_are_told_apart_newest_first(bench: ModuleBench) -> None:
    await tell(bench, "RUNNING")
    bench.clock.move_to(bench.clock.now() + dt.timedelta(days=1))
    await tell(bench, "RUNNING", "RUNNING")
    days = (await bench.request("GET", "/groups/lobby")).json(list[Totals])
    assert [(each.day, each.starts) for each in days] == [("2026-01-02", 2), ("2026-01-01", 1)]
    newest = (await bench.request("GET", "/groups/lobby", query={"limit": "1"})).json(list[Totals])
    assert newest == days[:1]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "many"])
async def test_a_limit_that_makes_no_sense_is_refused(bench: ModuleBench, limit: str) -> None:
    assert (await bench.request("GET", "/groups/lobby", query={"limit": limit})).status == 400


async def test_a_group_that_nobody_heard_of_is_not_found(bench: ModuleBench) -> None:
    assert (await bench.request("GET", "/groups/nobody")).status == 404


async def test_other_modules_can_ask(bench: ModuleBench) -> None:
    await tell(bench, "RUNNING")
    statistics = bench.capability("stats.groups", GroupStatistics)
    assert await statistics.totals() == [Totals(group="lobby", starts=1)]
    assert [each.day for each in await statistics.days(group="lobby", limit=0)] == ["2026-01-01"]


async def test_the_command_tells_one_group_or_all(bench: ModuleBench) -> None:
    assert await bench.command("stats show") == ("nothing was counted yet",)
    await tell(bench, "RUNNING")
    await tell(bench, "RUNNING", group="arena")
    assert len(await bench.command("stats show")) == 2
    assert await bench.command("stats show lobby") == ("lobby: 1 starts, 0 stops, 0 crashes, 0.0 hours",)


async def test_old_days_are_forgotten_by_and_by(bench: ModuleBench) -> None:
    await tell(bench, "RUNNING")  # on the bench it is the first day of 2026
    await bench.reload({"keepDays": 3650})
    assert len((await bench.request("GET", "/groups")).json(list[Totals])) == 1
    await bench.reload({"keepDays": 1})
    assert (await bench.request("GET", "/groups")).json(list[Totals]) == []


async def test_the_hourly_task_forgets_as_well() -> None:
    async with ModuleBench(StatsAggregator, manifest="module.yaml", config={"keepDays": 1}) as bench:
        await bench.start()
        await tell(bench, "RUNNING")
        assert await bench.tick(61) == 1
        assert (await bench.request("GET", "/groups")).json(list[Totals]) == []


async def test_it_leaves_nothing_behind(bench: ModuleBench) -> None:
    await bench.stop()
    left = await bench.lingering()
    assert (left.threads, left.tasks, left.children) == ((), (), ())


async def test_it_runs_in_a_controller_with_its_page(house: ModuleHouse) -> None:
    module = await house.install()
    assert module["phase"] == "ACTIVE"
    assert [each["id"] for each in module["provides"]] == ["stats.groups"]
    assert await house.request("GET", "/groups") == []
