"""Tests of webhook-alerts. Run them with: corral module test modules/webhook-alerts"""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from webhook_alerts.messages import pause_before
from webhook_alerts.module import WebhookAlerts
from webhook_alerts.settings import Destination

from corral.testing.module_bench import ModuleBench

SECRET = "a-secret-of-16-letters"


class Receiver:
    """A service that takes webhooks, or refuses them by the path that was asked."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], Any]] = []
        self.refusing: set[str] = set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.received.append((self.path, dict(self.headers.items()), body))
                self.send_response(503 if self.path in outer.refusing else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def destination(self, path: str, *events: str, **more: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._server.server_port}/{path}"
        return {"name": path, "url": url, "events": list(events or ("*",)), **more}

    def subjects(self, path: str) -> list[str]:
        return [json.loads(body)["subject"] for at, _, body in self.received if at == f"/{path}"]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def bench(*destinations: dict[str, Any], module: type = WebhookAlerts, **settings: Any) -> ModuleBench:
    return ModuleBench(
        module, manifest="module.yaml", config={"destinations": list(destinations), **settings}
    )


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [("*", True), ("INSTANCE_*", True), ("INSTANCE_CRASHED", True), ("INSTANCE", False), ("NODE_*", False)],
)
def test_a_star_stands_for_any_ending(pattern: str, wanted: bool) -> None:
    assert Destination(name="a", url="", events=(pattern,)).accepts("INSTANCE_CRASHED") is wanted


@pytest.mark.parametrize(
    ("patterns", "received"),
    [
        (("*",), ["g"]),
        (("*", "TOKEN_CREATED"), ["t", "g"]),
        (("TOKEN_*",), ["t"]),
        (("USER_*", "ROLE_*"), ["u"]),
        (("*", "TOKEN_*", "USER_*", "INSTANCE_COMMAND"), ["t", "u", "c", "g"]),
        (("INSTANCE_*",), []),
        (("INSTANCE_COMMAND",), ["c"]),
    ],
)
async def test_what_is_private_is_sent_to_whom_it_is_named_for(
    receiver: Receiver, patterns: tuple[str, ...], received: list[str]
) -> None:
    async with bench(receiver.destination("ops", *patterns)) as on_bench:
        await on_bench.start()
        for type, subject in (
            ("TOKEN_CREATED", "t"),
            ("USER_LOCKED", "u"),
            ("INSTANCE_COMMAND", "c"),
            ("GROUP_CREATED", "g"),
        ):
            await on_bench.emit(type, subject=subject)
        await on_bench.tick(5)
        assert receiver.subjects("ops") == received


def test_pauses_grow_up_to_ten_minutes() -> None:
    assert [pause_before(attempt) for attempt in (1, 2, 3, 10, 11, 50)] == [1, 2, 4, 512, 600, 600]


async def test_a_message_is_told_once_in_order_and_signed(receiver: Receiver) -> None:
    async with bench(receiver.destination("ops", "INSTANCE_*", secret=SECRET)) as on_bench:
        await on_bench.start()
        await on_bench.emit("INSTANCE_CRASHED", {"reason": "exit 1"}, subject="lobby-1")
        await on_bench.emit("NODE_ONLINE", subject="n1")
        await on_bench.emit("INSTANCE_STOPPED", subject="lobby-2")
        await on_bench.tick(5)
        assert receiver.subjects("ops") == ["lobby-1", "lobby-2"]
        _, headers, body = receiver.received[0]
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert headers["Corral-Signature"] == f"sha256={digest}"
        assert (headers["Corral-Event"], headers["Corral-Delivery"]) == ("INSTANCE_CRASHED", "ops:1")
        assert json.loads(body)["data"] == {"reason": "exit 1"}
        assert (await on_bench.request("GET", "/deliveries")).json(list[Any]) == []
        assert (await on_bench.metrics())["webhook_deliveries"] == 2


@pytest.mark.parametrize(("form", "field"), [("discord", "content"), ("slack", "text")])
async def test_chats_get_a_sentence(receiver: Receiver, form: str, field: str) -> None:
    async with bench(receiver.destination("chat", format=form)) as on_bench:
        await on_bench.start()
        await on_bench.emit("INSTANCE_CRASHED", {"reason": "@everyone"}, subject="lobby-1")
        await on_bench.tick(1)
        told = json.loads(receiver.received[0][2])
        assert told[field] == "lobby-1: instance crashed (@everyone)"
        assert told.get("allowed_mentions", {"parse": []}) == {"parse": []}


async def test_what_is_not_taken_holds_up_its_own_destination_only(receiver: Receiver) -> None:
    receiver.refusing.add("/down")
    async with bench(receiver.destination("down"), receiver.destination("up")) as on_bench:
        await on_bench.start()
        for subject in ("one", "two"):
            await on_bench.emit("INSTANCE_STOPPED", subject=subject)
        await on_bench.tick(1)
        assert receiver.subjects("up") == ["one", "two"]
        assert receiver.subjects("down") == ["one"]
        waiting = (await on_bench.request("GET", "/deliveries")).json(list[dict[str, Any]])
        assert {each["subject"]: each["attempts"] for each in waiting} == {"one": 1, "two": 0}
        assert {each["error"] for each in waiting} == {"status 503", ""}


async def test_what_was_given_up_is_told_and_can_be_tried_again(receiver: Receiver) -> None:
    receiver.refusing.add("/ops")
    async with bench(receiver.destination("ops"), attempts=1) as on_bench:
        await on_bench.start()
        await on_bench.emit("INSTANCE_CRASHED", subject="lobby-1")
        await on_bench.tick(1)
        health = await on_bench.health()
        assert (health.healthy, health.detail) == (False, "1 deliveries were given up")
        receiver.refusing.clear()
        assert (await on_bench.request("POST", "/deliveries/retry")).json(dict[str, int]) == {"retried": 1}
        await on_bench.tick(1)
        assert receiver.subjects("ops") == ["lobby-1", "lobby-1"]
        assert (await on_bench.health()).healthy


async def test_only_so_many_that_were_given_up_are_kept(receiver: Receiver) -> None:
    receiver.refusing.add("/ops")
    async with bench(receiver.destination("ops"), attempts=1, keepFailed=2) as on_bench:
        await on_bench.start()
        for number in range(4):
            await on_bench.emit("INSTANCE_CRASHED", subject=f"lobby-{number}")
            await on_bench.tick(1)
        kept = (await on_bench.request("GET", "/deliveries")).json(list[dict[str, Any]])
        assert [each["subject"] for each in kept] == ["lobby-2", "lobby-3"]


async def test_an_address_is_never_told() -> None:
    """Whoever knows the address of a chat's webhook can write there."""
    gone = Receiver()
    gone.close()
    closed = gone.destination("closed")
    odd = {**closed, "name": "odd", "url": "http://[127.0.0.1/secret"}
    async with bench(closed, odd, attempts=1) as on_bench:
        await on_bench.start()
        await on_bench.emit("INSTANCE_CRASHED", subject="lobby-1")
        await on_bench.tick(1)
        listed = (await on_bench.request("GET", "/deliveries")).json(list[dict[str, Any]])
        errors = [each["error"] for each in listed]
        lines = [line.message for line in await on_bench.logs()]
        assert len(errors) == len(lines) == 2
        assert all(errors)
        assert not [text for text in (*errors, *lines) if "127.0.0.1" in text]


