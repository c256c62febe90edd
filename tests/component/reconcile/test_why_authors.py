"""Why: chains of causes end at the person who asked for the change."""

from __future__ import annotations

import pytest

from corral.testing.waiting import eventually


async def why(fleet, place: str) -> dict:
    return await fleet.controller.call("GET", f"/api/v1/{place}/why")


def chain(found: dict) -> list[tuple[str, str]]:
    return [(each["kind"], each["rule"] or each["reason"]) for each in found["chain"]]


@pytest.mark.parametrize(
    ("group", "method", "path", "body", "event", "action"),
    [
        (
            {"node_labels": {"tier": "gold"}},
            "PATCH",
            "/api/v1/nodes/n1",
            {"labels": {"tier": "gold"}},
            "NODE_CONFIGURED",
            "nodes.configure",
        ),
        ({}, "POST", "/api/v1/nodes/n1/uncordon", {}, "NODE_UNCORDONED", "nodes.uncordon"),
    ],
)
async def test_a_change_of_a_node_that_lets_a_group_start_names_who_made_it(
    fleet, group, method, path, body, event, action
):
    await fleet.begin()
    await fleet.node("n1")
    if event == "NODE_UNCORDONED":
        await fleet.controller.call("POST", "/api/v1/nodes/n1/cordon", {"reason": "repair"})
    await fleet.group(min=1, **group)
    await eventually(lambda: "NO_CAPACITY" in fleet.group_record().reason)
    await fleet.controller.call(method, path, body)
    await fleet.running(1)
    assert chain(await why(fleet, "instances/lobby-1")) == [
        ("request", f"first-admin asked for {action} of 'n1'"),
        ("event", event),
        ("decision", "min.restore"),
    ]


async def test_the_replacement_of_what_ran_on_a_removed_node_names_who_removed_it(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.node("n2")
    await node.drop()
    await fleet.controller.call("POST", "/api/v1/nodes/n1/revoke?confirm=n1", {"reason": "stolen"})
    revoked = await why(fleet, "nodes/n1")
    [changed] = [each["reason"] for each in revoked["now"] if each["topic"] == "changed"]
    assert changed.startswith("first-admin asked for nodes.revoke of 'n1' at ")
    await fleet.controller.call("DELETE", "/api/v1/nodes/n1?confirm=n1")
    await fleet.reaches("lobby-2", "RUNNING")
    first, *_ = chain(await why(fleet, "instances/lobby-2"))
    assert first == ("request", "first-admin asked for nodes.remove of 'n1'")
    gone = await why(fleet, "nodes/n1")
    assert gone["state"] == "GONE"
    assert [each["reason"].partition(" at ")[0] for each in gone["now"]] == [
        "first-admin asked for nodes.remove of 'n1'"
    ]


async def test_reasons_name_people_and_not_the_ids_of_tokens(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=0, max=3)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 2})
    await fleet.running(2)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 1})
    await fleet.reaches("lobby-2", "STOPPED")
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/kill", {})
    await fleet.reaches("lobby-1", "STOPPED")
    reasons = {
        each["reason"] for each in (await why(fleet, "groups/lobby"))["decisions"] if each["kind"] != "start"
    }
    assert reasons == {
        "scaled from 0 to 2 by 'first-admin'",
        "scaled from 2 to 1 by 'first-admin'",
        "1 is wanted, 2 are there; players unknown",
        "asked for by 'first-admin'",
    }


async def test_what_follows_a_kill_and_a_scale_names_who_asked_for_it(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=1000)
    await fleet.group("shop", min=0, max=3, memory_mb=400)
    await fleet.controller.call("POST", "/api/v1/groups/shop/scale", {"count": 2})
    await fleet.running(2, "shop")
    await fleet.group(min=1, memory_mb=400)
    await eventually(lambda: "NO_CAPACITY" in fleet.group_record().reason)
    await fleet.controller.call("POST", "/api/v1/groups/shop/scale", {"count": 1})
    await fleet.running(1)
    scaled = chain(await why(fleet, "instances/lobby-1"))
    assert scaled[0] == ("request", "first-admin asked for groups.scale of 'shop'")
    assert [rule for kind, rule in scaled if kind == "event"] == ["INSTANCE_STOPPED"]
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/kill", {})
    await fleet.reaches("lobby-2", "RUNNING")
    killed = chain(await why(fleet, "instances/lobby-2"))
    assert killed[0] == ("request", "first-admin asked for instances.kill of 'lobby-1'")


async def test_a_start_that_waited_for_a_group_names_who_created_that(fleet):
    await fleet.begin()
    await fleet.group("db", min=0)
    await fleet.group(min=1, depends_on=[{"group": "db"}])
    await eventually(lambda: "waits for 'db'" in fleet.group_record().reason)
    await fleet.node("n1")
    await fleet.controller.call("PATCH", "/api/v1/groups/db", {"min": 1})
    await fleet.running(1)
    first, *_ = chain(await why(fleet, "instances/lobby-1"))
    assert first == ("request", "first-admin asked for groups.update of 'db'")
