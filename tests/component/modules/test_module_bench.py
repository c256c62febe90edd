"""The bench that module authors test with: the same messages, in the test's own process."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
import pytest

from corral.sdk import (
    CapabilityBinding,
    CapabilityTypeError,
    CapabilityUnavailable,
    DaemonModule,
    Event,
    F,
    HostError,
    HttpError,
    ModuleContext,
    PlatformModule,
    Refused,
    Response,
    StorageUnavailable,
)
from corral.testing.module_bench import ModuleBench


class Round(msgspec.Struct):
    winner: str
    points: int = 0


class Namer(Protocol):
    async def full_name(self, *, short: str) -> str: ...


class Totals(Protocol):
    async def of(self, winner: str) -> int: ...


class FullNames:
    async def full_name(self, *, short: str) -> str:
        return {"r": "red", "b": "blue"}[short]


MANIFEST = {
    "id": "rounds",
    "storage": {"documents": True, "keyValue": True},
    "events": {"subscribes": ["ROUND_OVER"], "publishes": ["LEADER_CHANGED"]},
    "capabilities": {
        "requires": [{"id": "acme.names"}],
        "provides": [{"id": "acme.totals", "version": "1.0.0"}],
    },
}


class Rounds(PlatformModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.names = ctx.capabilities.require("acme.names", Namer)
        self.rounds = await ctx.require_document_storage().create("rounds", Round)
        await ctx.events.subscribe("ROUND_OVER", self.on_round)
        await ctx.scheduler.every(60, self.tell)
        await ctx.scheduler.cron("0 * * * *", self.hourly)
        ctx.logger.info("started")

    async def on_round(self, event: Event) -> None:
        name = await self.names.call.full_name(short=event.data["winner"])
        await self.rounds.insert(Round(winner=name, points=event.data["points"]))
        self.ctx.metrics.counter("rounds").increase()

    async def tell(self) -> None:
        await self.ctx.events.publish("LEADER_CHANGED", {"rounds": await self.rounds.count()})

    def hourly(self) -> None:
        self.ctx.logger.info("an hour")

    async def of(self, winner: str) -> int:
        return sum(found.value.points for found in await self.rounds.find(F.winner == winner))

    def capability_handles(self):
        return [CapabilityBinding("acme.totals", Totals, lambda: self)]

    def register_routes(self, routes):
        routes.get("/totals/{winner}", self.total)
        routes.get("/export/{rest:path}", self.export, streams=True)

    async def total(self, request):
        total = await self.of(request.parameters["winner"])
        if not total:
            raise HttpError(404, "no rounds")
        return {"total": total}

    async def export(self, request):
        async def pieces():
            for _ in range(30):
                yield b"x" * 100_000

        return Response.stream(pieces())

    def register_commands(self, commands):
        commands.add("rounds total", lambda call: [f"for {word}" for word in call.arguments])

    def health_check(self):
        return True


def bench(**more) -> ModuleBench:
    names = CapabilityBinding("acme.names", Namer, FullNames)
    return ModuleBench(Rounds, manifest=MANIFEST, capabilities=[names], **more)


async def test_a_module_runs_on_the_bench_with_all_that_a_host_gives():
    async with bench() as rounds:
        await rounds.start()
        assert await rounds.emit("ROUND_OVER", {"winner": "r", "points": 3}, subject="lobby") == 1
        assert await rounds.emit("ROUND_OVER", Round(winner="r", points=4)) == 1
        assert await rounds.emit("OTHER") == 0
        assert (await rounds.request("GET", "/totals/red")).json(dict) == {"total": 7}
        assert (await rounds.request("GET", "/totals/green")).status == 404
        assert len((await rounds.request("GET", "/export/a/b")).body) == 3_000_000
        assert await rounds.capability("acme.totals", Totals).of("red") == 7
        assert await rounds.command("rounds total a b") == ("for a", "for b")
        assert (await rounds.metrics())["rounds"] == 2
        assert await rounds.tick(125) == 2
        assert [told.data for told in rounds.published] == [{"rounds": 2}] * 2
        await rounds.tick(3600)
        assert [line.message for line in await rounds.logs()] == ["started", "an hour"]
        await rounds.stop()
        assert rounds.tasks == []
        assert (await rounds.lingering()).tasks == ()


async def test_wrong_types_and_missing_providers_are_told_as_a_host_would():
    async with bench() as rounds:
        await rounds.start()
        with pytest.raises(CapabilityTypeError):
            await rounds.capability("acme.totals", Totals).of(3)
        with pytest.raises(HostError, match=r"KeyError|'x'"):
            await rounds.emit("ROUND_OVER", {"winner": "x", "points": 1})
        rounds.set_available("acme.names", False)
        with pytest.raises(HostError) as raised:
            await rounds.emit("ROUND_OVER", {"winner": "r", "points": 1})
        assert raised.value.code == CapabilityUnavailable.__name__
        assert "on_round" in raised.value.__notes__[0]
        with pytest.raises(LookupError, match="GET /totals"):
            await rounds.request("POST", "/nowhere")


async def test_what_the_manifest_does_not_allow_is_refused():
    class Talker(PlatformModule):
        async def on_load(self, ctx):
            with pytest.raises(Refused) as raised:
                await ctx.events.publish("UNDECLARED")
            assert raised.value.code == "FORBIDDEN"
            with pytest.raises(StorageUnavailable, match=r"storage\.documents"):
                ctx.require_document_storage()
            with pytest.raises(CapabilityUnavailable, match="requires"):
                ctx.capabilities.require("acme.names", Namer)

    async with ModuleBench(Talker) as talker:
        await talker.start()


async def test_daemon_modules_settings_and_upgrades_work_on_the_bench():
    class Flags(DaemonModule):
        seen: str

        def on_upgrade(self, ctx):
            self.seen = ctx.previous_version

        def on_reload(self, ctx):
            if "bad" in ctx.config:
                raise ValueError("bad settings")

        def on_instance_starting(self, spec):
            spec.env["SEEN"] = self.seen

    settings = {"config": {"properties": {"a": {"type": "integer"}, "bad": {"type": "integer"}}}}
    async with ModuleBench(
        Flags, manifest=settings, host="daemon", previous_version="0.9.0", config={"a": 1}
    ) as flags:
        await flags.start()
        changes = await flags.hook("on_instance_starting", spec={"instance_id": "i", "group": "g"})
        assert changes["env"] == {"SEEN": "0.9.0"}
        with pytest.raises(HostError, match="bad settings"):
            await flags.reload({"bad": 1})
        assert flags.context.config == {"a": 1}
        assert flags.context.find_document_storage() is None


async def test_a_task_the_module_forgot_is_seen():
    class Forgetful(PlatformModule):
        async def on_start(self, ctx):
            self.task = asyncio.create_task(asyncio.sleep(3600), name="forgotten")

        async def on_unload(self, ctx):
            self.task.cancel()

    async with ModuleBench(Forgetful) as forgetful:
        await forgetful.start()
        assert (await forgetful.lingering()).tasks == ("forgotten (sleep)",)
        await forgetful.stop()


class Everything(PlatformModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        await ctx.events.subscribe([], lambda event: None)


@pytest.mark.parametrize(
    ("manifest", "received"),
    [
        ({}, 0),
        ({"events": {"subscribes": ["*"]}}, 0),
        ({"events": {"subscribes": ["*", "TOKEN_CREATED"]}}, 1),
    ],
    ids=str,
)
async def test_events_about_accounts_are_withheld_as_a_controller_does(
    manifest: dict[str, object], received: int
) -> None:
    async with ModuleBench(Everything, manifest=manifest) as bench:
        await bench.start()
        assert await bench.emit("TOKEN_CREATED", {"name": "ci"}) == received
        assert await bench.emit("GROUP_CREATED") == 1
