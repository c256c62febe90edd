"""Nodes and join tokens."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.domain.instance_states import InstanceState
from corral.domain.node_states import Admission, NodeState

NODES = "/api/v1/nodes"
JOIN = "/api/v1/nodes/join-tokens"

FIXED_NAMES = {
    *("id", "state", "labels", "address", "memory_mb", "used_memory_mb", "cpus", "cpu_usage", "instances"),
    *("session", "version", "host", "free_disk_mb", "used_ports", "runtimes", "admission", "reason"),
    *("state_since", "last_seen", "enrolled_at", "revision", "log_level", "machine_id"),
}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def names(client: httpx.AsyncClient, query: str = "") -> list[str]:
    return [item["id"] for item in (await client.get(f"{NODES}?{query}")).json()["items"]]


async def test_a_node_has_the_fixed_names_and_the_load_of_its_session(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1", labels={"zone": "eu"}, memory_mb=8192, cpus=4, host_info={"os": "linux"})
    away = (await client.get(f"{NODES}/node-1")).json()
    assert set(away) >= FIXED_NAMES
    assert (away["session"], away["last_seen"], away["memory_mb"], away["instances"]) == (None, None, 8192, 0)
    live = rig.sessions.connect("node-1")
    node = (await client.get(f"{NODES}/node-1")).json()
    assert (node["session"], node["instances"], node["cpu_usage"]) == (live.session_id, 0, 0.25)
    assert (node["memory_mb"], node["used_ports"], node["host"]) == (4096, [30000, 30001], {"os": "linux"})
    assert dt.datetime.fromisoformat(node["last_seen"]) == live.last_seen
    assert node["last_seen"].endswith("Z")


async def test_a_session_that_the_store_does_not_know_of_is_shown_as_it_is(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    """For a moment after each begin and end of a session, and for as long as the store is out of reach."""

    async def shown(name: str) -> tuple[str, bool, str]:
        node = (await client.get(f"{NODES}/{name}")).json()
        why = (await client.get(f"{NODES}/{name}/why")).json()
        return node["state"], node["session"] is not None, why["now"][0]["reason"]

    await rig.node("node-1", state=NodeState.ONLINE)
    state, connected, why = await shown("node-1")
    assert (state, connected) == ("ONLINE", False)
    assert ", but it has no session; the store does not have that yet" in why
    rig.sessions.connect("node-1")
    state, connected, why = await shown("node-1")
    assert (state, connected) == ("ONLINE", True)
    assert "the store does not" not in why
    await rig.node("node-2", state=NodeState.DISCONNECTED)
    rig.sessions.connect("node-2")
    state, connected, why = await shown("node-2")
    assert (state, connected) == ("DISCONNECTED", True)
    assert ", but it has just connected; the store does not have that yet" in why


async def test_nodes_are_filtered_by_state_admission_and_labels(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("a", state=NodeState.ONLINE, labels={"zone": "eu", "ssd": "yes"})
    await rig.node("b", state=NodeState.ONLINE, admission=Admission.CORDONED, labels={"zone": "eu"})
    await rig.node("c", state=NodeState.UNREACHABLE, labels={"zone": "us"})
    assert await names(client) == ["a", "b", "c"]
    assert await names(client, "state=ONLINE") == ["a", "b"]
    assert await names(client, "admission=cordoned") == ["b"]
    assert await names(client, "label=zone=eu") == ["a", "b"]
    assert await names(client, "label=zone=eu&label=ssd=yes") == ["a"]
    assert await names(client, "state=ONLINE&label=zone=us") == []


async def test_pages_hold_every_node_once_while_nodes_come_and_go(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for number in range(10):
        await rig.node(f"n-{number}")
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await client.get(NODES, params={"limit": 3, "cursor": cursor})).json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
        await client.delete(f"{NODES}/{seen[0]}")  # what was already shown does not move the rest
    assert seen == [f"n-{number}" for number in range(10)]


async def test_a_last_page_that_is_just_full_has_no_next(client: httpx.AsyncClient, rig: Rig) -> None:
    for name in ("a", "b"):
        await rig.node(name)
    assert (await client.get(f"{NODES}?limit=2")).json()["next"] is None


async def test_cordon_and_uncordon(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    cordoned = (await client.post(f"{NODES}/node-1/cordon", json={"reason": "disk"})).json()
    assert (cordoned["admission"], cordoned["admission_reason"]) == ("cordoned", "disk")
    opened = (await client.post(f"{NODES}/node-1/uncordon")).json()
    assert (opened["admission"], opened["admission_reason"]) == ("open", "")
    items = (await client.get("/api/v1/events?subject=node-1")).json()["items"]
    assert [event["type"] for event in items] == ["NODE_CORDONED", "NODE_UNCORDONED"]
    assert items[0]["data"] == {"reason": "disk"}


async def test_what_the_lifecycle_forbids_is_refused_with_the_phase(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1", admission=Admission.DRAINING)
    answer = await client.post(f"{NODES}/node-1/cordon")
    assert error(answer) == (409, "ILLEGAL_TRANSITION")
    assert "DRAINING" in answer.json()["error"]["message"]


async def test_a_revoked_node_has_no_certificates_and_revoking_again_changes_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1", state=NodeState.ONLINE)
    answer = (await client.post(f"{NODES}/node-1/revoke", json={"reason": "stolen"})).json()
    assert (answer["state"], answer["reason"]) == ("REVOKED", "stolen")
    assert rig.state.nodes.require("node-1").record.serials == ()
    number = rig.state.number
    again = await client.post(f"{NODES}/node-1/revoke", json={"reason": "again"})
    assert (again.status_code, again.json()["reason"], rig.state.number) == (200, "stolen", number)


@pytest.mark.parametrize("state", [s for s in NodeState if s is not NodeState.ONLINE])
async def test_a_node_that_is_not_connected_can_be_removed(
    client: httpx.AsyncClient, rig: Rig, state: NodeState
) -> None:
    await rig.node("node-1", state=state)
    assert (await client.delete(f"{NODES}/node-1")).status_code == 204
    assert error(await client.get(f"{NODES}/node-1")) == (404, "NOT_FOUND")
    items = (await client.get("/api/v1/events?types=NODE_REMOVED")).json()["items"]
    assert [event["subject"] for event in items] == ["node-1"]


@pytest.mark.trap("T90")
async def test_a_node_with_instances_or_worlds_goes_only_when_that_is_confirmed_by_name(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance("lobby", node="node-1")
    await rig.group("world", static=True)
    await rig.instance("world", node="node-1", state=InstanceState.STOPPED, home="node-1")
    asked = (await client.post(f"{NODES}/node-1/revoke", json={})).json()["error"]
    assert asked["code"] == "CONFIRMATION_REQUIRED"
    assert "'lobby-1' (RUNNING) would be out of reach" in asked["message"]
    assert "'world-1' on node 'node-1' (static/world-1 in its data directory)" in asked["message"]
    assert rig.state.nodes.require("node-1").record.state is NodeState.ONLINE
    done = await client.post(f"{NODES}/node-1/revoke", json={}, params={"confirm": "node-1"})
    assert done.json()["state"] == "REVOKED"
    rig.sessions.present.clear()
    asked = (await client.delete(f"{NODES}/node-1")).json()["error"]
    assert asked["code"] == "CONFIRMATION_REQUIRED"
    assert "'lobby-1' (RUNNING) would be given up" in asked["message"]
    assert "corral local --data DIR stop-all" in asked["message"]
    assert "begin anew on another node" in asked["message"]
    assert rig.state.nodes.find("node-1") is not None
    assert (await client.delete(f"{NODES}/node-1", params={"confirm": "node-1"})).status_code == 204


@pytest.mark.trap("T90")
async def test_worlds_of_instances_that_were_deleted_are_named_by_what_their_node_said(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    worlds = ("old-1", "world-1", "world-x-1")
    await rig.node("node-1", state=NodeState.DISCONNECTED, worlds=worlds, static_directory="/srv/static")
    asked = (await client.delete(f"{NODES}/node-1")).json()["error"]
    assert asked["code"] == "CONFIRMATION_REQUIRED"
    assert "'old-1' on node 'node-1' (/srv/static/old-1)" in asked["message"]
    await rig.group("world", static=True)
    for answer in (
        await client.patch("/api/v1/groups/world", json={"static": False}),
        await client.delete("/api/v1/groups/world"),
    ):
        asked = answer.json()["error"]
        assert "'world-1' on node 'node-1' (/srv/static/world-1)" in asked["message"]
        assert "old-1" not in asked["message"]
        assert "world-x-1" not in asked["message"]


async def test_a_connected_node_cannot_be_removed(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1", state=NodeState.ONLINE)
    assert error(await client.delete(f"{NODES}/node-1")) == (409, "CONFLICT")
    await rig.node("node-2", state=NodeState.ENROLLED)
    rig.sessions.connect("node-2")
    assert error(await client.delete(f"{NODES}/node-2")) == (409, "CONFLICT")


async def test_a_join_token_is_shown_once_with_the_command_that_uses_it(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    answer = await client.post(JOIN, json={"node_id": "node-7", "ttl_seconds": 60})
    made: dict[str, Any] = answer.json()
    assert answer.status_code == 201
    assert (made["node_id"], made["replace"]) == ("node-7", False)
    assert made["token"] in made["command"]
    assert "--controller 127.0.0.1:2 --node-id node-7 --join " in made["command"]
    (listed,) = (await client.get(JOIN)).json()["items"]
    assert (listed["id"], listed["state"]) == (made["id"], "usable")
    assert "token" not in listed
    assert made["token"] not in str(listed)
    rig.clock.offset = dt.timedelta(seconds=61)
    assert (await client.get(JOIN)).json()["items"][0]["state"] == "expired"


async def test_a_join_token_without_a_body_takes_the_defaults(client: httpx.AsyncClient) -> None:
    made = (await client.post(JOIN)).json()
    assert (made["node_id"], made["replace"]) == (None, False)


async def test_a_join_token_cannot_live_too_short_or_too_long(client: httpx.AsyncClient) -> None:
    for ttl in [59, 604_801, -1, "3600"]:
        answer = await client.post(JOIN, json={"ttl_seconds": ttl})
        assert error(answer) == (400, "INVALID_FIELD"), ttl
        assert answer.json()["error"]["field"] == "ttl_seconds", ttl


async def test_a_join_token_for_a_node_that_exists_needs_replace(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    assert error(await client.post(JOIN, json={"node_id": "node-1"})) == (409, "ALREADY_EXISTS")
    assert (await client.post(JOIN, json={"node_id": "node-1", "replace": True})).status_code == 201


async def test_a_join_token_can_be_revoked(client: httpx.AsyncClient) -> None:
    made = (await client.post(JOIN)).json()
    assert (await client.delete(f"{JOIN}/{made['id']}")).status_code == 204
    assert (await client.get(JOIN)).json()["items"] == []
    items = (await client.get(f"/api/v1/events?subject={made['id']}")).json()["items"]
    assert [event["type"] for event in items] == ["JOIN_TOKEN_CREATED", "JOIN_TOKEN_REVOKED"]
