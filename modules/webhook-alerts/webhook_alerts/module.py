"""The module: events go into an outbox, and from there to their destinations until these have them."""

from __future__ import annotations

import asyncio
import datetime as dt

import msgspec

from corral.sdk import (
    Collection,
    Event,
    F,
    Health,
    HttpError,
    HttpRequestFailed,
    Index,
    ModuleContext,
    PlatformModule,
    Request,
    Response,
    Routes,
)
from webhook_alerts.messages import body_of, headers_of, pause_before
from webhook_alerts.settings import Destination, Settings

_BATCH = 50
_RUN_SECONDS = 60.0
"""A turn and the slowest request that settings allow, with room to spare: an overrun would fail the module."""


class Delivery(msgspec.Struct):
    """A message on its way to one destination."""

    destination: str
    type: str
    subject: str
    order: int
    """Its place among all events."""
    body: str
    state: str = "waiting"
    """`waiting`, or `failed`: it was given up."""
    attempts: int = 0
    due: float = 0.0
    """When it is tried next, in seconds of Unix time."""
    error: str = ""


class WebhookAlerts(PlatformModule):
    """Routes: `GET /deliveries`, `POST /deliveries/retry`, `POST /test/{destination}`."""

    turn_seconds = 5.0
    """After this a destination that takes its time gives the others their turn."""
    ctx: ModuleContext
    settings: Settings
    outbox: Collection[Delivery]

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.settings = ctx.settings(Settings)
        storage = ctx.require_document_storage()
        self.outbox = await storage.create(
            "outbox", Delivery, indexes=[Index("destination", "state", "order"), Index("state", "due")]
        )
        self._sending = asyncio.Lock()
        self._sent = ctx.metrics.counter("webhook_deliveries", "Deliveries by how they ended")
        await ctx.events.subscribe([], self.enqueue, durable="alerts")
        await ctx.scheduler.every(1, self.send_due, name="send", deadline=_RUN_SECONDS)

    async def on_reload(self, ctx: ModuleContext) -> None:
        self.settings = ctx.settings(Settings)
        await self._forget_strangers()

    async def enqueue(self, event: Event) -> None:
        """One message for each destination that wants it. An event that comes again replaces what it left."""
        for destination in self.settings.destinations:
            if destination.accepts(event.type, private=self.ctx.manifest.events.subscribes):
                await self._put(destination, event)

    async def _put(self, destination: Destination, event: Event) -> None:
        delivery = Delivery(
            destination=destination.name,
            type=event.type,
            subject=event.subject,
            order=int(event.cursor.rpartition("-")[2]),
            body=body_of(destination, event).decode(),
        )
        await self.outbox.replace(f"{destination.name}:{event.cursor}", delivery, upsert=True)

    async def send_due(self) -> None:
        """Destinations side by side, each for a turn: a slow one holds up the others by one message at most."""
        if not self._sending.locked():
            async with self._sending:
                await asyncio.gather(*(self._send_to(each) for each in self.settings.destinations))

    async def _send_to(self, destination: Destination) -> None:
        """One destination, in the order of events: what was not taken holds up what came after it."""
        now = asyncio.get_running_loop().time
        until = now() + self.turn_seconds
        waiting = (F.destination == destination.name) & (F.state == "waiting")
        for stored in await self.outbox.find(waiting, sort=["order"], limit=_BATCH):
            if stored.value.due > dt.datetime.now(dt.UTC).timestamp():
                return
            error = await self._send(destination, stored.id, stored.value)
            if error is not None:
                await self._put_off(stored.id, stored.value, error)
                return
            await self.outbox.delete(stored.id)
            self._sent.increase(outcome="sent", destination=destination.name)
            if now() >= until:
                return

    async def _forget_strangers(self) -> None:
        """What was meant for destinations that are gone from the settings."""
        names = [each.name for each in self.settings.destinations]
        await self.outbox.delete_many(~F.destination.one_of(*names) if names else None)

    async def _send(self, destination: Destination, id: str, delivery: Delivery) -> str | None:
        """None when it was taken, else why not; without the address, which often is a secret itself."""
        body = delivery.body.encode()
        headers = headers_of(destination, delivery=id, type=delivery.type, body=body)
        try:
            answer = await self.ctx.http.post(
                destination.url, body=body, headers=headers, timeout=self.settings.timeout_seconds
            )
        except HttpRequestFailed as error:
            return error.why
        except ValueError:
            return "its url is none that can be asked"
        return None if 200 <= answer.status < 300 else f"status {answer.status}"

    async def _put_off(self, id: str, delivery: Delivery, error: str) -> None:
        attempts = delivery.attempts + 1
        given_up = attempts >= self.settings.attempts
        due = dt.datetime.now(dt.UTC).timestamp() + pause_before(attempts)
        await self.outbox.update(
            id,
            set={
                "attempts": attempts,
                "due": due,
                "error": error[:500],
                "state": "failed" if given_up else "waiting",
            },
        )
        self._sent.increase(outcome="failed" if given_up else "retried", destination=delivery.destination)
        if given_up:
            self.ctx.logger.warning("%s is given up after %d attempts: %s", id, attempts, error)
            await self._forget_failed()

    async def _forget_failed(self) -> None:
        surplus = await self.outbox.find(
            F.state == "failed", sort=["-due"], skip=self.settings.keep_failed, limit=_BATCH
        )
        for stored in surplus:
            await self.outbox.delete(stored.id)

    async def health_check(self) -> Health:
        failed = await self.outbox.count(F.state == "failed")
        return Health(failed == 0, f"{failed} deliveries were given up" if failed else "")

    def register_routes(self, routes: Routes) -> None:
        routes.get("/deliveries", self.list_deliveries, summary="What waits, and what was given up.")
        routes.post("/deliveries/retry", self.retry, summary="Try everything that was given up again.")
        routes.post("/test/{destination}", self.test, summary="Send a test message now.", deadline_ms=30_000)

    async def list_deliveries(self, request: Request) -> list[dict[str, object]]:
        found = await self.outbox.find(sort=["due"], limit=500)
        return [{"id": stored.id, **msgspec.to_builtins(stored.value)} for stored in found]

    async def retry(self, request: Request) -> dict[str, int]:
        again = {"state": "waiting", "due": 0.0, "attempts": 0}
        return {"retried": await self.outbox.update_many(F.state == "failed", set=again)}

    async def test(self, request: Request) -> Response:
        name = request.parameters["destination"]
        destination = self.settings.find(name)
        if destination is None:
            known = ", ".join(each.name for each in self.settings.destinations) or "none"
            raise HttpError(404, f"there is no destination '{name}'", hint=f"known: {known}")
        event = Event(type="TEST", subject=name, at=dt.datetime.now(dt.UTC), cursor="test", data={})
        delivery = Delivery(
            destination=name, type="TEST", subject=name, order=0, body=body_of(destination, event).decode()
        )
        error = await self._send(destination, f"{name}:test", delivery)
        if error is not None:
            raise HttpError(502, f"'{name}' did not take it: {error}", hint="check its url and its log")
        return Response({"sent": True})
