"""A platform module as an author writes it; every line is checked by mypy --strict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol, assert_type

import msgspec

from corral.sdk import (
    ABSENT,
    CapabilityBinding,
    CapabilityHandle,
    Collection,
    CommandCall,
    CommandParameter,
    Commands,
    DocumentStorage,
    Event,
    F,
    Health,
    HttpAnswer,
    HttpError,
    KeyValueStorage,
    ModuleContext,
    PlatformModule,
    Request,
    Response,
    Routes,
    ScheduledTask,
    Subscription,
)


class Player(msgspec.Struct):
    name: str
    score: int = 0


class Scores(Protocol):
    async def score_of(self, *, player: str) -> int: ...


class Settings(msgspec.Struct):
    limit: int = 10


class Board:
    async def score_of(self, *, player: str) -> int:
        return len(player)


class Stats(PlatformModule):
    players: Collection[Player]

    async def on_load(self, ctx: ModuleContext) -> None:
        assert_type(ctx.settings(Settings), Settings)
        assert_type(ctx.find_document_storage(), DocumentStorage | None)
        assert_type(ctx.require_document_storage(), DocumentStorage)
        assert_type(ctx.find_key_value_storage(), KeyValueStorage | None)
        assert_type(ctx.previous_version, str)
        assert_type(ctx.is_upgrade, bool)

    async def on_start(self, ctx: ModuleContext) -> None:
        self.players = ctx.require_document_storage().collection("players", Player)
        found = await self.players.find(F.score > 3, limit=5)
        for one in found:
            assert_type(one.value, Player)
        scores = ctx.capabilities.require("acme.scores", Scores)
        assert_type(scores, CapabilityHandle[Scores])
        assert_type(await scores.call.score_of(player="ada"), int)
        assert_type(scores.get(), Scores | None)
        assert_type(ctx.capabilities.find("acme.scores", Scores), CapabilityHandle[Scores] | None)
        assert_type(await ctx.events.subscribe(["A", "B"], self.on_event, durable=True), Subscription)
        assert_type(await ctx.events.publish("X", Player(name="ada"), subject="s"), str)
        assert_type(await ctx.scheduler.every(60, self.tick, initial_delay=0), ScheduledTask)
        assert_type(await ctx.http.get("https://example.org", timeout=3), HttpAnswer)
        ctx.metrics.counter("rounds").increase(2, map="desert")
        await scores.call.score_of(player=3)  # E: arg-type
        scores.call.unknown()  # E: attr-defined
        ctx.host = 3  # E: assignment
        await ctx.scheduler.cron("* * * * *", self.on_event)  # E: arg-type

    def on_stop(self, ctx: ModuleContext) -> None:
        """A plain hook."""
        assert_type(ctx.run(ctx.events.publish("X")), str)

    async def on_event(self, event: Event) -> None:
        assert_type(event.data, dict[str, Any])
        assert_type(event.data_as(Player), Player)

    def tick(self) -> None: ...

    def register_routes(self, routes: Routes) -> None:
        routes.get("/players/{name}", self.player, summary="One player")
        routes.post("/players", self.add, body=Player, permission="modules.use")
        routes.get("/export", self.export, streams=True)
        routes.get("/wrong", self.player, sumary="")  # E: call-arg
        routes.get("/wrong", self.tick)  # E: arg-type

    async def player(self, request: Request) -> Player:
        raise HttpError(404, request.parameters["name"])

    def add(self, request: Request) -> Response:
        return Response(request.json(Player), status=201)

    async def export(self, request: Request) -> Response:
        return Response.stream(self.lines(), content_type="text/csv")

    async def lines(self) -> AsyncIterator[bytes]:
        yield b"a,b\n"

    def register_commands(self, commands: Commands) -> None:
        commands.add("stats show", self.show, parameters=[CommandParameter("player")])

    async def show(self, call: CommandCall) -> list[str]:
        return [call.named["player"]]

    def capability_handles(self) -> Iterable[CapabilityBinding[Any]]:
        yield CapabilityBinding("acme.scores", Scores, Board)
        yield CapabilityBinding[Scores]("acme.scores", Scores, Settings)  # E: arg-type

    async def health_check(self) -> Health:
        return Health(False, "resting")


absent = ABSENT
