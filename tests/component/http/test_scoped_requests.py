"""What a request names beside the subject of its path: groups, nodes and templates in bodies and queries are asked about as
the subject is."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from http_rig import Rig, tar_gz
from test_scopes import error, fleet, scoped

from corral.domain.permissions import Role

__all__ = ["fleet"]  # the fixture

GROUPS, INSTANCES, NODES = "/api/v1/groups", "/api/v1/instances", "/api/v1/nodes"
BOTH: dict[str, list[str]] = {"groups": ["lobby*"], "nodes": ["node-1"]}


async def refused(answer: httpx.Response, field: str | None = None) -> None:
    assert error(answer) == (403, "FORBIDDEN"), answer.text
    if field is not None:
        assert answer.json()["error"]["field"] == field


@pytest.fixture
async def pinned(fleet: Rig) -> Rig:
    """With a group that is on one node alone."""
    await fleet.group("lobby-pinned", min=0, nodes=["node-1"])
    return fleet


async def test_a_start_names_a_node_within_the_scope(pinned: Rig) -> None:
    async with await scoped(pinned, **BOTH) as both:
        outside = await both.post(INSTANCES, json={"group": "lobby", "node": "node-2"})
        absent = await both.post(INSTANCES, json={"group": "lobby", "node": "nope"})
        for answer in (outside, absent):
            await refused(answer, "node")
        inside = await both.post(INSTANCES, json={"group": "lobby", "node": "node-1"})
        assert (inside.status_code, inside.json()["node"]) == (201, "node-1")
    async with await scoped(pinned, groups=["lobby"]) as anywhere:
        made = await anywhere.post(INSTANCES, json={"group": "lobby", "node": "node-2"})
        assert made.status_code == 201, made.text


async def test_a_start_that_names_no_node_could_not_end_up_outside(pinned: Rig) -> None:
    async with await scoped(pinned, **BOTH) as both:
        await refused(await both.post(INSTANCES, json={"group": "lobby"}), "node")
        await refused(await both.post(f"{GROUPS}/lobby/start"))
        for path, body in ((INSTANCES, {"group": "lobby-pinned"}), (f"{GROUPS}/lobby-pinned/start", None)):
            made = await both.post(path, json=body)
            assert (made.status_code, made.json()["node"]) == (201, "node-1"), made.text
    async with await scoped(pinned, groups=["lobby"], nodes=["*"]) as wide:
        assert (await wide.post(INSTANCES, json={"group": "lobby"})).status_code == 201


async def test_a_group_that_reaches_beyond_the_nodes_of_the_scope_is_not_changed(pinned: Rig) -> None:
    """Its instances there are not the caller's to start, to stop or to replace."""
    async with pinned.client() as admin:
        for group in ("lobby", "lobby-pinned"):
            await admin.patch(f"{GROUPS}/{group}", json={"env": {"A": "1"}})
        begun = {
            group: (await admin.post(f"{GROUPS}/{group}/deploy", json={})).json()["id"]
            for group in ("lobby", "lobby-pinned")
        }
        before = (await admin.get(f"{GROUPS}/lobby")).json()["revision"]
    verbs: list[tuple[str, str, Any]] = [
        ("POST", "scale", {"count": 2}), ("POST", "hold", {"reason": "x"}), ("POST", "release", None),
        ("POST", "unpause", None), ("POST", "restart", {}), ("POST", "restart", {"at_once": True}), ("POST", "deploy", {}),
        ("POST", "maintenance", {"enabled": True}),
    ]  # fmt: skip
    async with await scoped(pinned, **BOTH) as both:
        for method, verb, body in verbs:
            await refused(await both.request(method, f"{GROUPS}/lobby/{verb}", json=body))
            own = await both.request(method, f"{GROUPS}/lobby-pinned/{verb}?dry_run=true", json=body)
            assert own.status_code not in (403, 404), (verb, own.text)
        await refused(await both.patch(f"{GROUPS}/lobby", json={"nodes": ["node-1"]}))
        await refused(await both.delete(f"{GROUPS}/lobby", params={"cascade": True, "confirm": "lobby"}))
        for verb in ("pause", "resume", "promote", "rollback", "cancel"):
            await refused(await both.post(f"/api/v1/deployments/{begun['lobby']}/{verb}"))
            own = await both.post(f"/api/v1/deployments/{begun['lobby-pinned']}/{verb}")
            assert own.status_code not in (403, 404), (verb, own.text)
        assert (await both.get(f"{GROUPS}/lobby")).json()["revision"] == before
    async with await scoped(pinned, groups=["lobby"]) as anywhere:
        assert (await anywhere.post(f"{GROUPS}/lobby/scale", json={"count": 2})).status_code == 200


