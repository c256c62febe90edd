"""Templates and logs for callers with a scope: what the groups and nodes within it use and say."""

from __future__ import annotations

import re

import httpx
import pytest
from http_rig import Rig, tar_gz
from sse_client import following
from test_scopes import fleet, scoped

from corral.domain.permissions import Role

__all__ = ["fleet"]  # the fixture


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture
async def templates(fleet: Rig) -> Rig:
    """One of each group, one of both, a parent, and one that nobody uses."""
    for name in ("lobby-base", "arena-base", "shared", "spare"):
        await fleet.template(name, {"a.txt": name.encode()})
    await fleet.template("parent", {"p.txt": b"parent"})
    async with fleet.client() as admin:
        patch = {"settings": {"parents": ["parent"]}}
        assert (await admin.patch("/api/v1/templates/lobby-base", json=patch)).is_success
        for group in ("lobby", "arena"):
            chain = {"templates": [f"{group}-base", "shared"]}
            assert (await admin.patch(f"/api/v1/groups/{group}", json=chain)).is_success
    return fleet


async def test_templates_that_groups_of_the_scope_use_are_there_and_no_others(templates: Rig) -> None:
    async with await scoped(templates, groups=["lobby"]) as lobbies:
        listed = (await lobbies.get("/api/v1/templates")).json()["items"]
        assert {each["name"] for each in listed} == {"lobby-base", "shared", "parent"}
        shared = (await lobbies.get("/api/v1/templates/shared")).json()
        assert shared["used_by"] == ["lobby"]
        for path in ("", "/-/versions", "/-/files", "/-/files/a.txt", "/-/export"):
            assert (await lobbies.get(f"/api/v1/templates/lobby-base{path}")).is_success, path
            assert error(await lobbies.get(f"/api/v1/templates/arena-base{path}")) == (404, "NOT_FOUND")
            assert error(await lobbies.get(f"/api/v1/templates/spare{path}")) == (404, "NOT_FOUND")
        changed = await lobbies.patch("/api/v1/templates/lobby-base", json={"settings": {}})
        assert error(changed) == (403, "FORBIDDEN")
    async with await scoped(templates, nodes=["node-1"]) as node:
        assert (await node.get("/api/v1/templates")).json()["items"] == []


TAKING_UP = {
    "a new group": ("POST", "/api/v1/groups", {"name": "lobby-2", "command": ["x"]}),
    "an abstract group": ("POST", "/api/v1/groups", {"name": "lobby-2", "abstract": True}),
    "a dry run": ("POST", "/api/v1/groups?dry_run=true", {"name": "lobby-2", "command": ["x"]}),
    "a document with another fault": ("POST", "/api/v1/groups", {"name": "lobby-2", "min": 5, "max": 2}),
    "a patch": ("PATCH", "/api/v1/groups/lobby", {}),
    "a dry run of a patch": ("PATCH", "/api/v1/groups/lobby?dry_run=true", {}),
    "a whole document": ("PUT", "/api/v1/groups/lobby/document", {"name": "lobby", "command": ["x"]}),
    "a new configuration": ("PUT", "/api/configurations/lobby-2", {"name": "lobby-2", "command": "x"}),
    "a changed configuration": ("PUT", "/api/configurations/lobby", {"name": "lobby", "command": "x"}),
}
"""Ways to have a group lay a template: method, path and the rest of the body."""
USES = {
    "chain": lambda name: {"templates": ["shared", name]},
    "all of": lambda name: {"template_selection": {"all_of": [{"name": name}]}},
    "one of": lambda name: {"template_selection": {"one_of": [{"name": "shared"}, {"name": name}]}},
}
ELSEWHERE = (
    ("GET", "/api/v1/templates/{}"),
    ("GET", "/api/v1/templates/{}/-/files/a.txt"),
    ("GET", "/api/templates/{}"),
    ("GET", "/api/templates/{}/files/a.txt"),
    ("PUT", "/api/v1/templates/{}"),
    ("DELETE", "/api/v1/templates/{}"),
    ("POST", "/api/templates/{}/export"),
    ("POST", "/api/v1/templates/{}/-/rollback"),
)


def answered(answer: httpx.Response, name: str) -> tuple[int, str]:
    """Status and body, apart from the name and the request's id."""
    body = answer.text
    for part in (name, *name.split("/")):
        body = body.replace(part, "NAME")
    return answer.status_code, re.sub(r'"request_id":"[^"]*"', "", body)


