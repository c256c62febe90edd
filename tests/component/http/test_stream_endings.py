"""How streams end, and what one that is not read does to the others: nothing."""

from __future__ import annotations

import asyncio
import pathlib
import tracemalloc

import httpx
import pytest
from http_rig import DEADLINE, Rig, http_rig
from raw_client import RawCall, raw_call
from sse_client import SseClient, following, stalled

from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

MIB = 1024 * 1024
HIGH_WATER = 65_536


async def fill_up(rig: Rig) -> None:
    """Make events until the one connection that is not read has to be waited for."""
    while rig.server.buffered_bytes() <= HIGH_WATER:
        await rig.happen("filler", context="x" * 60_000)


@pytest.mark.trap("T25")
async def test_revoking_a_token_ends_its_streams_within_a_second(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.OPERATOR)
    other_id, other = await rig.token(Role.ADMIN)
    async with (
        rig.client(text) as revoked,
        rig.client(other) as kept,
        following(revoked) as events,
        following(revoked, "/api/v1/logs/stream?source=controller") as logs,
        following(kept) as others,
    ):
        await eventually(lambda: len(rig.leading.streams) == 3)
        await client.delete(f"/api/v1/tokens/{id}")
        assert await events.end(deadline=1.0) == "the token was revoked"
        assert await logs.end(deadline=1.0) == "the token was revoked"
        frame = await others.event()
        assert (frame.event, frame.data and frame.data["subject"]) == ("TOKEN_REVOKED", id)
        assert other_id in rig.state.tokens.require(other_id).record.id
    await eventually(lambda: len(rig.leading.streams) == 0)


@pytest.mark.trap("T25")
async def test_revoking_a_token_ends_a_stream_that_came_with_a_ticket(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    id, text = await rig.token(Role.VIEWER)
    async with rig.client(text) as viewer:
        ticket = (await viewer.post("/api/v1/events/tickets")).json()["ticket"]
    async with rig.client("") as browser, following(browser, params={"ticket": ticket}) as reader:
        await reader.frame()
        await client.delete(f"/api/v1/tokens/{id}")
        assert await reader.end(deadline=1.0) == "the token was revoked"


@pytest.mark.trap("T25")
async def test_revoking_a_token_ends_a_stream_whose_client_does_not_read(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    id, text = await rig.token(Role.VIEWER)
    async with stalled(*rig.server.address, text) as stopped:
        await fill_up(rig)
        await client.delete(f"/api/v1/tokens/{id}")
        await eventually(lambda: len(rig.leading.streams) == 0, deadline=1.0)
        assert rig.server.buffered_bytes() == 0, "what it has not taken is dropped"
        async with asyncio.timeout(DEADLINE):
            while await asyncio.get_running_loop().sock_recv(stopped, 1 << 20):
                pass  # what the kernel had taken, then the end


@pytest.mark.trap("T25")
async def test_a_stream_ends_when_its_token_expires(rig: Rig) -> None:
    _, text = await rig.token(Role.VIEWER, expires_in_seconds=1)
    async with rig.client(text) as viewer, following(viewer) as reader:
        assert await reader.end(deadline=2.0) == "the token expired"


async def test_a_revocation_that_was_overrun_in_the_ring_still_ends_the_stream(data: pathlib.Path) -> None:
    async with http_rig(data, ring_events=2) as rig, rig.client() as client:
        id, text = await rig.token(Role.VIEWER)
        async with rig.client(text) as viewer, following(viewer) as reader:
            await reader.frame()
            # one batch brings the revocation and more events than the ring holds
            rig.store.commits.hold()
            commits = [asyncio.create_task(rig.happen("at the gate"))]
            await eventually(lambda: rig.writer.pending == 1)
            commits += [asyncio.create_task(client.delete(f"/api/v1/tokens/{id}"))]
            await eventually(lambda: rig.writer.pending == 2)
            commits += [asyncio.create_task(rig.happen(f"n-{number}")) for number in range(10)]
            await eventually(lambda: rig.writer.pending == 12)
            rig.store.commits.let_go()
            await asyncio.gather(*commits)
            assert await reader.end(deadline=1.0) == "the token was revoked"


async def test_streams_end_at_once_when_the_term_is_over(client: httpx.AsyncClient, rig: Rig) -> None:
    async with (
        following(client) as events,
        following(client, "/api/v1/logs/stream?source=controller") as logs,
    ):
        await eventually(lambda: len(rig.leading.streams) == 2)
        await rig.leading.close()
        assert await events.end(deadline=1.0) == "this controller no longer leads"
        assert await logs.end(deadline=1.0) == "this controller no longer leads"
        answer = await client.get("/api/v1/events/stream")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "SHUTTING_DOWN")


async def test_a_client_that_goes_is_noticed_without_any_event(client: httpx.AsyncClient, rig: Rig) -> None:
    async with following(client):
        await eventually(lambda: len(rig.leading.streams) == 1)
    await eventually(lambda: len(rig.leading.streams) == 0)


async def test_more_streams_than_the_limit_are_refused(data: pathlib.Path) -> None:
    async with (
        http_rig(data, limits=HttpLimitsSection(all_streams=1)) as rig,
        rig.client() as client,
        following(client),
    ):
        answer = await client.get("/api/v1/events/stream")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "RATE_LIMITED")
        assert "retry-after" in answer.headers


