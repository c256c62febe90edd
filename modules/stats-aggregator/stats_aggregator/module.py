"""The module: hears of instances, adds them up by group and day, and tells."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from corral.sdk import (
    CapabilityBinding,
    Collection,
    CommandCall,
    CommandParameter,
    Commands,
    Event,
    F,
    HttpError,
    Index,
    ModuleContext,
    PlatformModule,
    Request,
    Routes,
)
from stats_aggregator.contract import GroupStatistics, Totals
from stats_aggregator.counting import added, day_of, document_id, group_of, oldest_kept


class Position(msgspec.Struct):
    """The last event that was counted: one that comes again is not counted twice."""

    cursor: str = ""


class Run(msgspec.Struct):
    """An instance that runs now."""

    since: dt.datetime


class DaysQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: int = 30


def _key(cursor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in cursor.split("-")) if cursor else ()


class StatsAggregator(PlatformModule):
    """Provides `stats.groups`, the routes `/groups` and `/groups/{group}`, and `stats show`."""

    ctx: ModuleContext
    days: Collection[Totals]
    runs: Collection[Run]
    position: Collection[Position]

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        storage = ctx.require_document_storage()
        self.days = await storage.create("days", Totals, indexes=[Index("day"), Index("group", "day")])
        self.runs = storage.collection("runs", Run)
        self.position = storage.collection("position", Position)
        seen = await self.position.get("last")
        self._last = _key(seen.value.cursor) if seen else ()
        self._counted = ctx.metrics.counter("stats_events", "Events that were counted")
        types = ["INSTANCE_RUNNING", "INSTANCE_STOPPED", "INSTANCE_CRASHED"]
        await ctx.events.subscribe(types, self.count, durable="counting")
        await ctx.scheduler.every(3600, self.forget_old_days, initial_delay=60, name="forget")

    async def count(self, event: Event) -> None:
        """Sums and position change together: whatever dies in between, nothing is counted twice."""
        here = _key(event.cursor)
        if here <= self._last:
            return
        begins = event.type == "INSTANCE_RUNNING"
        run = None if begins else await self.runs.get(event.subject)
        sums = added(event, run.value.since if run else None)
        if sums is None:
            return
        group, day = group_of(event), day_of(event.at)
        async with self.ctx.require_document_storage().transaction() as tx:
            if begins:
                tx.replace(self.runs, event.subject, Run(since=event.at), upsert=True)
            elif run is not None:
                tx.delete(self.runs, event.subject)
            tx.update(
                self.days,
                document_id(group, day),
                upsert=True,
                set={"group": group, "day": day},
                inc=sums,
            )
            tx.replace(self.position, "last", Position(cursor=event.cursor), upsert=True)
        self._last = here
        self._counted.increase(type=event.type)

    async def forget_old_days(self) -> None:
        first = oldest_kept(dt.datetime.now(dt.UTC), self.ctx.config["keepDays"])
        gone = await self.days.delete_many(F.day < first)
        if gone:
            self.ctx.logger.info("forgot %d days before %s", gone, first)

    async def on_reload(self, ctx: ModuleContext) -> None:
        await self.forget_old_days()

    def register_routes(self, routes: Routes) -> None:
        routes.get("/groups", self.list_groups, answer=list[Totals], summary="Totals of every group.")
        routes.get(
            "/groups/{group}",
            self.show_group,
            query=DaysQuery,
            answer=list[Totals],
            summary="The newest days of one group.",
        )

    def register_commands(self, commands: Commands) -> None:
        commands.add(
            "stats show",
            self.show_command,
            help="Starts, stops, crashes and hours run.",
            parameters=[CommandParameter("group", required=False, help="only this group")],
            permission="modules.read",
        )

    def capability_handles(self) -> Sequence[CapabilityBinding[Any]]:
        return [CapabilityBinding("stats.groups", GroupStatistics, lambda: _Statistics(self))]

    async def totals(self) -> list[Totals]:
        sums: dict[str, Totals] = {}
        async for stored in self.days.find():
            day = stored.value
            so_far = sums.get(day.group, Totals(group=day.group))
            sums[day.group] = Totals(
                group=day.group,
                starts=so_far.starts + day.starts,
                stops=so_far.stops + day.stops,
                crashes=so_far.crashes + day.crashes,
                run_seconds=round(so_far.run_seconds + day.run_seconds, 3),
            )
        return [sums[group] for group in sorted(sums)]

    async def newest_days(self, group: str, limit: int) -> list[Totals]:
        found = await self.days.find(F.group == group, sort=["-day"], limit=limit)
        return [stored.value for stored in found]

    async def list_groups(self, request: Request) -> list[Totals]:
        return await self.totals()

    async def show_group(self, request: Request) -> list[Totals]:
        limit = request.query.limit
        if not 1 <= limit <= 1000:
            raise HttpError(400, "limit has to be between 1 and 1000", field="limit")
        days = await self.newest_days(request.parameters["group"], limit)
        if not days:
            raise HttpError(404, f"nothing is known of group '{request.parameters['group']}'")
        return days

    async def show_command(self, call: CommandCall) -> list[str]:
        group = call.named.get("group")
        rows = [row for row in await self.totals() if group in (None, "", row.group)]
        lines = [
            f"{row.group}: {row.starts} starts, {row.stops} stops, {row.crashes} crashes, "
            f"{row.run_seconds / 3600:.1f} hours"
            for row in rows
        ]
        return lines or ["nothing was counted yet"]


class _Statistics:
    """`stats.groups` as others see it."""

    def __init__(self, module: StatsAggregator) -> None:
        self._module = module

    async def totals(self) -> list[Totals]:
        return await self._module.totals()

    async def days(self, *, group: str, limit: int = 30) -> list[Totals]:
        return await self._module.newest_days(group, max(1, min(limit, 1000)))