async def test_a_foreign_an_unused_and_an_invented_template_are_answered_the_same(templates: Rig) -> None:
    foreign, unused, invented = "maps/foreign", "maps/idle", "maps/invented"
    await templates.template(foreign, {"a.txt": b"secret"})
    await templates.template(unused, {"a.txt": b"secret"})
    async with templates.client() as admin:
        assert (await admin.patch("/api/v1/groups/arena", json={"templates": [foreign]})).is_success
    told_apart, taken = [], []
    async with await scoped(templates, Role.ADMIN, groups=["lobby*"]) as lobbies:
        for way, (method, path, rest) in TAKING_UP.items():
            for kind, use in USES.items():
                if "configuration" in way and kind == "chain":
                    continue
                answers = []
                for name in (foreign, unused, invented):
                    group, _, own = name.rpartition("/")
                    theirs = {"templateInstallationConfig": {"allOf": [{"group": group, "name": own}]}}
                    body = {**rest, **(theirs if "configuration" in way else use(name))}
                    sent = await lobbies.request(method, path, json=body)
                    answers.append(answered(sent, name))
                told_apart += [(way, kind, answers)] if len(set(answers)) > 1 else []
                taken += [(way, kind, answers[0])] if answers[0][0] != 404 else []
        for method, path in ELSEWHERE:
            sent = [
                answered(await lobbies.request(method, path.format(name)), name)
                for name in (foreign, unused, invented)
            ]
            told_apart += [(method, path, sent)] if len(set(sent)) > 1 else []
            taken += [(method, path, sent[0])] if sent[0][0] not in (403, 404) else []
    assert (told_apart, taken) == ([], [])


async def test_a_scoped_caller_takes_up_what_groups_of_the_scope_use_and_keeps_what_is_there(
    templates: Rig,
) -> None:
    async with await scoped(templates, groups=["lobby*"]) as lobbies:
        own = {"name": "lobby-2", "command": ["x"], "templates": ["shared", "parent"]}
        assert (await lobbies.post("/api/v1/groups", json=own)).status_code == 201
        async with templates.client() as admin:
            given = {"templates": ["lobby-base", "spare"]}
            assert (await admin.patch("/api/v1/groups/lobby", json=given)).is_success
        kept = await lobbies.patch("/api/v1/groups/lobby", json={"templates": ["spare"], "memory_mb": 64})
        assert kept.status_code == 200, kept.text


async def test_a_template_saved_from_a_group_of_the_scope_is_there_until_something_else_is_put_into_it(
    templates: Rig,
) -> None:
    ids = {group: (await templates.instance(group)).id for group in ("lobby", "arena")}
    made = {"name": "lobby-2", "command": ["x"], "templates": ["saved"]}

    async def save(group: str) -> None:
        templates.distribution.saved = tar_gz({"a.txt": group.encode()})
        body = {"template": "saved", "paths": ["*"]}
        async with templates.client() as admin:
            assert (await admin.post(f"/api/v1/instances/{ids[group]}/save", json=body)).is_success

    await save("lobby")
    async with await scoped(templates, groups=["lobby"], nodes=["node-1"]) as part:
        assert error(await part.get("/api/v1/templates/saved")) == (404, "NOT_FOUND"), "of any node"
    async with await scoped(templates, groups=["lobby*"]) as lobbies:
        assert (await lobbies.get("/api/v1/templates/saved/-/files/a.txt")).text == "lobby"
        assert (await lobbies.post("/api/v1/groups?dry_run=true", json=made)).is_success
        await save("arena")
        assert error(await lobbies.get("/api/v1/templates/saved")) == (404, "NOT_FOUND")
        assert error(await lobbies.post("/api/v1/groups", json=made)) == (404, "TEMPLATE_NOT_FOUND")
        await save("lobby")
        assert error(await lobbies.get("/api/v1/templates/saved")) == (404, "NOT_FOUND"), "versions are kept"
        async with templates.client() as admin:
            assert (await admin.delete("/api/v1/templates/saved")).is_success
        await save("lobby")
        assert (await lobbies.post("/api/v1/groups", json=made)).status_code == 201


async def test_who_may_write_all_templates_takes_up_its_own_and_who_may_only_list_them_is_told_so(
    templates: Rig,
) -> None:
    roles = {"editor": ["templates.manage"], "lister": ["templates.read"]}
    made = {"name": "lobby-2", "command": ["x"], "templates": ["spare"]}
    answers = {}
    async with templates.client() as admin:
        for role, permissions in roles.items():
            assert (
                await admin.post("/api/v1/roles", json={"name": role, "permissions": permissions})
            ).is_success
            bindings = [{"role": role}, {"role": "OPERATOR", "scope": {"groups": ["lobby*"]}}]
            assert (await admin.post("/api/v1/users", json={"name": role, "bindings": bindings})).is_success
            _, text = await templates.token(Role.ADMIN, owner=role)
            async with templates.client(text) as caller:
                answers[role] = await caller.post("/api/v1/groups?dry_run=true", json=made)
    assert answers["editor"].is_success, answers["editor"].text
    assert error(answers["lister"]) == (403, "FORBIDDEN")


