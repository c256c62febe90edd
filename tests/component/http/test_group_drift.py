"""Which instances still run by a former document, and how they are brought up to date."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
from http_rig import Rig

from corral.controller.instances.drift_view import DriftView, next_revision
from corral.controller.state.collections import GROUPS as STORED_GROUPS
from corral.controller.state.collections import INSTANCES
from corral.domain.groups.drift import Drift, misplaced
from corral.domain.ids import InstanceId
from corral.testing.counted_calls import counted_calls

GROUPS = "/api/v1/groups"


async def drift(client: httpx.AsyncClient, name: str = "lobby") -> Any:
    return (await client.get(f"{GROUPS}/{name}")).json()["status"]["drift"]


async def of_instance(client: httpx.AsyncClient, id: str = "lobby-1") -> Any:
    return (await client.get(f"/api/v1/instances/{id}")).json()["drift"]


async def test_a_change_of_what_runs_is_drift_and_one_of_numbers_is_not(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group(max=9)
    await rig.instance()
    none = {
        "outdated": [],
        "outdated_count": 0,
        "placement": [],
        "placement_count": 0,
        "unknown_count": 0,
        "nodes": {},
        "command": "",
        "refused": "",
        "pinned_revision": 0,
        "document_pending": False,
    }
    assert (await drift(client), await of_instance(client)) == (none, "none")
    for patch in ({"min": 1}, {"labels": {"a": "b"}}, {"priority": 9}, {"env": {}}):
        assert (await client.patch(f"{GROUPS}/lobby", json=patch)).status_code == 200
        assert await drift(client) == none
    await client.patch(f"{GROUPS}/lobby", json={"env": {"A": "1"}})
    found = await drift(client)
    assert (found["outdated"], found["command"]) == (["lobby-1"], "corral deploy lobby")
    assert await of_instance(client) == "outdated"
    listed = (await client.get("/api/v1/instances")).json()["items"]
    assert [each["drift"] for each in listed] == ["outdated"]
    await rig.instance()
    assert await of_instance(client, "lobby-2") == "none"
    await client.patch(f"{GROUPS}/lobby", json={"env": None})
    assert ((await drift(client))["outdated"], await of_instance(client)) == (["lobby-2"], "none")


async def test_a_node_that_would_not_be_chosen_now_is_drift_of_placement(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1", labels={"disk": "slow"})
    await rig.instance()
    for patch, expected in (
        ({"node_labels": {"disk": "slow"}}, "none"),
        ({"node_labels": {"disk": "fast"}}, "placement"),
        ({"node_labels": None, "nodes": ["node-9"]}, "placement"),
        ({"nodes": None, "affinity": [{"label": "disk=fast", "required": True}]}, "placement"),
        ({"affinity": [{"label": "disk=fast", "required": True, "weight": -1}]}, "none"),
        ({"affinity": [{"label": "disk=fast"}]}, "none"),
    ):
        assert (await client.patch(f"{GROUPS}/lobby", json=patch)).status_code == 200
        assert await of_instance(client) == expected, patch
        assert (await drift(client))["placement"] == (["lobby-1"] if expected == "placement" else [])


async def test_no_restart_is_recommended_that_would_be_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online("node-1", labels={"disk": "slow"})
    await rig.instance(pinned=False)
    await client.patch(f"{GROUPS}/lobby", json={"node_labels": {"disk": "fast"}})
    found = await drift(client)
    wrong = "label 'disk' is 'slow', 'fast' is wanted"
    assert (found["nodes"], found["command"]) == ({"node-1": wrong}, "")
    assert found["refused"] == f"no node could take 'lobby-1' again (node-1: {wrong})"
    refused = await client.post(f"{GROUPS}/lobby/restart", json={"at_once": True})
    assert refused.status_code == 409
    assert refused.json()["error"]["hint"] == "first: label disk=fast on node-1"
    assert (await client.get("/api/v1/instances/lobby-1")).json()["wanted"] == "run"
    await rig.online("node-2", labels={"disk": "fast"})
    found = await drift(client)
    assert (found["command"], found["refused"]) == ("corral group restart lobby", "")
    assert (await client.post(f"{GROUPS}/lobby/restart", json={"at_once": True})).status_code == 200


async def test_contents_that_a_group_names_are_drift_and_a_draw_is_none(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for name in ("one", "two", "three"):
        await rig.template(name)
    choices = [{"name": "one"}, {"name": "two"}]
    await rig.group(template_selection={"one_of": choices})
    for number in range(1, 9):
        await rig.instance()
        assert await of_instance(client, f"lobby-{number}") == "none", "what was drawn is no drift"
    await rig.template("three", {"a.txt": b"other"})
    assert (await drift(client))["outdated"] == []
    await rig.template("two", {"a.txt": b"other"})
    assert (await drift(client))["outdated_count"] == 8


async def test_a_run_from_before_this_was_recorded_is_unknown(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.instance(basis="")
    assert ((await drift(client))["unknown_count"], await of_instance(client)) == (1, "unknown")
    await rig.report("lobby-1", state="STOPPED")
    assert ((await drift(client))["unknown_count"], await of_instance(client)) == (0, "none")


async def test_a_pin_is_named_and_what_differs_from_it_is_drift(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.group(max=9)
    await rig.instance()
    await client.patch(f"{GROUPS}/lobby", json={"env": {"A": "1"}})
    await rig.instance()
    group = rig.state.groups.require("lobby")
    pinned = msgspec.structs.replace(group.record, pinned_revision=1)
    await rig.ledger.commit(STORED_GROUPS.put("lobby", pinned, expect=group.revision))
    status = (await client.get(f"{GROUPS}/lobby")).json()["status"]
    assert (status["deployment_revision"], status["pinned_revision"], status["stable_revision"]) == (2, 1, 0)
    found = status["drift"]
    assert (found["pinned_revision"], found["document_pending"], found["outdated"]) == (1, True, ["lobby-2"])
    listed = (await client.get("/api/v1/instances")).json()["items"]
    assert [each["deployment_revision"] for each in listed] == [1, 2]


async def test_a_change_of_a_parent_is_drift_of_its_children(client: httpx.AsyncClient, rig: Rig) -> None:
    await client.post(GROUPS, json={"name": "base", "abstract": True, "memory_mb": 1})
    await client.post(GROUPS, json={"name": "lobby", "parent": "base", "command": ["x"]})
    await rig.instance()
    await client.patch(f"{GROUPS}/base", json={"max": 5})
    assert await of_instance(client) == "none"
    await client.patch(f"{GROUPS}/base", json={"memory_mb": 2})
    assert await of_instance(client) == "outdated"


async def test_what_holds_for_a_whole_group_is_looked_up_once(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.group(max=99, nodes=["node-1"])
    made = await rig.instance()
    more = [msgspec.structs.replace(made, id=InstanceId(f"lobby-{number}")) for number in range(2, 42)]
    await rig.ledger.commit(*(INSTANCES.put(each.id, each, expect=0) for each in more))
    await client.patch(f"{GROUPS}/lobby", json={"nodes": ["node-2"]})
    with counted_calls() as count:
        found = DriftView(rig.state).of_group("lobby")
    assert found.counts == {Drift.PLACEMENT: 41}
    assert count.of(misplaced) == 1
    assert count.of(next_revision) == 1