async def test_the_server_stops_in_time_although_a_client_does_not_read(data: pathlib.Path) -> None:
    async with http_rig(data) as rig, stalled(*rig.server.address, rig.admin):
        await fill_up(rig)
        async with asyncio.timeout(DEADLINE):
            await rig.leading.close()
            await rig.server.stop()


async def in_step(rig: Rig, readers: list[SseClient], subjects: list[str], size: int) -> None:
    """Each event must be at every reader before the next one is made."""
    for subject in subjects:
        await rig.happen(subject, context="x" * size)
        for frame in await asyncio.gather(*(reader.event(deadline=5.0) for reader in readers)):
            assert frame.data is not None
            assert frame.data["subject"] == subject


@pytest.mark.system
@pytest.mark.trap("T29")
async def test_a_client_that_stops_reading_delays_nobody_costs_no_memory_and_loses_nothing(
    data: pathlib.Path,
) -> None:
    count, size = 1500, 16_000  # 24 MB: far more than ring, socket buffers and the bound below
    async with (
        http_rig(data, ring_bytes=MIB) as rig,
        rig.client() as client,
        stalled(*rig.server.address, rig.admin) as stopped,
        following(client) as one,
        following(client) as two,
        following(client, params={"types": "NODE_ERROR_REPORTED"}) as three,
    ):
        readers = [one, two, three]
        await eventually(lambda: len(rig.leading.streams) == 4)
        await in_step(rig, readers, [f"warm-{number}" for number in range(100)], size)
        rig.commits.clear()
        tracemalloc.start()
        try:
            await in_step(rig, readers, [f"n-{number}" for number in range(count)], size)
            rig.commits.clear()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert grown < 6 * MIB, f"{grown / MIB:.1f} MiB more for 24 MB of events"
        assert rig.server.buffered_bytes() < MIB
        await everything_arrives(stopped, count)


async def everything_arrives(stopped: object, count: int) -> None:
    """The one that stopped reads again, and finds every event in order."""
    loop = asyncio.get_running_loop()
    wanted = [f"warm-{number}" for number in range(100)] + [f"n-{number}" for number in range(count)]
    raw = bytearray()
    position = 0
    async with asyncio.timeout(60):
        for subject in wanted:
            needle = f'"subject":"{subject}"'.encode()
            while (found := raw.find(needle, position)) < 0:
                raw += await loop.sock_recv(stopped, 1 << 20)  # type: ignore[arg-type]
            assert raw.count(b'"subject":"', position, found) == 0, f"something else before {subject}"
            position = found + len(needle)


async def half_sent(rig: Rig, id: str, call: RawCall, body: bytes) -> None:
    """Send a part of a body; return when its caller was let in, which shows by the use of its token."""
    await call.send(body)
    await eventually(lambda: rig.leading.token_uses.last(id) is not None)


@pytest.mark.trap("T25")
@pytest.mark.parametrize("change", ["revoked", "locked", "narrowed"])
async def test_a_request_whose_caller_lost_its_rights_while_the_body_came_is_refused(
    client: httpx.AsyncClient, rig: Rig, change: str
) -> None:
    user = {"name": "ada", "bindings": [{"role": "OPERATOR"}]}
    assert (await client.post("/api/v1/users", json=user)).status_code == 201
    id, text = await rig.token(Role.OPERATOR, owner="ada")
    body = b'{"name": "late", "command": ["x"]}'
    head = {"Content_Type": "application/json", "Content_Length": str(len(body))}
    async with raw_call(rig, "POST", "/api/v1/groups", token=text, **head) as call:
        await half_sent(rig, id, call, body[:10])
        if change == "revoked":
            assert (await client.delete(f"/api/v1/tokens/{id}")).status_code == 204
        elif change == "locked":
            locked = await client.post("/api/v1/users/ada/lock", json={"reason": "left"})
            assert locked.status_code == 200, locked.text
        else:
            less = {"bindings": [{"role": "VIEWER"}]}
            assert (await client.patch("/api/v1/users/ada", json=less)).status_code == 200
        await call.send(body[10:])
        status, _, answer = await call.answer()
    expected = (403, "FORBIDDEN") if change == "narrowed" else (401, "UNAUTHENTICATED")
    assert (status, answer["error"]["code"]) == expected
    assert rig.state.groups.find("late") is None


@pytest.mark.trap("T25")
async def test_the_removal_of_a_user_ends_the_streams_of_its_tokens(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    user = {"name": "ada", "bindings": [{"role": "VIEWER"}]}
    assert (await client.post("/api/v1/users", json=user)).status_code == 201
    _, text = await rig.token(Role.VIEWER, owner="ada")
    async with rig.client(text) as ada, following(ada) as reader:
        await reader.frame()
        assert (await client.delete("/api/v1/users/ada")).status_code == 204
        assert await reader.end(deadline=1.0) != ""
