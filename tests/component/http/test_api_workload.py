"""The workload API: what a run may say about itself, and whose token is nobody's."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest
from http_rig import TOKEN_LIFE, Rig

from corral.controller.state.collections import INSTANCES
from corral.controller.workload.tokens import workload_key
from corral.controller.workload.vitals import MAX_METRICS
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import Incarnation, restart_incarnation
from corral.domain.instance_states import InstanceState
from corral.errors import Retryable
from corral.pki.keys import ClusterKey
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import WorkloadReport

WORKLOAD = "/api/v1/workload"


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def token_of(rig: Rig, record: InstanceRecord) -> str:
    """As its node got it, with the order to start."""
    orders = [
        message.start_instance
        for link in rig.sessions.links.values()
        for message in link.sent
        if message.WhichOneof("payload") == "start_instance"
    ]
    return next(order.plugin_token for order in orders if order.instance_id == record.id)


def reports(rig: Rig, node: str = "node-1") -> list[WorkloadReport]:
    sent = rig.sessions.links[node].sent  # type: ignore[index]
    return [message.workload_report for message in sent if message.WhichOneof("payload") == "workload_report"]


async def say(rig: Rig, token: str, what: str, body: Any = None) -> httpx.Response:
    async with rig.client(token) as workload:
        return await workload.post(f"{WORKLOAD}/{what}", json=body)


async def shape(rig: Rig, record: InstanceRecord) -> dict[str, Any]:
    async with rig.client() as client:
        return (await client.get(f"/api/v1/instances/{record.id}")).json()


async def test_a_run_says_that_it_is_ready_and_its_node_hears_it(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    assert token.startswith("cw1.")
    answer = await say(rig, token, "ready")
    assert (answer.status_code, answer.content) == (204, b"")
    (report,) = reports(rig)
    assert (report.instance_id, report.incarnation, report.ready) == (record.id, record.incarnation, True)
    assert not report.players_known
    vital = rig.workload.vitals.find(record.id)
    assert vital is not None
    assert vital.ready


async def test_players_and_figures_are_shown_with_the_instance(rig: Rig) -> None:
    await rig.group(max_players=100)
    record = await rig.instance()
    token = token_of(rig, record)
    assert ((await shape(rig, record))["players"], (await shape(rig, record))["max_players"]) == (None, 100)
    assert (await say(rig, token, "players", {"count": 3, "max": 20})).status_code == 204
    assert (await say(rig, token, "metrics", {"tps": 19.5, "chunks": 200})).status_code == 204
    assert (await say(rig, token, "metrics", {"tps": 20})).status_code == 204
    shown = await shape(rig, record)
    assert (shown["players"], shown["max_players"]) == (3, 20)
    assert shown["metrics"] == {"tps": 20.0, "chunks": 200.0}
    (report,) = reports(rig)
    assert (report.players_known, report.player_count, report.max_players) == (True, 3, 20)


NONSENSE = [
    ("players", {}),
    ("players", {"count": -1}),
    ("players", {"count": 10**9}),
    ("players", {"count": 1, "maximum": 3}),
    ("metrics", {"a b": 1}),
    ("metrics", {"a\n": 1}),
    ("metrics", {"x": "1"}),
    ("metrics", {f"m{number}": 1 for number in range(MAX_METRICS + 1)}),
    ("ready", {"x": 1}),
]


async def test_what_makes_no_sense_is_refused(rig: Rig) -> None:
    record = await rig.instance()
    for what, body in NONSENSE:
        assert (await say(rig, token_of(rig, record), what, body)).status_code == 400, (what, body)
        assert reports(rig) == [], (what, body)


async def test_what_is_wrong_with_figures_is_said_in_words(rig: Rig) -> None:
    token = token_of(rig, await rig.instance())
    name = (await say(rig, token, "metrics", {"a b": 1})).json()["error"]
    assert name["message"].startswith("a name in the body is invalid: ")
    value = (await say(rig, token, "metrics", {"x": "1"})).json()["error"]
    assert value["message"] == "a value in the body is invalid: Expected float, got str"
    assert "field" not in value


async def test_figures_are_bounded_over_many_calls(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    half = MAX_METRICS // 2
    for part in range(2):
        body = {f"m{part}.{number}": 1 for number in range(half)}
        assert (await say(rig, token, "metrics", body)).status_code == 204
    refused = await say(rig, token, "metrics", {"one.more": 1})
    assert error(refused) == (400, "INVALID_FIELD")
    assert len((await shape(rig, record))["metrics"]) == MAX_METRICS
    async with rig.client(token) as workload:
        huge = await workload.post(
            f"{WORKLOAD}/metrics", content=b'{"m0.1": 1e999}', headers={"Content-Type": "application/json"}
        )
    assert huge.status_code == 400


async def test_a_token_opens_nothing_else(rig: Rig) -> None:
    record = await rig.instance()
    async with rig.client(token_of(rig, record)) as workload:
        for path in ("/api/v1/instances", "/api/v1/auth/me", "/metrics", "/api/v1/templates"):
            assert error(await workload.get(path)) == (401, "UNAUTHENTICATED")


def forged(token: str, **changed: Any) -> str:
    """The same code over another payload."""
    prefix, payload, code = token.split(".")
    instance, incarnation, expires = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    told = {"instance": instance, "incarnation": incarnation, "expires": expires, **changed}
    body = base64.urlsafe_b64encode(json.dumps(list(told.values())).encode()).decode().rstrip("=")
    return f"{prefix}.{body}.{code}"


async def test_a_token_that_was_changed_is_nobodys(rig: Rig) -> None:
    record = await rig.instance()
    other = await rig.instance()
    token = token_of(rig, record)
    wrong = [
        forged(token, instance=other.id),
        forged(token, expires=10**12),
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token + "A",
        token + "=",
        token[:-10],
        "cw1..",
        "cw1.x.y",
        "cw2" + token[3:],
        "x" * 5000,
        rig.admin,
    ]
    for text in wrong:
        refused = await say(rig, text, "ready")
        assert error(refused) == (401, "WORKLOAD_TOKEN_INVALID"), text
        late = await say(rig, text, "token")
        assert error(late) == (401, "WORKLOAD_TOKEN_INVALID"), text
    assert reports(rig) == []


async def test_a_token_of_another_cluster_is_nobodys(rig: Rig) -> None:
    record = await rig.instance()
    body = token_of(rig, record).rpartition(".")[0]
    code = hmac.digest(bytes(32), body.encode(), hashlib.sha256)
    text = f"{body}.{base64.urlsafe_b64encode(code).decode().rstrip('=')}"
    refused = await say(rig, text, "ready")
    assert "not made by this cluster" in refused.json()["error"]["message"]


def test_keys_for_different_purposes_differ() -> None:
    key = ClusterKey(bytes(32))
    assert key.derive("a") == ClusterKey(bytes(32)).derive("a")
    assert len({key.derive("a"), key.derive("b"), ClusterKey(b"\1" * 32).derive("a")}) == 3


async def test_an_expired_token_is_told_so_and_may_be_renewed_late(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    rig.clock.offset = TOKEN_LIFE + dt.timedelta(seconds=1)
    refused = await say(rig, token, "ready")
    assert error(refused) == (401, "WORKLOAD_TOKEN_INVALID")
    assert "expired" in refused.json()["error"]["message"]
    assert "/workload/token" in refused.json()["error"]["hint"]
    renewed = await say(rig, token, "token")
    assert renewed.status_code == 200, renewed.text
    assert set(renewed.json()) == {"token", "expires_at"}
    assert dt.datetime.fromisoformat(renewed.json()["expires_at"]) > rig.clock.now()
    assert (await say(rig, renewed.json()["token"], "ready")).status_code == 204
    assert error(await say(rig, token, "ready")) == (401, "WORKLOAD_TOKEN_INVALID")


async def test_a_restart_by_the_node_keeps_the_token_and_begins_with_nothing_said(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    await say(rig, token, "players", {"count": 5})
    following = restart_incarnation(record.incarnation)
    await rig.report(record.id, incarnation=following, state=InstanceState.STARTING)
    assert rig.workload.vitals.find(record.id) is None
    assert (await shape(rig, record))["players"] is None
    assert (await say(rig, token, "ready")).status_code == 204
    assert reports(rig)[-1].incarnation == following


@pytest.mark.trap("T49")
async def test_a_token_of_the_run_before_speaks_for_nobody(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    await rig.report(record.id, incarnation=Incarnation(record.incarnation + 1024))
    for what in ("ready", "token"):
        refused = await say(rig, token, what)
        assert error(refused) == (401, "WORKLOAD_TOKEN_INVALID")
        assert "earlier run" in refused.json()["error"]["message"]
    assert reports(rig) == []


@pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.CRASHED])
async def test_a_token_ends_with_its_run_and_so_does_what_was_said(rig: Rig, state: InstanceState) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    await say(rig, token, "players", {"count": 5})
    await say(rig, token, "metrics", {"tps": 20})
    await rig.report(record.id, state=state)
    for what in ("ready", "token"):
        refused = await say(rig, token, what)
        assert error(refused) == (401, "WORKLOAD_TOKEN_INVALID")
        assert str(state) in refused.json()["error"]["message"]
    assert len(rig.workload.vitals) == 0
    assert ((await shape(rig, record))["players"], (await shape(rig, record))["metrics"]) == (None, {})


async def test_an_instance_that_is_gone_has_no_token(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    stored = rig.state.instances.require(record.id)
    await rig.ledger.commit(INSTANCES.delete(record.id, expect=stored.revision))
    refused = await say(rig, token, "ready")
    assert "does not exist any more" in refused.json()["error"]["message"]


async def test_a_node_that_cannot_be_told_is_no_reason_to_believe_it_was(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    del rig.sessions.links[record.node]
    answer = await say(rig, token, "ready")
    assert error(answer) == (409, "NODE_OFFLINE")
    assert answer.headers["retry-after"] == "2"
    assert rig.workload.vitals.find(record.id) is None


async def test_a_workload_that_never_stops_talking_is_slowed_down(rig: Rig) -> None:
    record = await rig.instance()
    token = token_of(rig, record)
    async with rig.client(token) as workload:
        assert (await workload.post(f"{WORKLOAD}/ready")).status_code == 204
        refused: list[httpx.Response] = []

        async def is_refused() -> bool:
            with pytest.raises(Retryable, match="times a minute"):
                while True:
                    rig.workload.admit(token)  # without a connection in between: faster than it may
            answer = await workload.post(f"{WORKLOAD}/ready")
            refused.extend([answer] if answer.status_code != 204 else [])
            return bool(refused)

        await eventually(is_refused)  # a slow machine may have given it leave again meanwhile
    assert {error(answer) for answer in refused} == {(429, "RATE_LIMITED")}
    other = await rig.instance()
    assert (await say(rig, token_of(rig, other), "ready")).status_code == 204


async def test_players_are_a_metric_until_the_run_ends(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    await say(rig, token_of(rig, record), "players", {"count": 5})
    line = f'corral_instance_players{{group="lobby",instance="{record.id}"}}'
    assert f"{line} 5.0" in (await client.get("/metrics")).text
    await rig.report(record.id, state=InstanceState.STOPPED)
    assert line not in (await client.get("/metrics")).text


async def test_a_stage_is_shown_while_an_instance_is_prepared_and_not_after(rig: Rig) -> None:
    record = await rig.instance(state=InstanceState.PREPARING)
    rig.workload.vitals.stage(record.id, record.incarnation, "TEMPLATE_APPLY")
    rig.workload.vitals.stage(record.id, record.incarnation - 1024, "VALIDATION")
    assert (await shape(rig, record))["stage"] == "TEMPLATE_APPLY"
    await rig.report(record.id, state=InstanceState.STARTING)
    assert (await shape(rig, record))["stage"] == ""


async def test_every_controller_of_a_cluster_derives_the_same_key_and_no_token_is_stored(rig: Rig) -> None:
    path = rig.data / "ca" / "cluster.key"
    assert workload_key(rig.state, path) == workload_key(rig.state, path)
    record = await rig.instance()
    code = token_of(rig, record).rpartition(".")[2].encode()
    for file in rig.data.rglob("*"):
        if file.is_file():
            assert code not in file.read_bytes(), file


async def test_reports_are_described_with_a_scheme_of_their_own(client: httpx.AsyncClient) -> None:
    described = (await client.get("/api/v1/openapi.json")).json()
    operation = described["paths"]["/api/v1/workload/ready"]["post"]
    assert operation["security"] == [{"workload": []}]
    assert "x-permission" not in operation
    assert described["components"]["securitySchemes"]["workload"]["scheme"] == "bearer"
    upload = described["paths"]["/api/v1/templates/{name}"]["put"]
    assert "application/gzip" in upload["requestBody"]["content"]
    assert upload["requestBody"]["content"]["application/zip"]["schema"]["format"] == "binary"
    assert "/api/v1/templates/{group}/{name}/-/files/{path}" in described["paths"]