async def test_nobody_gets_the_templates_to_come_of_a_template_group(templates: Rig) -> None:
    """A template group that nobody uses, and into which others put theirs later."""
    await templates.template("packs/one", {"a.txt": b"nobody's"})
    selected = {"template_selection": {"all_in_groups": [{"name": "packs"}]}}
    async with await scoped(templates, groups=["lobby*"]) as lobbies:
        refused = await lobbies.patch("/api/v1/groups/lobby", json=selected)
        assert error(refused) == (403, "FORBIDDEN")
        absent = {"template_selection": {"all_in_groups": [{"name": "zzz"}]}}
        unknown = await lobbies.patch("/api/v1/groups/lobby", json=absent)
        assert answered(unknown, "zzz") == answered(refused, "packs")
        async with templates.client() as admin:
            assert (await admin.patch("/api/v1/groups/lobby", json=selected)).is_success
        kept = await lobbies.patch("/api/v1/groups/lobby", json={**selected, "memory_mb": 64})
        assert kept.status_code == 200, "what somebody else selected stays"


async def test_refusals_do_not_name_groups_outside_of_the_scope(fleet: Rig) -> None:
    async with fleet.client() as admin:
        depends = {"name": "zeta", "command": ["x"], "depends_on": [{"group": "lobby"}], "min": 0}
        assert (await admin.post("/api/v1/groups", json=depends)).is_success
        async with await scoped(fleet, groups=["lobby"]) as lobbies:
            for path in ("/api/v1/groups/lobby", "/api/configurations/lobby"):
                refused = await lobbies.delete(path)
                assert refused.status_code == 409, refused.text
                assert "zeta" not in refused.text


async def test_static_names_tell_nothing_of_groups_outside_and_take_no_ids_of_theirs(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        for other in ("arena", "future"):
            patch = {"static": True, "static_names": [f"{other}-1"]}
            refused = await lobbies.patch("/api/v1/groups/lobby", json=patch)
            assert error(refused) == (403, "FORBIDDEN"), refused.text


async def test_a_template_outside_of_the_scope_is_not_read_by_the_files_of_an_instance(
    templates: Rig,
) -> None:
    """The permission to read templates in one group is none for those of another, whose files the caller may read."""
    async with templates.client() as admin:
        for name, needed in (("filer", "instances.files"), ("designer", "templates.content")):
            role = {"name": name, "permissions": ["self.read", needed]}
            assert (await admin.post("/api/v1/roles", json=role)).is_success
        bindings = [
            {"role": "filer", "scope": {"groups": ["lobby", "arena"]}},
            {"role": "designer", "scope": {"groups": ["arena"]}},
        ]
        made = await admin.post("/api/v1/users", json={"name": "eve", "bindings": bindings})
        assert made.is_success, made.text
    started = {group: await templates.instance(group) for group in ("lobby", "arena")}
    _, text = await templates.token(Role.ADMIN, owner="eve")
    async with templates.client(text) as eve:

        async def origin(group: str, path: str) -> httpx.Response:
            at = f"/api/v1/instances/{started[group].id}/files/origin"
            return await eve.get(at, params={"path": path})

        assert (await origin("arena", "a.txt")).json()["content"] == "shared"
        for path in ("p.txt", "made.txt"):
            assert error(await origin("lobby", path)) == (404, "NOT_FOUND")
        outside, absent = await origin("lobby", "p.txt"), await origin("lobby", "q.txt")
        assert (
            outside.json()["error"]["message"].replace("p.txt", "q.txt")
            == (absent.json()["error"]["message"])
        )
    async with templates.client() as admin:
        at = f"/api/v1/instances/{started['lobby'].id}/files/origin"
        assert (await admin.get(at, params={"path": "p.txt"})).json()["content"] == "parent"


async def test_the_log_of_a_node_is_for_whoever_has_the_whole_node(fleet: Rig) -> None:
    def log(source: str) -> str:
        return f"/api/v1/logs?source={source}"

    async with await scoped(fleet, nodes=["node-1"]) as node:
        assert (await node.get(log("node:node-1"))).is_success
        async with following(node, "/api/v1/logs/stream?source=node:node-1") as stream:
            await stream.frame()
        assert error(await node.get(log("node:node-2"))) == (404, "NOT_FOUND")
        assert error(await node.get(log("controller"))) == (403, "FORBIDDEN")
        stream_of_other = await node.get("/api/v1/logs/stream?source=node:node-2")
        assert error(stream_of_other) == (404, "NOT_FOUND")
    async with await scoped(fleet, groups=["lobby"], nodes=["node-1"]) as both:
        assert error(await both.get(log("node:node-1"))) == (404, "NOT_FOUND"), (
            "it tells of other groups, too"
        )
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        assert error(await lobbies.get(log("node:node-1"))) == (404, "NOT_FOUND")
