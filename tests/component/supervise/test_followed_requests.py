"""A request can be followed: its id is in the log of the controller and of the node, and in nobody else's records."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx

from corral.system.logs import Logs
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

GROUP = {
    "name": "web",
    "min": 0,
    "command": ["/bin/sh", "-c", "while read line; do echo got $line; done"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
    "memory_mb": 16,
}


def records_of(logs: Logs, request: str) -> list[tuple[str, dict[str, str]]]:
    found = logs.ring.tail(10_000)
    return [(record.message, record.fields) for _, record in found if record.fields.get("request") == request]


def messages_of(logs: Logs, request: str) -> set[str]:
    return {message for message, _ in records_of(logs, request)}


async def ask(
    controller: LocalController, request: str, method: str, path: str, body: dict[str, Any] | None = None
) -> Any:
    headers = {"Authorization": f"Bearer {controller.admin_token}", "X-Request-Id": request}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=30) as client:
        answer = await client.request(method, f"/api/v1{path}", json=body)
    assert answer.status_code < 300, answer.text
    assert answer.headers["x-request-id"] == request
    return answer.json() if answer.content else None


async def has(logs: Logs, request: str, *messages: str) -> None:
    await eventually(
        lambda: set(messages) <= messages_of(logs, request), state=lambda: str(records_of(logs, request))
    )


async def test_a_start_a_command_and_a_stop_are_found_on_both_sides_by_their_requests(
    cluster: LocalCluster, logs: Logs
) -> None:
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    await ask(controller, "req-group", "POST", "/groups", GROUP)
    started = await ask(controller, "req-start", "POST", "/instances?wait=running", {"group": "web"})
    id = started["id"]
    await has(logs, "req-start", "instance_order.sent", "instance_state.changed")
    ordered = [
        fields for message, fields in records_of(logs, "req-start") if message == "instance_order.sent"
    ]
    assert ordered[0]["instance"] == id
    assert ordered[0]["node"] == "n1"
    assert ordered[0]["decision"].startswith("dec-")
    moved = [
        fields for message, fields in records_of(logs, "req-start") if message == "instance_state.changed"
    ]
    assert [fields["state"] for fields in moved] == ["PREPARING", "STARTING", "RUNNING"]
    assert {fields["decision"] for fields in moved} == {ordered[0]["decision"]}

    await ask(controller, "req-line", "POST", f"/instances/{id}/command", {"command": "hello"})
    accepted = [fields for message, fields in records_of(logs, "req-line") if message == "command.accepted"]
    assert len(accepted) == 2, "one record of the node, one of the controller"
    assert "hello" not in json.dumps(accepted)

    await ask(controller, "req-stop", "POST", f"/instances/{id}/stop?wait=stopped", {})
    await has(logs, "req-stop", "instance_order.sent", "instance_state.changed", "instance.ended")
    assert "instance.ended" not in messages_of(logs, "req-start"), "the start is not behind the stop"
    why = await ask(controller, "req-why", "GET", f"/instances/{id}/why")
    assert [each["request"] for each in why["decisions"]][:2] == ["req-stop", "req-start"]


async def test_what_a_scaling_starts_later_is_found_by_its_request(cluster: LocalCluster, logs: Logs) -> None:
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    await ask(controller, "req-group", "POST", "/groups", GROUP)
    await ask(controller, "req-scale", "POST", "/groups/web/scale", {"count": 2})
    await eventually(
        lambda: len([m for m, f in records_of(logs, "req-scale") if f.get("state") == "RUNNING"]) == 2,
        state=lambda: str(records_of(logs, "req-scale")),
    )


async def test_requests_at_once_are_not_mixed_up(cluster: LocalCluster, logs: Logs) -> None:
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    await ask(controller, "req-group", "POST", "/groups", GROUP)
    names = [f"req-{number}" for number in range(6)]
    started = await asyncio.gather(
        *(ask(controller, name, "POST", "/instances?wait=running", {"group": "web"}) for name in names)
    )
    for name, instance in zip(names, started, strict=True):
        await has(logs, name, "instance_order.sent", "instance_state.changed")
        about = {fields.get("instance", instance["id"]) for _, fields in records_of(logs, name)}
        assert about == {instance["id"]}
    logging.getLogger("corral.test").warning("afterwards")
    last = logs.ring.tail(1)[0][1]
    assert "request" not in last.fields, "nothing of a request stays behind"


async def test_a_crash_later_on_is_not_put_down_to_the_start(cluster: LocalCluster, logs: Logs) -> None:
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    crashing = {**GROUP, "command": ["/bin/sh", "-c", "read line; exit 3"]}
    await ask(controller, "req-group", "POST", "/groups", crashing)
    started = await ask(controller, "req-start", "POST", "/instances?wait=running", {"group": "web"})
    await ask(controller, "req-line", "POST", f"/instances/{started['id']}/command", {"command": "go"})

    def ends() -> list[dict[str, str]]:
        return [record.fields for _, record in logs.ring.tail(10_000) if record.message == "instance.ended"]

    await eventually(lambda: bool(ends()))
    assert all("request" not in fields for fields in ends())


async def test_an_id_that_is_no_id_is_replaced(cluster: LocalCluster) -> None:
    controller = await cluster.controller()
    for given in ["a b", "x" * 129, "\u00e9", 'a"b', "<b>", ""]:
        async with httpx.AsyncClient(base_url=controller.url) as client:
            answer = await client.get("/health", headers={"X-Request-Id": given.encode("latin-1")})
        assert answer.headers["x-request-id"].startswith("req-"), given
