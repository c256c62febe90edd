"""Lines for instances with an Idempotency-Key: sent once, to the run they were meant for, whatever the store does."""

from __future__ import annotations

import asyncio
import json
import pathlib
import signal
import sys
from collections.abc import Callable

import httpx
import msgspec
import pytest
from http_rig import Rig, http_rig
from killed_controller import TAKEN
from killed_controller import post as sent_line
from stand_in_node import StandInNode
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from corral.controller.http.pipeline.attempts import MAX_BEGUN
from corral.controller.http.pipeline.idempotency import LIFE, expired
from corral.controller.state.collections import IDEMPOTENCY, INSTANCES, NODES
from corral.domain.events import Event
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import Incarnation, TokenId
from corral.domain.permissions import Role
from corral.domain.records import BegunEffect, IdempotencyRecord
from corral.store.port import ABSENT
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

HEALTHY = 10.0


async def post(
    client: httpx.AsyncClient, record: InstanceRecord, line: str = "give 1000", *, key: str | None = "k-1"
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await client.post(
        f"/api/v1/instances/{record.id}/command", json={"command": line}, headers=headers
    )


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def reading_instance(rig: Rig, *, by_id: bool = True) -> tuple[InstanceRecord, StandInNode]:
    """A running instance; without `by_id` on a daemon of the former version."""
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    if not by_id:
        node.lacks("command_ids")
    return record, node


async def in_the_next_run(rig: Rig, record: InstanceRecord) -> InstanceRecord:
    stored = rig.state.instances.require(record.id)
    following = msgspec.structs.replace(stored.record, incarnation=Incarnation(record.incarnation + 1))
    await rig.ledger.commit(INSTANCES.put(record.id, following, expect=stored.revision))
    return following


async def until_healthy(rig: Rig) -> None:
    await eventually(lambda: rig.writer.healthy, deadline=HEALTHY)


@pytest.mark.trap("T70")
@pytest.mark.parametrize("key", ["k-1", None], ids=["with a key", "without a key"])
async def test_nothing_is_sent_while_the_store_refuses_the_audit_entry(
    client: httpx.AsyncClient, rig: Rig, key: str | None
) -> None:
    record, node = await reading_instance(rig)
    rig.store.commits.fail(StoreFault.BEFORE)
    assert code(await post(client, record, key=key)) == (503, "STORE_UNAVAILABLE")
    assert node.commands == []
    await until_healthy(rig)
    assert (await post(client, record, key=key)).status_code == 200
    assert node.commands == ["give 1000"]
    assert len(await rig.audits("instances.command")) == 1


@pytest.mark.trap("T70")
@pytest.mark.parametrize("failure", [StoreFault.BEFORE, StoreFault.AFTER, StoreFault.LOST])
@pytest.mark.parametrize("moment", ["before the line", "after the line"])
async def test_a_line_whose_request_is_repeated_while_the_store_fails_is_sent_once(
    client: httpx.AsyncClient, rig: Rig, failure: StoreFault, moment: str
) -> None:
    record, node = await reading_instance(rig)
    if moment == "before the line":
        rig.store.commits.fail(failure)
    else:
        node.on_command = failing_once(rig, failure)
    for _ in range(4):
        answer = await post(client, record)
        assert answer.status_code == 200 or code(answer) == (503, "STORE_UNAVAILABLE")
        await until_healthy(rig)
    assert answer.headers["idempotency-replayed"] == "true"
    assert node.commands == ["give 1000"]
    assert len(await rig.audits("instances.command")) == 1
    assert len(sent_events(rig)) == 1


def failing_once(rig: Rig, failure: StoreFault) -> Callable[[], None]:
    failures = [failure]

    def fail() -> None:
        if failures:
            rig.store.commits.fail(failures.pop())

    return fail


def sent_events(rig: Rig) -> list[Event]:
    return [event for commit in rig.commits for event in commit.events if event.type == "INSTANCE_COMMAND"]


async def test_a_line_that_arrived_is_answered_so_though_its_answer_cannot_be_stored(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    taken = await post(client, record)
    assert (taken.status_code, taken.json()["command"]) == (200, "give 1000")
    await until_healthy(rig)
    again = await post(client, record)
    assert again.status_code == 200
    assert "idempotency-replayed" not in again.headers, "the node was asked, and knew it"
    assert node.commands == ["give 1000"]


@pytest.mark.trap("T70")
async def test_a_repeated_line_is_for_the_run_that_it_was_meant_for(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    await post(client, record)
    await until_healthy(rig)
    await in_the_next_run(rig, record)
    assert (await post(client, record)).status_code == 200, "it had arrived in the former run"
    sent = [frame.send_command for frame in node.sent if frame.WhichOneof("payload") == "send_command"]
    assert {(frame.incarnation, frame.command_id) for frame in sent} == {
        (record.incarnation, sent[0].command_id)
    }
    assert [frame.repeated for frame in sent] == [False, True]
    assert node.commands == ["give 1000"]


async def test_a_line_that_a_run_refused_is_tried_again_there_and_nowhere_else(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    node.refuse_commands = "INPUT_NOT_READ"
    assert code(await post(client, record)) == (409, "INPUT_NOT_READ")
    await in_the_next_run(rig, record)
    node.refuse_commands = "STALE_INCARNATION"
    assert code(await post(client, record)) == (409, "STALE_INCARNATION")
    sent = [frame.send_command for frame in node.sent if frame.WhichOneof("payload") == "send_command"]
    assert [frame.incarnation for frame in sent] == [record.incarnation] * 2


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "former version"])
async def test_a_refused_line_has_a_known_outcome_and_uses_up_none_of_the_keys_in_doubt(
    client: httpx.AsyncClient, rig: Rig, by_id: bool
) -> None:
    record, node = await reading_instance(rig, by_id=by_id)
    (token,) = [stored.record.id for stored in rig.state.tokens]
    for place, refusal in enumerate(("INPUT_NOT_READ", "NOT_RUNNING", "DISK_FULL")):
        node.refuse_commands = refusal
        assert (await post(client, record, key=f"k-{place}")).json()["error"]["code"] == refusal
    assert rig.state.idempotency.begun_by(token) == 0
    node.refuse_commands = ""
    assert (await post(client, record, key="k-0")).status_code == 200
    sent = [frame.send_command for frame in node.sent if frame.WhichOneof("payload") == "send_command"]
    assert (sent[-1].command_id, sent[-1].repeated) == (sent[0].command_id, False)


@pytest.mark.trap("T70")
async def test_a_line_that_may_have_arrived_stays_in_doubt_when_its_repetition_is_refused(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    (token,) = [stored.record.id for stored in rig.state.tokens]
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    await post(client, record)
    await until_healthy(rig)
    node.command_ids.clear()  # it remembers the last ones only
    node.refuse_commands = "NOT_RUNNING"
    assert code(await post(client, record)) == (409, "NOT_RUNNING")
    assert rig.state.idempotency.begun_by(token) == 1


@pytest.mark.trap("T70")
async def test_a_daemon_that_knows_no_ids_is_not_sent_a_line_again_that_may_have_arrived(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig, by_id=False)
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    assert (await post(client, record)).status_code == 200
    await until_healthy(rig)
    for _ in range(2):
        assert code(await post(client, record)) == (409, "MAY_HAVE_ARRIVED")
    assert node.commands == ["give 1000"]


async def test_a_daemon_that_knows_no_ids_is_sent_again_what_it_refused(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig, by_id=False)
    node.refuse_commands = "INPUT_NOT_READ"
    assert code(await post(client, record)) == (409, "INPUT_NOT_READ")
    node.refuse_commands = ""
    assert (await post(client, record)).status_code == 200
    assert (await post(client, record)).headers["idempotency-replayed"] == "true"
    assert len(node.commands) == 2
    assert len(await rig.audits("instances.command")) == 2, "each attempt that may have an effect"


async def test_a_line_for_a_node_that_is_gone_may_have_arrived(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node = await reading_instance(rig)
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    await post(client, record)
    await until_healthy(rig)
    del rig.sessions.links[record.node]
    away = await post(client, record)
    assert code(away) == (409, "NODE_OFFLINE")
    assert "same key" in away.json()["error"]["hint"]
    await rig.ledger.commit(NODES.delete(record.node, expect=None))
    assert code(await post(client, record)) == (409, "MAY_HAVE_ARRIVED")


async def test_one_key_at_once_from_many_sends_one_line(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node = await reading_instance(rig)
    answers = await asyncio.gather(*(post(client, record) for _ in range(10)))
    assert [answer.status_code for answer in answers] == [200] * 10
    assert node.commands == ["give 1000"]
    assert len(rig.leading.attempts.turns) == 0
    other = await post(client, record, "give 2000")
    assert code(other) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_keys_without_an_outcome_are_bounded_and_expire_like_answers(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    (token,) = [stored.record.id for stored in rig.state.tokens]
    now = rig.clock.now()
    begun = IdempotencyRecord(
        request_sha256="", status=409, body="", created_at=now, begun=BegunEffect(token=TokenId(token))
    )
    await rig.ledger.commit(*(IDEMPOTENCY.put(f"k{n}", begun, expect=ABSENT) for n in range(MAX_BEGUN)))
    assert code(await post(client, record)) == (429, "RATE_LIMITED")
    assert node.commands == []
    assert (await post(client, record, key=None)).status_code == 200
    _, other = await rig.token(Role.ADMIN)
    async with rig.client(other) as stranger:
        assert (await post(stranger, record)).status_code == 200
    assert len(expired(rig.state, now=now + LIFE, limit=5000)) >= MAX_BEGUN
    await rig.ledger.commit(IDEMPOTENCY.delete("k0", expect=None))
    assert (await post(client, record)).status_code == 200


async def test_a_line_on_a_socket_with_an_id_is_acknowledged_with_it_and_sent_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node = await reading_instance(rig)
    line = json.dumps({"command": "give 1000", "id": "line-1"})
    node.on_command = failing_once(rig, StoreFault.BEFORE)
    for offset in (0, None, None):  # each time on another connection, as after a broken one
        ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
        url = f"{rig.url.replace('http', 'ws')}/api/v1/instances/{record.id}/console/ws"
        async with connect(url, subprotocols=[Subprotocol(f"ticket.{ticket}")]) as socket:
            await socket.send(line)
            while "ack" not in (told := json.loads(await socket.recv())):
                assert "error" not in told
            # Where it was written was stored with nothing: the first answer is lost.
            place = {"incarnation": record.incarnation, "offset": offset}
            assert told == {"ack": {"command": "give 1000", "id": "line-1", **place}}
            await socket.send(json.dumps({"command": "another", "id": "line-1"}))
            while "error" not in (told := json.loads(await socket.recv())):
                pass
            assert (told["error"]["code"], told["id"]) == ("IDEMPOTENCY_KEY_REUSED", "line-1")
        await until_healthy(rig)
    assert node.commands == ["give 1000"]
    assert len(await rig.audits("instances.command")) == 1
    assert len(sent_events(rig)) == 1


@pytest.mark.system
@pytest.mark.trap("T70")
@pytest.mark.parametrize("point", ["the key is stored", "the line is sent", "the answer is stored"])
async def test_a_controller_killed_when_leaves_a_line_that_comes_once(data: pathlib.Path, point: str) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, pathlib.Path(__file__).with_name("killed_controller.py"), data, point
    )
    assert await killed.wait() == -signal.SIGKILL
    async with http_rig(data) as rig:
        (record,) = [stored.record for stored in rig.state.instances]
        node = StandInNode(record.node, consoles=rig.consoles, uploads=rig.uploads)
        node.instances = rig.instances
        taken = json.loads((data / TAKEN).read_text())
        node.commands += taken["lines"]
        node.command_ids |= {(incarnation, id) for incarnation, id in taken["ids"]}
        rig.sessions.links[record.node] = node
        assert len(taken["lines"]) == (point != "the key is stored")
        for _ in range(2):
            assert (await sent_line(rig, record.id))[0] == 200
        assert node.commands == ["give 1000"]
        assert len(await rig.audits("instances.command")) == 1
        assert len(sent_events(rig)) == 1