async def test_a_group_that_has_an_instance_outside_is_not_changed_either(pinned: Rig) -> None:
    async with pinned.client() as admin:
        await pinned.group("lobby-moved", min=0)
        await pinned.instance("lobby-moved", node="node-2")
        assert (await admin.patch(f"{GROUPS}/lobby-moved", json={"nodes": ["node-1"]})).status_code == 200
    async with await scoped(pinned, **BOTH) as both:
        await refused(await both.post(f"{GROUPS}/lobby-moved/hold", json={"reason": "x"}))


async def test_a_node_that_runs_other_groups_too_is_not_changed(fleet: Rig) -> None:
    await fleet.online("node-3")
    await fleet.instance("lobby", node="node-3")
    bodies: dict[str, Any] = {"cordon": {}, "drain": {}, "shutdown": {}, "revoke": {}, "undrain": {}}
    async with await scoped(fleet, Role.ADMIN, groups=["lobby"], nodes=["node-1", "node-3"]) as both:
        for verb, body in bodies.items():
            await refused(await both.post(f"{NODES}/node-1/{verb}", json=body))
        await refused(await both.patch(f"{NODES}/node-1", json={"memory_mb": 1}))
        await refused(await both.delete(f"{NODES}/node-1", params={"confirm": "node-1"}))
        for verb in ("drain", "shutdown"):
            own = await both.post(f"{NODES}/node-3/{verb}?dry_run=true", json={})
            assert own.status_code == 200, own.text
        assert (await both.post(f"{NODES}/node-3/cordon", json={})).status_code == 200
    async with await scoped(fleet, nodes=["node-1"]) as whole:
        assert (await whole.post(f"{NODES}/node-1/cordon", json={})).status_code == 200


async def test_files_are_saved_to_a_template_by_who_may_write_all_of_them(fleet: Rig) -> None:
    """A template belongs to no group: what is saved there is started elsewhere."""
    await fleet.template("shared", {"start.sh": b"echo good"})
    fleet.distribution.saved = tar_gz({"start.sh": b"echo evil"})
    body = {"template": "shared", "paths": ["start.sh"]}
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        for instance in ("lobby-1", "arena-1", "nope-1"):
            await refused(await lobbies.post(f"{INSTANCES}/{instance}/save", json=body))
    assert fleet.distribution.asked == []
    async with fleet.client() as admin:
        assert (await admin.get("/api/v1/templates/shared")).json()["version"] == 1


async def test_files_are_saved_by_who_may_read_them(fleet: Rig) -> None:
    few = ["templates.manage", "templates.content", "instances.read"]
    _, text = await fleet.token(Role.OPERATOR, permissions=few)
    body = {"template": "copy", "paths": ["**"]}
    async with fleet.client(text) as caller:
        await refused(await caller.post(f"{INSTANCES}/lobby-1/save", json=body))
    mixed = [{"role": "few"}, {"role": "OPERATOR", "scope": {"groups": ["arena"]}}]
    async with fleet.client() as admin:
        role = {"name": "few", "permissions": few}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
        assert (await admin.post("/api/v1/users", json={"name": "ada", "bindings": mixed})).status_code == 201
    _, text = await fleet.token(Role.ADMIN, owner="ada")
    fleet.distribution.saved = tar_gz({"a": b"a"})
    async with fleet.client(text) as ada:
        assert error(await ada.post(f"{INSTANCES}/lobby-1/save", json=body)) == (404, "NOT_FOUND")
        assert fleet.distribution.asked == []
        assert (await ada.post(f"{INSTANCES}/arena-1/save", json=body)).status_code == 201


async def test_a_node_is_warmed_for_groups_within_the_scope(pinned: Rig) -> None:
    await pinned.online("node-3")
    path = f"{NODES}/node-3/cache/prewarm"
    async with await scoped(pinned, groups=["lobby*"], nodes=["node-3"]) as both:
        for group in ("arena", "nope"):
            await refused(await both.post(path, json={"group": group}), "group")
        await refused(await both.post(path, json={}), "group")
        assert pinned.distribution.asked == []
        assert (await both.post(path, json={"group": "lobby"})).status_code == 200
    async with await scoped(pinned, nodes=["node-3"]) as whole:
        assert (await whole.post(path, json={})).status_code == 200


