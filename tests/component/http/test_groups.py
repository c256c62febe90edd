"""Groups over the API: the document as it was written, and how the group fares."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest
from http_rig import Rig

from corral.controller.instances.group_format_upgrade import upgrade_groups
from corral.controller.state.collections import CLUSTER, ONLY
from corral.domain.instance_states import InstanceState

GROUPS = "/api/v1/groups"
MINIMAL = {
    "name": "lobby",
    "runtime": "process",
    "command": ["python3", "server.py", "--port", "%PORT%"],
    "min": 2,
    "max": 5,
    "ports": {"primary": {"range": [30000, 30100]}},
    "memory_mb": 256,
}


async def test_the_minimal_document_makes_a_group_and_comes_back(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await client.post(GROUPS, json=MINIMAL)
    assert made.status_code == 201, made.text
    shape = made.json()
    assert {key: shape[key] for key in MINIMAL if key != "ports"} == {
        key: value for key, value in MINIMAL.items() if key != "ports"
    }
    assert shape["ports"]["primary"]["range"] == [30000, 30100]
    assert (shape["status"]["wanted"], shape["status"]["instances"], shape["status"]["paused"]) == (
        2,
        0,
        None,
    )
    assert made.headers["etag"] == f'"{shape["revision"]}"'
    found = (await client.get(f"{GROUPS}/lobby")).json()
    assert found["status"]["drift"]["command"] == ""
    found["status"]["drift"] = None
    assert found == shape
    assert (await client.get(GROUPS)).json() == {"items": [shape], "next": None}
    assert [entry["subject"] for entry in await rig.audits("groups.create")] == ["lobby"]


CANNOT_WORK = [
    ({"nmae": "x"}, "UNKNOWN_FIELD", "nmae"),
    ({"command": []}, "INVALID_FIELD", "command"),
    ({"min": 9}, "INVALID_FIELD", "max"),
    ({"name": "Not A Name"}, "INVALID_FIELD", "name"),
    ({"ports": {"primary": {"range": [2, 1]}}}, "INVALID_FIELD", "ports/primary/range"),
    ({"ports": {"primary": {"range": [1]}}}, "INVALID_FIELD", "ports/primary/range"),
    ({"memory_mb": -1}, "INVALID_FIELD", "memory_mb"),
    ({"runtime": "doker"}, "INVALID_FIELD", "runtime"),
    ({"env": {"LD_PRELOAD": "x"}}, "INVALID_FIELD", "env/LD_PRELOAD"),
]


async def test_a_document_that_cannot_work_is_refused_with_its_field(client: httpx.AsyncClient) -> None:
    for changed, code, field in CANNOT_WORK:
        answer = await client.post(GROUPS, json={**MINIMAL, **changed})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error.get("field")) == (400, code, field), changed


async def test_a_name_is_given_once(client: httpx.AsyncClient) -> None:
    await client.post(GROUPS, json=MINIMAL)
    again = await client.post(GROUPS, json=MINIMAL)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "ALREADY_EXISTS")


async def test_a_patch_changes_what_it_names_and_null_goes_back_to_the_default(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.post(GROUPS, json={**MINIMAL, "env": {"A": "1", "B": "2"}, "restart": {"attempts": 7}})
    patch = {"min": 1, "memory_mb": None, "env": {"A": None, "C": "3"}, "restart": {"delay_ms": 5}}
    changed = await client.patch(f"{GROUPS}/lobby", json=patch)
    assert changed.status_code == 200, changed.text
    shape = changed.json()
    assert (shape["min"], shape["memory_mb"], shape["env"]) == (1, 0, {"B": "2", "C": "3"})
    assert (shape["restart"]["attempts"], shape["restart"]["delay_ms"]) == (7, 5)
    (entry,) = await rig.audits("groups.update")
    assert (entry["before"]["env"], entry["after"]["env"]) == (["A", "B"], ["B", "C"]), "names, never values"


async def test_if_match_guards_a_patch(client: httpx.AsyncClient) -> None:
    made = await client.post(GROUPS, json=MINIMAL)
    headers = {"If-Match": made.headers["etag"]}
    assert (await client.patch(f"{GROUPS}/lobby", json={"min": 1}, headers=headers)).status_code == 200
    late = await client.patch(f"{GROUPS}/lobby", json={"min": 0}, headers=headers)
    assert (late.status_code, late.json()["error"]["code"]) == (412, "REVISION_MISMATCH")


async def test_the_digest_changes_with_the_document_and_not_with_the_number(
    client: httpx.AsyncClient,
) -> None:
    made = await client.post("/api/v1/groups", json={"name": "lobby", "command": ["x"]})
    first = made.json()["status"]["document_sha256"]
    scaled = await client.post("/api/v1/groups/lobby/scale", json={"count": 1})
    assert scaled.json()["status"]["document_sha256"] == first
    changed = await client.patch("/api/v1/groups/lobby", json={"memory_mb": 64})
    assert changed.json()["status"]["document_sha256"] not in ("", first)


async def test_a_parent_without_instances_is_neither_held_nor_restarted(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/groups", json={"name": "base", "abstract": True})
    for verb, body in (("hold", {"reason": "x"}), ("restart", None)):
        answer = await client.post(f"/api/v1/groups/base/{verb}", json=body)
        assert (answer.status_code, "abstract" in answer.json()["error"]["message"]) == (409, True)


async def test_a_group_is_scaled_within_its_bounds(client: httpx.AsyncClient) -> None:
    await client.post(GROUPS, json=MINIMAL)
    scaled = await client.post(f"{GROUPS}/lobby/scale", json={"count": 4})
    assert scaled.json()["status"]["wanted"] == 4
    refused = await client.post(f"{GROUPS}/lobby/scale", json={"count": 6})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "count")


async def test_a_group_with_instances_is_deleted_only_in_cascade(client: httpx.AsyncClient, rig: Rig) -> None:
    instance = await rig.instance()
    refused = await client.delete(f"{GROUPS}/lobby")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "GROUP_NOT_EMPTY")
    asked = await client.delete(f"{GROUPS}/lobby", params={"cascade": "true"})
    assert (asked.status_code, asked.json()["error"]["code"]) == (409, "CONFIRMATION_REQUIRED")
    assert f"'{instance.id}' (RUNNING) would be stopped" in asked.json()["error"]["message"]
    assert (await client.get(f"/api/v1/instances/{instance.id}")).json()["wanted"] == "run"
    meant = {"cascade": "true", "confirm": "lobby"}
    assert (await client.delete(f"{GROUPS}/lobby", params=meant)).status_code == 204
    assert (await client.get(f"{GROUPS}/lobby")).json()["status"]["deleting"] is True
    assert (await client.get(f"/api/v1/instances/{instance.id}")).json()["wanted"] == "stop"


@pytest.mark.trap("T90")
async def test_static_is_switched_off_only_when_it_is_confirmed_by_name_while_worlds_exist(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group("world", static=True)
    url = f"{GROUPS}/world"
    assert (await client.patch(url, json={"static": False})).status_code == 200, "there is no world"
    await client.patch(url, json={"static": True})
    await rig.instance("world", state=InstanceState.STOPPED, home="node-1")
    asked = (await client.patch(url, json={"static": False, "min": 1})).json()["error"]
    assert (asked["code"], asked["field"]) == ("CONFIRMATION_REQUIRED", "confirm")
    assert "'world-1' on node 'node-1' (static/world-1 in its data directory)" in asked["message"]
    assert "deleted when they stop" in asked["message"]
    assert "confirm=world" in asked["hint"]
    wrong = await client.patch(url, json={"static": False}, params={"confirm": "lobby"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "INVALID_FIELD")
    found = (await client.get(url)).json()
    assert (found["static"], found["min"]) == (True, 0), "nothing was changed"
    assert (await client.patch(url, json={"min": 1})).status_code == 200, "only static is asked about"
    done = await client.patch(url, json={"static": False}, params={"confirm": "world"})
    assert (done.status_code, done.json()["static"]) == (200, False)
    await client.patch(url, json={"static": True})
    asked = (await client.delete(url)).json()["error"]
    assert asked["code"] == "CONFIRMATION_REQUIRED", "its world is known still"
    assert "the worlds 'world-1' on node 'node-1'" in asked["message"]
    assert (await client.delete(url, params={"confirm": "world"})).status_code == 204


async def test_an_empty_group_is_gone_at_once(client: httpx.AsyncClient) -> None:
    await client.post(GROUPS, json=MINIMAL)
    assert (await client.delete(f"{GROUPS}/lobby")).status_code == 204
    gone = await client.get(f"{GROUPS}/lobby")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_restarting_a_group_orders_every_instance(client: httpx.AsyncClient, rig: Rig) -> None:
    first, second = await rig.instance(), await rig.instance()
    restarted = await client.post(f"{GROUPS}/lobby/restart", json={"at_once": True})
    assert restarted.status_code == 200
    assert restarted.json()["revision"] == (await client.get(f"{GROUPS}/lobby")).json()["revision"]
    for id in (first.id, second.id):
        assert (await client.get(f"/api/v1/instances/{id}")).json()["wanted"] == "stop"


async def test_a_group_whose_next_run_cannot_be_planned_is_not_restarted(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    first, second = await rig.instance(), await rig.instance()
    raised = {"variable_types": {"MOTD": {"required": True}}}
    assert (await client.patch(f"{GROUPS}/lobby", json=raised)).status_code == 200
    for path, body in (
        (f"{GROUPS}/lobby/restart", {"at_once": True}),
        (f"{GROUPS}/lobby/restart", {}),
        (f"/api/v1/instances/{first.id}/restart", {}),
    ):
        refused = await client.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "VARIABLE_INVALID")
    for id in (first.id, second.id):
        assert (await client.get(f"/api/v1/instances/{id}")).json()["wanted"] == "run"


@pytest.mark.trap("T27")
async def test_of_many_starts_at_the_limit_exactly_one_succeeds(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group(max=1)
    answers = await asyncio.gather(*(client.post(f"{GROUPS}/lobby/start") for _ in range(100)))
    assert sorted({answer.status_code for answer in answers}) == [201, 409]
    assert [answer.status_code for answer in answers].count(201) == 1
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} == {
        "GROUP_FULL"
    }


async def test_why_tells_what_a_group_lacks(client: httpx.AsyncClient, rig: Rig) -> None:
    await client.post(GROUPS, json=MINIMAL)
    told = (await client.get(f"{GROUPS}/lobby/why")).json()
    assert (told["subject"], told["state"]) == ("group/lobby", "SHORT")
    assert "wants 2 instances and has 0" in told["summary"]


async def test_groups_from_before_auto_isolate_by_node_except_worlds_that_are_there(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for name, fields in {
        "lobby": {"isolate": "shared"},
        "fresh": {"isolate": "shared", "static": True},
        "world": {"isolate": "shared", "static": True},
        "alone": {"isolate": "uid"},
    }.items():
        await rig.group(name, **fields)
    await rig.instance("world")
    record = rig.state.cluster.require(ONLY)
    earlier = msgspec.structs.replace(record.record, group_format=0)
    await rig.ledger.commit(CLUSTER.put(ONLY, earlier, expect=record.revision))

    await upgrade_groups(rig.ledger)
    shapes = (await client.get(GROUPS)).json()["items"]
    found = {shape["name"]: shape["isolate"] for shape in shapes}
    assert found == {"lobby": "auto", "fresh": "auto", "world": "shared", "alone": "uid"}
    why = (await client.get("/api/v1/groups/world/why")).json()["summary"]
    assert "isolate: shared" in why
    assert "corral group update world" in why
    assert "isolate" not in (await client.get("/api/v1/groups/lobby/why")).json()["summary"]

    patched = await client.patch("/api/v1/groups/lobby", json={"isolate": "shared"})
    assert patched.status_code == 200, patched.text
    await upgrade_groups(rig.ledger)
    assert (await client.get("/api/v1/groups/lobby")).json()["isolate"] == "shared"


async def test_groups_from_before_get_the_time_to_live_that_is_usual_now(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for name, milliseconds in {"usual": 0, "chosen": 20}.items():
        await rig.group(name, min_alive_ms=milliseconds)
    record = rig.state.cluster.require(ONLY)
    earlier = msgspec.structs.replace(record.record, group_format=1)
    await rig.ledger.commit(CLUSTER.put(ONLY, earlier, expect=record.revision))
    await upgrade_groups(rig.ledger)
    await client.patch("/api/v1/groups/chosen", json={"min_alive_ms": 0})
    await upgrade_groups(rig.ledger)
    shapes = (await client.get(GROUPS)).json()["items"]
    assert {shape["name"]: shape["min_alive_ms"] for shape in shapes} == {"usual": 1500, "chosen": 0}


async def test_a_user_that_cannot_be_is_refused_in_the_document(client: httpx.AsyncClient) -> None:
    for fields in ({"run_as": "9" * 5000}, {"run_as": "4294967295"}, {"run_as": "games", "isolate": "uid"}):
        answer = await client.post("/api/v1/groups", json={"name": "lobby", "command": ["x"], **fields})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "INVALID_FIELD"
        assert len(answer.text) < 1000


async def test_a_page_of_long_documents_ends_by_its_bytes_and_leads_to_the_rest(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for number in range(6):
        await rig.group(f"long-{number}", args=["x" * 100_000] * 6)
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while len(pages) < 10:
        answer = await client.get("/api/v1/groups", params=cursor)
        assert len(answer.content) < 2.1 * 1024 * 1024
        pages.append([each["name"] for each in answer.json()["items"]])
        if answer.json()["next"] is None:
            break
        cursor = {"cursor": answer.json()["next"]}
    assert [name for page in pages for name in page] == [f"long-{number}" for number in range(6)]
    assert [len(page) for page in pages] == [3, 3]


@pytest.mark.parametrize(
    "path",
    ["groups/%1b%5b2J", "groups/a%e2%80%aeb", "instances/%c2%9b2J", "nodes/%1b]0;x%07", "deployments/%00"],
)
async def test_errors_spell_out_control_characters_of_a_path(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/api/v1/{path}")
    assert answer.status_code in (400, 404)
    error = answer.json()["error"]
    assert all(sign not in str(error) for sign in ("\\x1b", "\\u202e", "\\x9b", "\\x07", "\\x00")), error
    assert "U+" in error["message"] or answer.status_code == 400


async def test_errors_spell_out_control_characters_of_a_time_zone(client: httpx.AsyncClient) -> None:
    zone = "Europe/\x1b[31mBerlin\x9b"
    schedule = {"name": "a", "cron": "0 1 * * *", "duration_seconds": 60, "min": 1, "time_zone": zone}
    answer = await client.post(GROUPS, json={**MINIMAL, "schedules": [schedule]})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "U+001B[31mBerlinU+009B" in message
    assert message.isprintable()
