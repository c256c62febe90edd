"""Universe's configurations: written, read back, changed beside what only a group has, and refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from http_rig import Rig
from test_universe_controller import refusal

from corral.domain.permissions import Role

ALL = "/api/configurations"
LOBBY = f"{ALL}/lobby"
FULL: dict[str, Any] = {
    "name": "lobby",
    "runtime": "process",
    "command": "java -jar server.jar --port %PORT%",
    "static": False,
    "ramMB": 1024,
    "cpu": 150.0,
    "instanceGroups": ["hub", "eu"],
    "nodes": ["node-1"],
    "hostAddress": "10.0.0.5",
    "availablePorts": {"min": 30000, "max": 30010},
    "minimumServiceCount": 0,
    "environmentVariables": {"A": "1", "SECRET": "s"},
    "templateInstallationConfig": {
        "allOf": [{"name": "base", "group": "lobby", "storage": "local", "priority": 1}],
        "allInGroups": [{"name": "", "group": "plugins", "storage": "local", "priority": 2}],
        "oneOf": [],
        "oneInGroups": [],
        "onTemplatePasteOverridePresentFiles": True,
    },
    "fileModifications": ["server.properties"],
    "properties": {"map-size": "10"},
    "additionalPorts": [{"port": 25575, "protocol": "tcp", "name": "rcon"}],
}
SMALL: dict[str, Any] = {"name": "lobby", "command": "./server"}


async def with_templates(rig: Rig) -> None:
    await rig.template("lobby/base")
    await rig.template("plugins/a")


async def test_what_was_written_is_read_back(client: httpx.AsyncClient, rig: Rig) -> None:
    await with_templates(rig)
    made = await client.put(LOBBY, json=FULL)
    assert (made.status_code, made.json()) == (200, FULL)
    assert (await client.get(LOBBY)).json() == FULL
    assert (await client.get(f"{ALL}/LOBBY")).json() == FULL
    assert (await client.get(ALL)).json() == [FULL]
    written = (await client.get("/api/v1/groups/lobby/document")).json()
    assert (written["memory_mb"], written["cpu"], written["labels"]) == (
        1024,
        1.5,
        {"instance-groups": "hub,eu"},
    )
    assert [each["action"] for each in await rig.audits("groups.create")] == ["groups.create"]
    again = await client.put(LOBBY, json=FULL)
    assert again.json() == FULL
    assert await rig.audits("groups.update") == []


async def test_a_configuration_that_leaves_things_out_takes_them_away(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_templates(rig)
    await client.put(LOBBY, json=FULL)
    shown = (await client.put(LOBBY, json=SMALL)).json()
    assert shown["command"] == "./server"
    for field in ("instanceGroups", "nodes", "fileModifications", "additionalPorts"):
        assert shown[field] == []
    assert (shown["environmentVariables"], shown["properties"], shown["availablePorts"]) == ({}, {}, None)
    assert (shown["ramMB"], shown["cpu"], shown["hostAddress"]) == (0, 0.0, "")
    assert shown["templateInstallationConfig"]["allOf"] == []
    assert len(await rig.audits("groups.update")) == 1


async def test_what_no_configuration_can_say_stays(client: httpx.AsyncClient, rig: Rig) -> None:
    native = {
        "ports": {"primary": {"port": 30000, "protocol": "tcp"}, "query": {"of": "primary", "offset": 1}},
        "probes": [{"kind": "tcp"}],
        "labels": {"team": "a"},
        "variables": {"X": "1"},
        "args": ["--more", "a b"],
        "max": 5,
    }
    await rig.group("lobby", **native)
    found = (await client.get(LOBBY)).json()
    assert found["command"] == "x --more 'a b'"
    assert (found["availablePorts"], found["additionalPorts"]) == ({"min": 30000, "max": 30000}, [])
    changed = await client.put(LOBBY, json={**found, "ramMB": 64})
    assert changed.json() == {**found, "ramMB": 64}
    group = (await client.get("/api/v1/groups/lobby")).json()
    assert group["ports"]["primary"] | {"of": None} == {
        "range": None, "port": 30000, "of": None, "offset": 0, "protocol": "tcp"
    }  # fmt: skip
    assert group["ports"]["query"]["of"] == "primary"
    assert [each["kind"] for each in group["probes"]] == ["tcp"]
    assert (group["labels"], group["variables"], group["max"]) == ({"team": "a"}, {"X": "1"}, 5)
    assert (group["command"], group["args"]) == (["x"], ["--more", "a b"])
    other = {"command": "y 'a b'", "availablePorts": {"min": 30001, "max": 30001}}
    assert (await client.put(LOBBY, json={**found, **other})).status_code == 200
    group = (await client.get("/api/v1/groups/lobby")).json()
    assert (group["command"], group["args"]) == (["/bin/sh", "-c", "y 'a b'"], [])
    assert (group["ports"]["primary"]["range"], group["ports"]["primary"]["port"]) == ([30001, 30001], None)


UNMAPPED = [
    ({"runtime": "docker"}, "runtime"),
    ({"command": ""}, "command"),
    ({"command": None}, "command"),
    ({"name": "arena"}, "name"),
    ({"colour": "red"}, "colour"),
    ({"cpu": -1}, "cpu"),
    ({"cpu": "much"}, "cpu"),
    ({"ramMB": 1e30}, "ramMB"),
    ({"availablePorts": {"min": 5}}, "availablePorts.max"),
    ({"availablePorts": {"min": 50, "max": 5}}, "availablePorts.min"),
    ({"additionalPorts": [{"port": 70000}]}, "additionalPorts[0].port"),
    ({"instanceGroups": ["a,b"]}, "instanceGroups"),
    ({"nodes": ["not a node"]}, "nodes[0]"),
    ({"environmentVariables": {"LD_PRELOAD": "x"}}, "environmentVariables"),
    ({"environmentVariables": {"A": {}}}, "environmentVariables"),
    ({"static": True, "fileModifications": ["a"]}, "fileModifications"),
    (
        {"templateInstallationConfig": {"allOf": [{"name": "a", "storage": "s3"}]}},
        "templateInstallationConfig.allOf[0].storage",
    ),
    (
        {"templateInstallationConfig": {"allOf": [{"group": "a"}]}},
        "templateInstallationConfig.allOf[0].name",
    ),
    ({"fileModifications": ["../../etc/passwd"]}, "fileModifications"),
    ({"hostAddress": "a b"}, "hostAddress"),
]


async def test_what_cannot_be_mapped_is_refused_with_its_field(client: httpx.AsyncClient, rig: Rig) -> None:
    for change, field in UNMAPPED:
        status, text = refusal(await client.put(LOBBY, json={**SMALL, **change}))
        assert (status, field in text) == (400, True), text
        assert "the file" not in text, "there is none"
        assert rig.state.groups.find("lobby") is None, change


async def test_more_than_the_group_may_have_is_refused_in_the_terms_of_the_configuration(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group(max=3)
    status, text = refusal(await client.put(LOBBY, json={**SMALL, "minimumServiceCount": 9}))
    assert status == 400
    assert text.startswith("minimumServiceCount: max 3 is less than min 9; raise 'max' of the group first")


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"name": "lobby", "name": "x"}', b"[" * 5000, b"{}"],
)
async def test_a_body_that_is_no_configuration_is_refused(
    client: httpx.AsyncClient, rig: Rig, body: bytes
) -> None:
    answer = await client.put(LOBBY, content=body, headers={"content-type": "application/json"})
    assert refusal(answer)[0] == 400
    assert rig.state.groups.find("lobby") is None


async def test_a_configuration_is_deleted_when_it_has_no_instances(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance("lobby")
    assert refusal(await client.delete(LOBBY))[0] == 409
    gone = await client.delete(LOBBY, params={"cascade": "true", "confirm": "lobby"})
    assert (gone.status_code, gone.content) == (204, b"")
    await client.put(f"{ALL}/arena", json={"command": "x"})
    assert (await client.delete(f"{ALL}/arena")).status_code == 204
    assert refusal(await client.get(f"{ALL}/arena"))[0] == 404


async def test_a_revision_can_be_required_and_a_key_repeats_the_answer(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.put(LOBBY, json=SMALL)
    tag = (await client.get("/api/v1/groups/lobby")).headers["etag"]
    first = await client.put(
        LOBBY, json={**SMALL, "ramMB": 1}, headers={"If-Match": tag, "Idempotency-Key": "k"}
    )
    assert first.status_code == 200
    replay = await client.put(
        LOBBY, json={**SMALL, "ramMB": 1}, headers={"If-Match": tag, "Idempotency-Key": "k"}
    )
    assert replay.json() == first.json()
    assert replay.headers["idempotency-replayed"] == "true"
    assert refusal(await client.put(LOBBY, json=SMALL, headers={"If-Match": tag}))[0] == 412


async def test_commands_and_values_are_hidden_from_viewers_and_cannot_be_written_back(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_templates(rig)
    await client.put(LOBBY, json=FULL)
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as other:
        shown = (await other.get(LOBBY)).json()
        assert refusal(await other.put(LOBBY, json=SMALL))[0] == 403
    assert shown["command"] == "•••"
    assert set(shown["environmentVariables"].values()) == {"•••"}
    status, text = refusal(await client.put(LOBBY, json=shown))
    assert (status, "•••" in text) == (400, True), text
    assert (await client.get(LOBBY)).json() == FULL


@pytest.mark.parametrize(
    "group",
    [
        {"jvm": {"jar": "server.jar"}},
        {"command": ["java"], "args": ["-jar", "a b.jar"], "ports": {"primary": {"port": 25565}}},
        {
            "command": ["x"],
            "ports": {"primary": {"range": [30000, 30010]}, "q": {"of": "primary", "offset": 5}},
        },
        {
            "command": ["x"],
            "template_selection": {
                "all_of": [{"name": "lobby/base", "override": True}, {"name": "plugins/a", "override": False}]
            },
        },
    ],
)
async def test_a_configuration_put_back_as_it_was_read_changes_nothing(
    client: httpx.AsyncClient, rig: Rig, group: dict[str, Any]
) -> None:
    await with_templates(rig)
    made = await client.post("/api/v1/groups", json={"name": "lobby", "min": 0, **group})
    assert made.status_code == 201, made.text
    before = (await client.get("/api/v1/groups/lobby/document")).json()
    shown = (await client.get(LOBBY)).json()
    again = await client.put(LOBBY, json=shown)
    assert (again.status_code, again.json()) == (200, shown), again.text
    assert (await client.get("/api/v1/groups/lobby/document")).json() == before
    assert await rig.audits("groups.update") == []
    more = await client.put(LOBBY, json={**shown, "ramMB": 777})
    assert more.status_code == 200, more.text
    assert (await client.get("/api/v1/groups/lobby/document")).json() == {**before, "memory_mb": 777}


async def test_a_scope_limits_what_is_listed_and_written(client: httpx.AsyncClient, rig: Rig) -> None:
    for name in ("lobby", "arena"):
        await client.put(f"{ALL}/{name}", json={"command": "x"})
    _, text = await rig.token(Role.OPERATOR, scope={"groups": ["lob*"]})
    async with rig.client(text) as scoped:
        assert [each["name"] for each in (await scoped.get(ALL)).json()] == ["lobby"]
        assert (await scoped.put(LOBBY, json=SMALL)).status_code == 200
        assert (await scoped.put(f"{ALL}/lobster", json={"command": "x"})).status_code == 200
        there = refusal(await scoped.put(f"{ALL}/arena", json={"command": "x"}))
        absent = refusal(await scoped.put(f"{ALL}/arenb", json={"command": "x"}))
        assert (there[0], there[1]) == (403, absent[1].replace("arenb", "arena")), "nor whether it exists"
        assert refusal(await scoped.delete(f"{ALL}/arena"))[0] == 404


async def test_a_static_configuration_lays_no_templates(client: httpx.AsyncClient) -> None:
    body = {**SMALL, "static": True, "templateInstallationConfig": FULL["templateInstallationConfig"]}
    shown = (await client.put(LOBBY, json=body)).json()
    assert shown["static"] is True
    assert shown["templateInstallationConfig"]["allOf"] == []
