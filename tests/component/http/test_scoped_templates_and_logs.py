"""Templates and logs for callers with a scope: what the groups and nodes within it use and say."""

from __future__ import annotations

import httpx
import pytest
from http_rig import Rig
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


async def test_nobody_reads_a_template_of_others_by_naming_it_in_a_group_of_the_own_scope(
    templates: Rig,
) -> None:
    await templates.template("arenas/one", {"a.txt": b"secret"})
    async with templates.client() as admin:
        selected = {"template_selection": {"all_in_groups": [{"name": "arenas"}]}}
        assert (await admin.patch("/api/v1/groups/arena", json=selected)).is_success
    async with await scoped(templates, groups=["lobby*"]) as lobbies:
        for named in ({"templates": ["arena-base"]}, selected, {"templates": ["lobby-base", "arenas/one"]}):
            made = await lobbies.post("/api/v1/groups", json={"name": "lobby-2", "command": ["x"], **named})
            assert error(made) == (403, "FORBIDDEN"), named
            changed = await lobbies.patch("/api/v1/groups/lobby", json=named)
            assert error(changed) == (403, "FORBIDDEN"), named
            field = changed.json()["error"]["field"]
            assert field == ("template_selection" if named is selected else "templates")
            assert named is not selected or "arenas/one" not in changed.text
        theirs = {"allOf": [{"group": "arenas", "name": "one"}]}
        universe = {"name": "lobby-2", "command": "x", "templateInstallationConfig": theirs}
        assert (await lobbies.put("/api/configurations/lobby-2", json=universe)).status_code == 403
        assert error(await lobbies.get("/api/v1/templates/arena-base")) == (404, "NOT_FOUND")
        own = {"name": "lobby-2", "command": ["x"], "templates": ["shared", "spare"]}
        assert (await lobbies.post("/api/v1/groups", json=own)).status_code == 201
        kept = await lobbies.patch("/api/v1/groups/lobby", json={"memory_mb": 64})
        assert kept.status_code == 200, kept.text


async def test_nobody_gets_the_templates_to_come_of_a_template_group(templates: Rig) -> None:
    """A template group that nobody uses, and into which others put theirs later."""
    await templates.template("packs/one", {"a.txt": b"nobody's"})
    selected = {"template_selection": {"all_in_groups": [{"name": "packs"}]}}
    async with await scoped(templates, groups=["lobby*"]) as lobbies:
        refused = await lobbies.patch("/api/v1/groups/lobby", json=selected)
        assert error(refused) == (403, "FORBIDDEN")
        absent = {"template_selection": {"all_in_groups": [{"name": "zzz"}]}}
        unknown = await lobbies.patch("/api/v1/groups/lobby", json=absent)
        assert unknown.status_code in (400, 403, 404), unknown.text
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