class Hasty(WebhookAlerts):
    turn_seconds = 0.0


async def test_a_destination_that_takes_its_time_gives_way_after_its_turn(receiver: Receiver) -> None:
    async with bench(receiver.destination("ops"), module=Hasty) as on_bench:
        await on_bench.start()
        for subject in ("one", "two", "three"):
            await on_bench.emit("INSTANCE_STOPPED", subject=subject)
        counts = []
        for _ in range(3):
            await on_bench.tick(1)
            counts.append(len(receiver.received))
        assert counts == [1, 2, 3]


async def test_a_turn_ends_before_its_deadline_whatever_the_settings_allow() -> None:
    async with bench() as on_bench:
        await on_bench.start()
        slowest = on_bench.manifest.config["properties"]["timeoutSeconds"]["maximum"]
        (task,) = on_bench.tasks
        assert task.schedule.deadline_ms > (WebhookAlerts.turn_seconds + slowest) * 1000


async def test_messages_for_a_destination_that_is_gone_are_forgotten(receiver: Receiver) -> None:
    receiver.refusing |= {"/old", "/new"}
    old, new = receiver.destination("old"), receiver.destination("new")
    async with bench(old, new) as on_bench:
        await on_bench.start()
        await on_bench.emit("INSTANCE_CRASHED", subject="lobby-1")
        await on_bench.reload({"destinations": [new]})
        left = (await on_bench.request("GET", "/deliveries")).json(list[dict[str, Any]])
        assert [each["destination"] for each in left] == ["new"]


async def test_a_destination_can_be_tried_at_once(receiver: Receiver) -> None:
    async with bench(receiver.destination("ops"), receiver.destination("down")) as on_bench:
        await on_bench.start()
        receiver.refusing.add("/down")
        assert (await on_bench.request("POST", "/test/ops")).json(dict[str, bool]) == {"sent": True}
        assert (await on_bench.request("POST", "/test/down")).status == 502
        assert (await on_bench.request("POST", "/test/nobody")).status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"destinations": [{"name": "a", "url": "ftp://example.org", "events": ["*"]}]},
        {"destinations": [{"name": "A", "url": "http://example.org", "events": ["*"]}]},
        {"destinations": [{"name": "a", "url": "http://example.org", "events": []}]},
        {"destinations": [{"name": "a", "url": "http://example.org", "events": ["*"], "secret": "short"}]},
        {"attempts": 0},
        {"unknown": 1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="settings do not fit"):
        ModuleBench(WebhookAlerts, manifest="module.yaml", config=wrong)
