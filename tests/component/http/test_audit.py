"""The audit over the API: entries before effects and outcomes after them, its export, its filters, and its readers."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.controller.http.messages.call import Caller
from corral.controller.http.pipeline.audit_reads import MOST_REMEMBERED
from corral.controller.state.ledger import Actor
from corral.controller.term.housekeeping import Housekeeping
from corral.controller.term.lost_outcomes import settle_lost_outcomes
from corral.domain.access import access_of_role
from corral.domain.audit_export import REMOVAL_ACTION, ExportVerdict, check_export
from corral.domain.ids import CallerId, UserName
from corral.domain.permissions import Role
from corral.errors import Code, Rejected, Retryable
from corral.system.controller_config import ControllerConfig, RetentionSection
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

AUDIT = "/api/v1/audit"
EXPORT = f"{AUDIT}/export"
PREWARM = "/api/v1/nodes/node-1/cache/prewarm"


async def listed(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    """All pages, the oldest first."""
    found: list[dict[str, Any]] = []
    while True:
        page = (await client.get(AUDIT, params=params)).json()
        found += page["items"]
        if not page["next"]:
            return found[::-1]
        params["cursor"] = page["next"]


async def outcomes(client: httpx.AsyncClient, action: str) -> list[str]:
    return [entry["outcome"] for entry in await listed(client, action=action)]


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def verdict_of(answer: httpx.Response, **expected: Any) -> ExportVerdict:
    assert answer.status_code == 200, answer.text
    return check_export(answer.content.splitlines(keepends=True), **expected)


async def until_healthy(rig: Rig) -> None:
    await eventually(lambda: rig.writer.healthy, state=lambda: rig.writer.reason)


async def make_tokens(client: httpx.AsyncClient, count: int) -> None:
    for n in range(count):
        assert (
            await client.post("/api/v1/tokens", json={"name": f"t{n}", "role": "VIEWER"})
        ).status_code == 201


async def test_an_export_is_whole_and_verifies(client: httpx.AsyncClient, rig: Rig) -> None:
    await make_tokens(client, 150)
    answer = await client.get(EXPORT)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"].startswith("attachment")
    verdict = verdict_of(answer)
    assert verdict.intact, verdict.faults
    chain = await rig.store.reads.chain()
    assert verdict.head == chain.head
    assert verdict.entries > 150
    assert verdict.cluster == rig.state.identity.id
    later = await client.get(EXPORT)
    assert verdict_of(later, expect=verdict.head.hash).intact
    assert not verdict_of(answer, expect=(await rig.store.reads.chain()).head.hash).intact


async def test_a_part_of_the_audit_is_exported_by_time_and_verifies(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for n in range(6):
        rig.clock.offset += dt.timedelta(hours=1)
        await client.post("/api/v1/tokens", json={"name": f"t{n}", "role": "VIEWER"})
    times = [entry["at"] for entry in await listed(client, action="tokens.create")]
    answer = await client.get(EXPORT, params={"since": times[1], "until": times[4]})
    verdict = verdict_of(answer)
    assert verdict.intact, verdict.faults
    assert verdict.entries == 3
    empty = verdict_of(await client.get(EXPORT, params={"since": "9000-01-01T00:00:00Z"}))
    assert (empty.intact, empty.entries) == (True, 0)
    early = verdict_of(await client.get(EXPORT, params={"until": "1990-01-01T00:00:00Z"}))
    assert (early.intact, early.entries) == (True, 0)
    assert error(await client.get(EXPORT, params={"since": "yesterday"})) == (400, "INVALID_FIELD")


async def retained(rig: Rig, **settings: int) -> int:
    """Let housekeeping apply these settings once; the last entry that is removed by then."""
    before = (await rig.store.reads.chain()).removed.number
    housekeeping = Housekeeping(
        config=ControllerConfig(retention=RetentionSection(**settings)),
        store=rig.store,
        ledger=rig.ledger,
        user_sessions=rig.leading.user_sessions,
        epoch=rig.cluster.epoch,
        clock=rig.clock,
    )
    async with housekeeping:

        async def removed() -> int:
            chain = await rig.store.reads.chain()
            return chain.removed.number if chain.removed.number > before else 0

        return await eventually(removed)


@pytest.mark.parametrize("settings", [{"audit": 20}, {"audit_days": 1}], ids=["number", "days"])
async def test_a_cut_in_front_is_intact_if_retention_made_it_and_is_named_if_not(
    client: httpx.AsyncClient, rig: Rig, settings: dict[str, int]
) -> None:
    await make_tokens(client, 15)
    assert verdict_of(await client.get(EXPORT)).removed == 0
    rig.clock.offset += dt.timedelta(days=3)
    await make_tokens(client, 15)
    removed = await retained(rig, **settings)
    lowered = verdict_of(await client.get(EXPORT))
    assert (lowered.intact, lowered.removed, lowered.removal_is_proved) == (True, removed, False)
    (record,) = await listed(client, action=REMOVAL_ACTION)
    assert (record["number"], record["actor"]) == (lowered.removal, "system")
    assert (record["after"]["through"], record["after"]["entries"]) == (removed, lowered.first_number - 1)
    later = verdict_of(await client.get(EXPORT), expect=lowered.head.hash)
    assert (later.intact, later.removal_is_proved) == (True, True), "the setting may be raised again since"

    journals = [("audit", removed + 5)]
    await rig.store.commits.trim(
        epoch=rig.cluster.epoch, events_through=0, tombstones_through=0, journals=journals
    )
    cut = verdict_of(await client.get(EXPORT), expect=lowered.head.hash)
    assert [fault.number for fault in cut.faults] == [removed + 5]
    assert "no entry records that retention removed them" in cut.faults[0].what


@pytest.mark.parametrize("path", [AUDIT, EXPORT])
async def test_only_callers_with_the_permission_read_the_audit(rig: Rig, path: str) -> None:
    for role in (Role.VIEWER, Role.OPERATOR):
        _, token = await rig.token(role)
        async with rig.client(token) as other:
            assert error(await other.get(path)) == (403, "FORBIDDEN")


async def test_reading_is_audited_once_a_minute_for_each_caller_and_filter(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for _ in range(3):
        await client.get(AUDIT, params={"limit": 1})
    first = await listed(client, action="audit.read", actor="")
    assert [entry["after"]["read"] for entry in first] == ["list", "list"], "the filter is another read"
    await client.get(AUDIT, params={"subject": "lobby", "since": "2020-01-01T00:00:00Z"})
    await client.get(EXPORT)
    await client.get(EXPORT)
    entries = await listed(client, action="audit.read")
    assert [entry["after"]["read"] for entry in entries] == ["list", "list", "list", "export", "export"]
    assert entries[2]["after"]["subject"] == "lobby"
    assert entries[2]["request"]
    rig.clock.offset += dt.timedelta(seconds=61)
    assert len(await listed(client, action="audit.read")) == 6
    _, token = await rig.token(Role.ADMIN)
    async with rig.client(token) as other:
        assert len(await listed(other, action="audit.read")) == 7


@pytest.mark.parametrize("path", [AUDIT, EXPORT])
async def test_nothing_of_the_audit_is_shown_while_the_store_refuses_writes(
    client: httpx.AsyncClient, rig: Rig, path: str
) -> None:
    rig.store.commits.fail(StoreFault.BEFORE)
    assert error(await client.get(path)) == (503, "STORE_UNAVAILABLE")
    await until_healthy(rig)
    assert (await client.get(path)).status_code == 200
    rig.store.commits.fail(*[StoreFault.BEFORE] * 50)
    await client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"})
    assert error(await client.get(path)) == (503, "STORE_UNAVAILABLE"), "also within the minute"


async def test_the_reads_that_are_remembered_are_bounded(rig: Rig) -> None:
    reads = rig.leading.audit_reads
    token_id, _ = await rig.token(Role.ADMIN)
    actor = Actor(name=f"token:{token_id}", address="127.0.0.1")
    caller = Caller(
        id=CallerId(token_id), user=UserName("admin"), actor=actor, access=access_of_role(Role.ADMIN)
    )
    subjects = [f"s{n}" for n in range(MOST_REMEMBERED + 5)]
    await asyncio.gather(*(reads.record_list(caller, filters={"subject": each}) for each in subjects))
    before = rig.state.number
    await reads.record_list(caller, filters={"subject": subjects[-1]})
    assert rig.state.number == before, "remembered"
    await reads.record_list(caller, filters={"subject": subjects[0]})
    assert rig.state.number == before + 1, "forgotten for others"


async def test_the_list_is_filtered_by_actor_action_and_subject_over_all_pages(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await make_tokens(client, 30)
    await client.post("/api/v1/groups", json={"name": "lobby", "template": "base", "command": "run"})
    _, token = await rig.token(Role.ADMIN, name="another")
    async with rig.client(token) as other:
        await make_tokens(other, 4)
    assert len(await listed(client, actor="another", action="tokens.create", limit=3)) == 4
    everything = await listed(client)
    created = [entry for entry in everything if entry["action"] == "tokens.create"]
    assert [e["number"] for e in await listed(client, action="tokens.", limit=7)] == [
        e["number"] for e in created
    ]
    subject = created[5]["subject"]
    assert {e["subject"] for e in await listed(client, subject=subject)} == {subject}
    by_actor = await listed(client, actor=created[0]["actor"], action="tokens.")
    assert {e["actor"] for e in by_actor} == {created[0]["actor"]}
    assert await listed(client, actor="nobody") == []


async def test_an_act_is_recorded_before_its_effect_and_with_its_outcome_after_it(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    answer = await client.post(PREWARM)
    begun, done = await listed(client, action="nodes.prewarm")
    assert (begun["outcome"], done["outcome"]) == ("begun", "ok")
    assert begun["attempt"] == done["attempt"] != ""
    assert begun["request"] == done["request"] == answer.headers["x-request-id"]
    assert begun["subject"] == done["subject"] == "node-1"
    assert done["after"]["failures"] == {"template/base": "CACHE_FULL"}


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Rejected(Code.NOT_FOUND, "no such thing"), "refused"),
        (Retryable(Code.TIMEOUT, "no answer"), "unknown"),
        (Retryable(Code.STORE_UNAVAILABLE, "no room"), "failed"),
    ],
)
async def test_an_act_that_ends_with_an_error_has_that_outcome(
    client: httpx.AsyncClient, rig: Rig, failure: Any, outcome: str
) -> None:
    await rig.node("node-1")
    rig.distribution.failure = failure
    assert error(await client.post(PREWARM))[1] == failure.code.name
    entries = await listed(client, action="nodes.prewarm")
    assert [entry["outcome"] for entry in entries] == ["begun", outcome]
    assert entries[1]["after"] == {"code": failure.code.name}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PREWARM),
        ("POST", "/api/v1/nodes/cache/prewarm"),
        ("POST", "/api/v1/modules/force-cleanup"),
        ("POST", "/api/v1/cluster/raise-epoch"),
        ("POST", "/api/v1/cluster/repair-sequence"),
    ],
)
async def test_nothing_is_done_while_the_store_refuses_the_entry(
    client: httpx.AsyncClient, rig: Rig, method: str, path: str
) -> None:
    await rig.node("node-1")
    epoch = rig.cluster.leader().epoch
    rig.store.commits.fail(StoreFault.BEFORE)
    assert error(await client.request(method, path)) == (503, "STORE_UNAVAILABLE")
    assert rig.distribution.asked == []
    assert rig.cluster.leader().epoch == epoch
    await until_healthy(rig)
    assert (await client.request(method, path)).status_code == 200


async def test_a_command_has_its_outcome_in_the_audit(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    path = f"/api/v1/instances/{record.id}/command"
    assert (await client.post(path, json={"command": "say hi"})).status_code == 200
    begun, done = await listed(client, action="instances.command")
    assert (begun["outcome"], done["outcome"]) == ("begun", "ok")
    assert begun["after"] == {"command": "say hi"}
    assert begun["request"]
    node.refuse_commands = "INPUT_CLOSED"
    await client.post(path, json={"command": "say hi"})
    assert await outcomes(client, "instances.command") == ["begun", "ok", "begun", "refused"]


async def test_an_outcome_that_the_store_refuses_is_stored_with_the_next_act(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    path = f"/api/v1/instances/{record.id}/command"
    node.on_command = lambda: rig.store.commits.fail(StoreFault.BEFORE)
    assert (await client.post(path, json={"command": "one"})).status_code == 200
    node.on_command = lambda: None
    await until_healthy(rig)
    assert await outcomes(client, "instances.command") == ["begun"]
    await client.post(path, json={"command": "two"})
    entries = await listed(client, action="instances.command")
    assert sorted(entry["outcome"] for entry in entries) == ["begun", "begun", "ok", "ok"]
    assert len({entry["attempt"] for entry in entries}) == 2


async def test_an_act_whose_outcome_was_lost_gets_an_unknown_one_in_the_next_term(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    path = f"/api/v1/instances/{record.id}/command"
    assert (await client.post(path, json={"command": "settled"})).status_code == 200
    node.on_command = lambda: rig.store.commits.fail(StoreFault.BEFORE)
    await client.post(path, json={"command": "lost"})
    await until_healthy(rig)
    head = (await rig.store.reads.head()).entry
    assert await settle_lost_outcomes(rig.store.reads, rig.ledger, through=head) == 1
    assert await settle_lost_outcomes(rig.store.reads, rig.ledger, through=head + 9) == 0
    entries = await listed(client, action="instances.command")
    assert [entry["outcome"] for entry in entries] == ["begun", "ok", "begun", "unknown"]
    assert (entries[3]["actor"], entries[3]["attempt"]) == ("system", entries[2]["attempt"])
    assert entries[3]["request"] == entries[2]["request"]
