"""Resources in the frames of the event stream: `with=resource`."""

from __future__ import annotations

import contextlib
import datetime as dt
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig, http_rig
from sse_client import SseClient, following

from corral.controller.events.frames import EventResource
from corral.controller.events.ring import EventRing, EventSelection
from corral.controller.state.collections import INSTANCES
from corral.domain.event_subjects import ResourceKind
from corral.domain.events import Cursor, Draft, Event, EventType
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role

WITH = {"with": "resource"}
ADDRESS = "see https://bob:hunter2@files.example/x"


@contextlib.asynccontextmanager
async def resources(client: httpx.AsyncClient, **query: str) -> AsyncIterator[SseClient]:
    async with following(client, params={**WITH, **query}) as reader:
        if "after" not in query:
            await reader.frame()
        yield reader


async def next_of(reader: SseClient, type: str) -> dict[str, Any]:
    """The next event of this type."""
    while True:
        data = (await reader.event()).data
        assert data is not None
        if data["type"] == type:
            return data


async def listed(client: httpx.AsyncClient, kind: str, id: str) -> dict[str, Any]:
    """The resource as lists show it in short."""
    answer = await client.get(f"/api/v1/{kind}", params={"view": "summary", "ids": id})
    (item,) = answer.json()["items"]
    found: dict[str, Any] = item
    return found