REFERENCES: list[tuple[str, Any]] = [
    ("parent", "{}"),
    ("fallback_group", "{}"),
    ("depends_on", [{"group": "{}"}]),
    ("affinity", [{"group": "{}"}]),
]


def naming(field: str, form: Any, name: str) -> dict[str, Any]:
    return {field: name if isinstance(form, str) else [{"group": name}]}


@pytest.mark.parametrize(("field", "form"), REFERENCES, ids=[name for name, _ in REFERENCES])
async def test_a_document_refers_to_groups_within_the_scope(fleet: Rig, field: str, form: Any) -> None:
    """Nor does it tell which others there are: not by another answer, nor by the nearest name."""
    async with await scoped(fleet, groups=["lobby*"]) as lobbies:
        told = set()
        for name in ("arena", "arenas"):
            document = {"name": "lobby-x", "command": ["x"], "min": 0, **naming(field, form, name)}
            for answer in (
                await lobbies.post(GROUPS, json=document),
                await lobbies.patch(f"{GROUPS}/lobby", json=naming(field, form, name)),
            ):
                await refused(answer)
                told.add((answer.json()["error"]["field"].partition("/")[0], answer.json()["error"]["hint"]))
        assert len(told) == 1
        assert "arena" not in str(told)
        assert told.pop()[0] == field
        document = {"name": "lobby-x", "command": ["x"], "min": 0, **naming(field, form, "lobby")}
        made = await lobbies.post(GROUPS, json=document)
        assert made.status_code == 201, made.text


async def test_a_reference_of_somebody_else_stays(fleet: Rig) -> None:
    """Who may not name a group himself may still change the rest of a document that does."""
    others = {"fallback_group": "arena", "depends_on": [{"group": "arena"}], "affinity": [{"group": "arena"}]}
    async with fleet.client() as admin:
        assert (await admin.patch(f"{GROUPS}/lobby", json=others)).status_code == 200
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        changed = await lobbies.patch(f"{GROUPS}/lobby", json={"memory_mb": 96})
        assert changed.status_code == 200, changed.text
        document = (await lobbies.get(f"{GROUPS}/lobby/document")).json()
        assert document["fallback_group"] == "arena"
        kept = await lobbies.put(f"{GROUPS}/lobby/document", json={**document, "memory_mb": 128})
        assert kept.status_code == 200, kept.text
        more = {"depends_on": [{"group": "arena"}, {"group": "gate"}]}
        await refused(await lobbies.patch(f"{GROUPS}/lobby", json=more), "depends_on/1/group")


async def test_the_name_of_a_group_outside_is_refused_as_any_other_name_outside(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        answers = [
            (await lobbies.post(path, json={**body, field: name})).json()["error"]
            for path, field, body in ((GROUPS, "name", {"command": ["x"]}), (INSTANCES, "group", {}))
            for name in ("arena", "arenas")
        ]
        assert {each["code"] for each in answers} == {"FORBIDDEN"}
        assert not any("arena" in each["hint"] for each in answers)


async def test_what_is_not_there_has_no_name_of_what_is_outside_as_a_hint(fleet: Rig) -> None:
    async with fleet.client() as admin:
        hint = (await admin.get(f"{GROUPS}/aren")).json()["error"]["hint"]
        assert "arena" in hint
    async with await scoped(fleet, groups=["lobby", "aren", "aren-1"], nodes=["node-1", "node"]) as both:
        for answer in (
            await both.get(f"{GROUPS}/aren"),
            await both.get(f"{GROUPS}/aren/why"),
            await both.get(f"{INSTANCES}/aren-1"),
            await both.get(f"{NODES}/node"),
            await both.post(INSTANCES, json={"group": "aren", "node": "node-1"}),
            await both.post(INSTANCES, json={"group": "lobby", "node": "node"}),
        ):
            assert answer.status_code in (403, 404), answer.text
            assert "arena" not in answer.text
            assert "node-2" not in answer.text
    async with await scoped(fleet, nodes=["node-1"]) as node:
        absent = await node.post(f"{NODES}/node-1/cache/prewarm", json={"group": "aren"})
        assert "arena" not in absent.text
