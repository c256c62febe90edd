"""Sets of group documents over the API: all or nothing, every error, and nothing when nothing changes."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from http_rig import Rig

from corral.controller.http.resources.groups.group_schemas import audited
from corral.controller.instances.group_apply import apply_set
from corral.domain.groups.group_checks import check_group
from corral.domain.groups.placement_checks import faults_of_references
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.permissions import Role
from corral.testing.counted_calls import calls_by_turn, counted_calls

APPLY = "/api/v1/apply"
GROUPS = "/api/v1/groups"
COMMAND = ["python3", "server.py"]


def document(name: str, **fields: Any) -> dict[str, Any]:
    return {"path": f"{name}.yaml", "body": {"name": name, "command": COMMAND, **fields}}


async def applied(client: httpx.AsyncClient, *documents: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await client.post(APPLY, json={"documents": documents, **more})
    assert answer.status_code == 200, answer.text
    shape: dict[str, Any] = answer.json()
    return shape


async def refused(client: httpx.AsyncClient, *documents: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await client.post(APPLY, json={"documents": documents, **more})
    error: dict[str, Any] = answer.json()["error"]
    assert answer.status_code == error["status"] >= 400
    return error


def actions(shape: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["action"] for each in shape["groups"]}


async def test_a_hundred_groups_are_applied_once_and_the_second_time_nothing_is_written(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    documents = [document("base", abstract=True, memory_mb=64)]
    documents += [document(f"g-{number}", parent="base", min=number % 3) for number in range(99)]
    first = await applied(client, *documents)
    assert (first["created"], first["summary"]) == (100, "100 groups, 100 created")
    before = rig.state.number
    again = await client.post(
        APPLY, json={"documents": documents}, headers={"Idempotency-Key": "the-second-time"}
    )
    assert again.json()["summary"] == "100 groups, nothing changed"
    assert again.json()["unchanged"] == 100
    assert rig.state.number == before == again.json()["revision"]


async def test_one_commit_has_the_whole_set_and_its_audit(client: httpx.AsyncClient, rig: Rig) -> None:
    before = rig.state.number
    shape = await applied(client, document("a"), document("b"), owner="team")
    assert shape["revision"] == rig.state.number == before + 1
    assert [entry["subject"] for entry in await rig.audits("groups.create")] == ["b", "a"]
    (entry,) = await rig.audits("groups.apply")
    assert (entry["subject"], entry["after"]["summary"]) == ("team", "2 groups, 2 created")


async def test_every_audit_entry_of_a_set_has_the_id_of_the_request(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    answer = await client.post(
        APPLY, json={"documents": [document("a"), document("b")]}, headers={"X-Request-Id": "req-set"}
    )
    assert answer.status_code == 200
    entries = [*await rig.audits("groups.create"), *await rig.audits("groups.apply")]
    assert [each["request"] for each in entries] == ["req-set"] * 3


async def test_every_fault_of_every_document_is_named_and_nothing_changes(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    before = rig.state.number
    error = await refused(
        client,
        document("fine"),
        document("two", mni=1, memory_mb=-1, runtime="doker"),
        document("three", min=5, max=1, stop=[{"signal": "SIGNOPE"}]),
        document("child", parent="two"),
        document("lost", parent="fien"),
        document("needs", depends_on=[{"group": "nobody"}]),
        document("fine"),
        {"path": "x.json", "body": [1]},
        {"path": "y.json", "body": {"command": COMMAND}},
    )
    found = [(each["path"], each.get("field")) for each in error["errors"]]
    assert sorted(found, key=str) == [
        ("fine.yaml", "name"),
        ("fine.yaml", "name"),
        ("lost.yaml", "parent"),
        ("needs.yaml", "depends_on/0/group"),
        ("three.yaml", "max"),
        ("three.yaml", "stop/0/signal"),
        ("two.yaml", "memory_mb"),
        ("two.yaml", "mni"),
        ("two.yaml", "runtime"),
        ("x.json", None),
        ("y.json", "name"),
    ]
    assert all(each["message"] for each in error["errors"])
    hints = {each["path"]: each.get("hint", "") for each in error["errors"]}
    assert "did you mean 'fine'" in hints["lost.yaml"]
    assert error["code"] == "DOCUMENTS_INVALID"
    assert rig.state.number == before


async def test_references_are_checked_aside_from_the_loop(client: httpx.AsyncClient) -> None:
    await applied(client, document("hub"), document("lobby", fallback_group="hub"), owner="me")
    with counted_calls() as count:
        error = await refused(client, document("lobby", fallback_group="hub"), owner="me", prune=True)
    assert {each["group"] for each in error["errors"]} == {"hub", "lobby"}
    assert count.of(apply_set) == 1, "the calls of the loop are counted"
    assert count.of(faults_of_references) == 0


async def test_many_groups_are_planned_in_many_turns_of_the_loop(client: httpx.AsyncClient) -> None:
    documents = [document(f"g-{number}", env={"A": "1"}) for number in range(400)]
    async with calls_by_turn() as count:
        await applied(client, *documents)
    assert count.of(resolve_plan) == 400
    assert count.of(check_group) == 0, "done by a thread"
    assert count.of(audited) == 0, "done by a thread"
    assert count.most_in_a_turn < count.calls / 2


async def test_what_a_set_writes_with_all_that_it_inherits_is_bounded(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    base = document("base", abstract=True, env={"LONG": "x" * 100_000})
    before = rig.state.number
    error = await refused(client, base, *(document(f"g-{number}", parent="base") for number in range(170)))
    assert (error["code"], error["status"]) == ("BODY_TOO_LARGE", 413)
    assert "171 groups" in error["message"]
    assert "16 MiB" in error["message"]
    assert "template" in error["hint"]
    assert rig.state.number == before
    small = document("base", abstract=True, env={"LONG": "x" * 1000})
    await applied(client, small, *(document(f"g-{number}", parent="base") for number in range(170)))
    grown = await client.patch(f"{GROUPS}/base", json={"env": {"LONG": "x" * 100_000}})
    assert (grown.status_code, grown.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")
    assert (await client.patch(f"{GROUPS}/base", json={"env": {"LONG": "x"}})).status_code == 200


async def test_children_may_come_before_their_parents_and_inherit_changes(client: httpx.AsyncClient) -> None:
    await applied(
        client, document("a-child", parent="z-base"), document("z-base", abstract=True, memory_mb=64)
    )
    shape = await applied(client, document("z-base", abstract=True, memory_mb=128))
    assert actions(shape) == {"a-child": "changed", "z-base": "changed"}
    (child, _) = shape["groups"]
    assert (child["path"], child["changes"][0]["field"]) == ("", "memory_mb")
    assert (child["changes"][0]["effect"], child["changes"][0]["after"]) == ("restart", 128)
    error = await refused(client, document("z-base", abstract=True, memory_mb=10, jvm={"heap_mb": 20}))
    assert {each["path"] for each in error["errors"]} == {"z-base.yaml"}


async def test_what_a_document_leaves_out_is_the_default_and_the_target_stays(
    client: httpx.AsyncClient,
) -> None:
    await applied(client, document("lobby", min=1, max=5, memory_mb=64))
    await client.post(f"{GROUPS}/lobby/scale", json={"count": 3})
    await applied(client, document("lobby"))
    shape = (await client.get(f"{GROUPS}/lobby")).json()
    assert (shape["min"], shape["max"], shape["memory_mb"], shape["status"]["target"]) == (0, None, 0, 3)


async def test_a_live_edit_is_not_undone_without_force(client: httpx.AsyncClient, rig: Rig) -> None:
    await applied(client, document("lobby", min=1))
    await client.patch(f"{GROUPS}/lobby", json={"min": 2, "memory_mb": 64})
    error = await refused(client, document("lobby", min=1))
    assert error["code"] == error["errors"][0]["code"] == "LIVE_EDIT"
    assert "'memory_mb', 'min'" in error["errors"][0]["message"]
    same = await applied(client, document("lobby", min=2, memory_mb=64))
    assert (actions(same), same["groups"][0]["adopted"]) == ({"lobby": "changed"}, True)
    await client.patch(f"{GROUPS}/lobby", json={"min": 3})
    forced = await applied(client, document("lobby", min=1), force=True)
    assert actions(forced) == {"lobby": "changed"}
    assert (await applied(client, document("lobby", min=1)))["summary"] == "1 group, nothing changed"


async def test_a_live_edit_to_null_is_not_undone_without_force(client: httpx.AsyncClient) -> None:
    """A null is the default, and a missing field is as in the parent."""
    base, lobby = document("base", abstract=True, memory_mb=512), document("lobby", parent="base")
    await applied(client, base, lobby)
    await client.patch(f"{GROUPS}/lobby", json={"memory_mb": None})
    error = await refused(client, base, lobby)
    assert (error["code"], error["errors"][0]["field"]) == ("LIVE_EDIT", "memory_mb")
    assert (await client.get(f"{GROUPS}/lobby")).json()["memory_mb"] == 0


async def test_a_name_that_is_no_text_and_an_owner_that_is_no_name_say_what_to_write(
    client: httpx.AsyncClient,
) -> None:
    number = await refused(client, {"path": "a.yaml", "body": {"name": 123, "command": COMMAND}})
    assert number["errors"][0]["hint"] == 'put it in quotes: name: "123"'
    for owner in ("My Owner!", "team\n", "a" * 64):
        error = await refused(client, document("a"), owner=owner)
        assert (error["field"], "use up to 63 of a-z" in error["hint"]) == ("owner", True)
        assert "regex" not in error["message"]
    await applied(client, document("a"), owner="my-owner.2_")


async def test_prune_deletes_what_the_owner_no_longer_has(client: httpx.AsyncClient) -> None:
    await applied(
        client, document("mine"), document("also-mine"), document("base", abstract=True), owner="me"
    )
    await applied(client, document("theirs"), owner="them")
    await applied(client, document("nobodys"))
    error = await refused(client, document("mine"), prune=True)
    assert error["field"] == "prune"
    assert (await refused(client, owner="me", prune=True))["field"] == "documents"
    kept = await refused(client, document("mine", parent="base"), owner="me", prune=True)
    assert (kept["errors"][0]["path"], kept["errors"][0]["field"]) == ("mine.yaml", "parent")
    assert "the prune would delete it" in kept["errors"][0]["message"]
    assert kept["errors"][0]["hint"] == "add its document to the set, or name another parent"
    shape = await applied(client, document("mine"), owner="me", prune=True)
    assert actions(shape) == {"also-mine": "deleted", "base": "deleted", "mine": "unchanged"}
    left = {each["name"] for each in (await client.get(GROUPS)).json()["items"]}
    assert left == {"mine", "theirs", "nobodys"}
    other = await refused(client, document("theirs", min=1), owner="me")
    assert "belongs to the owner 'them'" in other["errors"][0]["message"]


async def test_a_dry_run_writes_nothing_and_says_what_would_follow(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    before = rig.state.number
    shape = await applied(client, document("lobby", min=2), dry_run=True)
    assert (shape["dry_run"], shape["revision"], rig.state.number) == (True, before, before)
    assert actions(shape) == {"lobby": "created"}
    assert {each["group"] for each in shape["decisions"]} == {"lobby"}
    assert (await client.get(f"{GROUPS}/lobby")).status_code == 404


async def test_an_apply_and_a_patch_at_once_both_hold_or_one_is_refused(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await applied(client, document("lobby"))
    for number in range(20):
        answers = await asyncio.gather(
            client.post(APPLY, json={"documents": [document("lobby", memory_mb=number + 1)]}),
            client.patch(f"{GROUPS}/lobby", json={"pids": number + 1}),
        )
        shape = (await client.get(f"{GROUPS}/lobby")).json()
        assert answers[1].status_code == 200
        if answers[0].status_code == 200:
            assert (shape["memory_mb"], shape["pids"]) == (number + 1, number + 1)
        else:
            assert answers[0].json()["error"]["code"] == "LIVE_EDIT"
            assert shape["pids"] == number + 1
        await applied(client, document("lobby"), force=True)


async def test_the_same_key_answers_the_same(client: httpx.AsyncClient, rig: Rig) -> None:
    body, headers = {"documents": [document("lobby")]}, {"Idempotency-Key": "one"}
    first = await client.post(APPLY, json=body, headers=headers)
    before = rig.state.number
    second = await client.post(APPLY, json=body, headers=headers)
    assert (second.json(), second.headers["idempotency-replayed"]) == (first.json(), "true")
    assert rig.state.number == before


UNBOUNDED = [
    ({"documents": []}, "INVALID_FIELD"),
    ({"documents": [{"body": {}}] * 1001}, "INVALID_FIELD"),
    ({"documents": [{"body": {"name": "a"}, "pth": "x"}]}, "UNKNOWN_FIELD"),
    ({"documents": [{"body": {"name": "a"}}], "owner": "No Name"}, "INVALID_FIELD"),
]


async def test_a_set_is_bounded(client: httpx.AsyncClient) -> None:
    for body, code in UNBOUNDED:
        answer = await client.post(APPLY, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), str(body)[:100]


async def test_a_set_is_bounded_in_bytes_entries_and_depth(client: httpx.AsyncClient) -> None:
    large = await client.post(APPLY, json={"documents": [document("a", labels={"x": "y" * 9 * 1024 * 1024})]})
    assert large.json()["error"]["code"] == "BODY_TOO_LARGE"
    many = [document(f"g-{number}", args=["a"] * 999) for number in range(201)]
    crowded = await client.post(APPLY, json={"documents": many})
    assert crowded.json()["error"]["code"] == "BODY_TOO_LARGE"
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    answer = await client.post(APPLY, json={"documents": [{"body": deep}]})
    assert answer.json()["error"]["code"] == "INVALID_JSON"


async def test_only_a_manager_may(rig: Rig) -> None:
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        answer = await viewer.post(APPLY, json={"documents": [document("lobby")]})
    assert answer.status_code == 403


async def test_a_dry_run_may_count_templates_that_are_to_be_uploaded(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    game = document(
        "game", templates=["maps/arena"], template_selection={"all_in_groups": [{"name": "packs"}]}, min=1
    )
    new = {"dry_run": True, "new_templates": ["maps/arena", "packs/b", "packs/a"]}
    before = rig.state.number
    error = await refused(client, game, dry_run=True)
    assert [each["code"] for each in error["errors"]] == ["TEMPLATE_NOT_FOUND"]
    shape = await applied(client, game, **new)
    assert (shape["created"], len(shape["decisions"])) == (1, 1)
    assert (await refused(client, game, new_templates=["maps/arena"]))["field"] == "new_templates"
    assert (await refused(client, game, dry_run=True, new_templates=["A B"]))["field"] == "new_templates"
    assert rig.state.number == before
    assert (await refused(client, game))["code"] == "DOCUMENTS_INVALID"


async def test_the_answer_of_a_large_change_leaves_values_out_and_is_kept_under_its_key(
    client: httpx.AsyncClient,
) -> None:
    """A value of a parent is in the answer once for each of its descendants."""
    children = [document(f"g{number}", parent="base") for number in range(60)]
    base = {"name": "base", "abstract": True, "env": {"A": "x" * 30_000}}
    await applied(client, {"path": "", "body": base}, *children)
    base["env"]["A"] = "y" * 30_000
    body = {"documents": [{"path": "", "body": base}]}
    answers = [
        await client.post("/api/v1/apply", json=body, headers={"Idempotency-Key": "once"}) for _ in range(2)
    ]
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json()["groups"] == answers[1].json()["groups"]
    assert len(answers[0].content) < 1_200_000
    changes = [each["changes"][0] for each in answers[0].json()["groups"]]
    assert [each["field"] for each in changes] == ["env"] * 61
    assert changes[0]["after"]["A"].startswith("y")
    assert changes[-1]["after"] is None