async def test_an_instance_comes_with_its_event_as_a_list_shows_it(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    async with resources(client) as reader:
        await rig.report(record.id, state=InstanceState.STOPPING, reason="asked to")
        found = (await next_of(reader, "INSTANCE_STOPPING"))["resource"]
    shown = await listed(client, "instances", record.id)
    assert (found["kind"], found["id"], found["revision"]) == ("instance", record.id, shown["revision"])
    assert found["summary"] == shown
    assert found["summary"]["reason"] == "asked to"


async def test_groups_nodes_and_deployments_come_with_theirs(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    async with resources(client) as reader:
        held = {"reason": "disk"}
        assert (await client.post("/api/v1/groups/lobby/hold", json=held)).status_code == 200
        group = (await next_of(reader, "GROUP_HELD"))["resource"]
        assert (await client.post(f"/api/v1/nodes/{record.node}/cordon", json={})).status_code == 200
        node = (await next_of(reader, "NODE_CORDONED"))["resource"]
    assert (group["kind"], group["id"]) == ("group", "lobby")
    assert (group["summary"]["held"], group["summary"]["paused"]) == (True, False)
    assert sum(group["summary"]["states"].values()) == 1
    assert group["revision"] == group["summary"]["revision"]
    assert node["summary"] == await listed(client, "nodes", record.node)
    assert node["summary"]["admission"] == "cordoned"


async def test_of_what_is_gone_there_is_no_summary_and_a_revision_above_all_others(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    async with resources(client) as reader:
        await rig.report(record.id, state=InstanceState.STOPPED)
        before = (await next_of(reader, "INSTANCE_STOPPED"))["resource"]
        stored = rig.state.instances.require(record.id)
        data = {"group": record.group, "node": record.node, "state": "STOPPED"}
        event = Draft(type=EventType.INSTANCE_REMOVED, subject=record.id, data=data)
        await rig.ledger.commit(INSTANCES.delete(record.id, expect=stored.revision), event)
        after = (await next_of(reader, "INSTANCE_REMOVED"))["resource"]
    assert after["summary"] is None
    assert after["revision"] > before["revision"]


@pytest.mark.parametrize("ring_events", [1000, 2])
async def test_a_replay_carries_the_resources_as_they_are_now(data: pathlib.Path, ring_events: int) -> None:
    async with http_rig(data, ring_events=ring_events) as rig, rig.client() as client:
        record = await rig.instance()
        start = str(rig.hub.head)
        await rig.report(record.id, state=InstanceState.STOPPING)
        await rig.report(record.id, state=InstanceState.STOPPED)
        for _ in range(3):
            await rig.happen("node-9")
        async with resources(client, after=start) as reader:
            first = await next_of(reader, "INSTANCE_STOPPING")
            last = await next_of(reader, "INSTANCE_STOPPED")
    assert first["resource"] == last["resource"]
    assert first["resource"]["summary"]["state"] == "STOPPED"


async def test_without_the_word_frames_have_no_resource_and_others_are_refused(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    async with following(client) as reader:
        await reader.frame()
        await rig.report(record.id, state=InstanceState.STOPPING)
        assert "resource" not in await next_of(reader, "INSTANCE_STOPPING")
    answer = await client.get("/api/v1/events/stream", params={"with": "everything"})
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "with")


CALLERS: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "ADMIN": ({"role": "ADMIN"}, True),
    "VIEWER": ({"role": "VIEWER"}, True),
    "of the group": ({"role": "ADMIN", "scope": {"groups": ["lobby"]}}, True),
    "without instances": ({"role": "ADMIN", "permissions": ["events.read", "groups.read"]}, False),
}
"""What a token has, and whether it gets the resource. Summaries show nobody what is sensitive."""


@pytest.mark.trap("T91")
@pytest.mark.parametrize("name", CALLERS)
async def test_a_resource_needs_the_permission_to_read_it_and_has_nothing_sensitive(
    rig: Rig, name: str
) -> None:
    token, gets = CALLERS[name]
    record = await rig.instance()
    _, text = await rig.token(Role(token["role"]), **{k: v for k, v in token.items() if k != "role"})
    async with rig.client(text) as client, resources(client) as reader:
        await rig.report(record.id, state=InstanceState.STOPPING, reason=ADDRESS)
        found = await next_of(reader, "INSTANCE_STOPPING") if name != "of the group" else None
        if found is None:  # the made-up event names no group: nobody with a scope gets it
            data = {"group": "lobby", "node": record.node, "incarnation": 1, "ready": False, "reason": ""}
            kind = EventType.INSTANCE_READY_CHANGED
            await rig.ledger.commit(Draft(type=kind, subject=record.id, data=data))
            found = await next_of(reader, "INSTANCE_READY_CHANGED")
    assert ("resource" in found) == gets
    if gets:
        assert found["resource"]["summary"]["reason"] == "see https://files.example/x"


class CountedSource:
    """Resources that are counted as they are made."""

    def __init__(self) -> None:
        self.made = 0

    def of(self, event: Event) -> EventResource | None:
        self.made += 1
        kind = ResourceKind.NODE
        return EventResource(kind=kind, id=event.subject, revision=self.made, summary={"state": "ONLINE"})


def test_a_resource_is_made_once_for_all_readers_however_they_filter(ring: EventRing) -> None:
    source = CountedSource()
    shared = EventSelection(resources=source)
    narrow = msgspec.structs.replace(shared, types=frozenset({EventType.NODE_CORDONED}))
    refused = msgspec.structs.replace(shared, reads=lambda event, resource: event.subject != "web-1")
    bodies = [ring.chunk(0, each).body for each in (shared, narrow, shared, narrow, refused)]
    assert source.made == 3
    assert [body.count(b'"resource"') for body in bodies] == [3, 3, 3, 3, 2]
    for selection in (shared, msgspec.structs.replace(shared, redacted=True)):
        ring.chunk(1, selection)
    assert source.made == 5, "two of them once more, for those from whom something is hidden"


@pytest.fixture
def ring() -> EventRing:
    """A ring with three events about nodes."""
    made = EventRing(head=Cursor(1, 0), capacity=100, capacity_bytes=1_000_000)
    for number in (1, 2, 3):
        made.append(
            Event(
                cursor=Cursor(1, number),
                type=EventType.NODE_CORDONED,
                subject=f"web-{number}",
                at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                data={"reason": ""},
            )
        )
    return made
