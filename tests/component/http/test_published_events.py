"""Changes that are made through the API, each with its event as it is documented."""

from __future__ import annotations

from typing import Any

import httpx
from browsers import browser, make_user
from http_rig import Rig
from module_archives import module_zip

from corral.domain.event_schemas.catalog import data_fault
from corral.domain.events import EventType
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.testing.waiting import eventually


async def told(client: httpx.AsyncClient, *types: str) -> list[tuple[str, str]]:
    """Type and subject of the events of these types, all of which are as documented."""
    page = (await client.get("/api/v1/events", params={"types": ",".join(types), "limit": 500})).json()
    for event in page["items"]:
        assert data_fault(EventType(event["type"]), event["data"], whole=True) == "", event
    return [(event["type"], event["subject"]) for event in page["items"]]


async def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


async def test_users_roles_and_sessions(client: httpx.AsyncClient, rig: Rig) -> None:
    await ok(await client.post("/api/v1/roles", json={"name": "desk", "permissions": ["self.read"]}))
    await ok(await client.patch("/api/v1/roles/desk", json={"permissions": ["self.read", "groups.read"]}))
    await ok(await client.delete("/api/v1/roles/desk"))
    roles = ("ROLE_CREATED", "ROLE_UPDATED", "ROLE_DELETED")
    assert await told(client, *roles) == [(type, "desk") for type in roles]
    await make_user(rig)
    async with browser(rig) as ada:
        (session,) = (await ok(await ada.get("/api/v1/auth/sessions")))["items"]
        await ok(await ada.post("/api/v1/auth/logout"))
    assert await told(client, "SESSION_ENDED") == [("SESSION_ENDED", session["id"])]
    await ok(await client.patch("/api/v1/users/ada", json={"display_name": "Ada"}))
    await ok(await client.post("/api/v1/users/ada/lock", json={"reason": "on leave"}))
    await ok(await client.post("/api/v1/users/ada/unlock"))
    await ok(await client.delete("/api/v1/users/ada"))
    users = ("USER_CREATED", "USER_UPDATED", "USER_LOCKED", "USER_UNLOCKED", "USER_DELETED")
    found = [each for each in await told(client, *users) if each[1] == "ada"]
    assert found == [(type, "ada") for type in users]


async def test_nodes_that_are_revoked_and_groups_that_are_scaled(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-9", state=NodeState.DISCONNECTED)
    await ok(await client.post("/api/v1/nodes/node-9/revoke", json={"reason": "stolen"}))
    assert await told(client, "NODE_REVOKED") == [("NODE_REVOKED", "node-9")]
    await rig.group("lobby", min=0, max=3)
    await ok(await client.post("/api/v1/groups/lobby/scale", json={"count": 2}))
    types = ("GROUP_CREATED", "GROUP_SCALED")
    assert await told(client, *types) == [(type, "lobby") for type in types]


async def test_a_module_that_fails(client: httpx.AsyncClient, rig: Rig) -> None:
    source = """
        from corral.sdk import PlatformModule

        class Plain(PlatformModule):
            async def on_start(self, ctx):
                raise ValueError("no")
    """
    await rig.install(module_zip(source=source))
    await eventually(lambda: rig.state.modules.require("plain").record.phase == "FAILED")
    assert await told(client, "MODULE_FAILED") == [("MODULE_FAILED", "plain")]


async def test_instances_that_are_removed(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    await rig.report(record.id, state=InstanceState.STOPPED)
    await ok(await client.delete(f"/api/v1/instances/{record.id}"))
    assert await told(client, "INSTANCE_REMOVED") == [("INSTANCE_REMOVED", record.id)]
