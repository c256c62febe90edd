"""The document of a group as it was written, replaced as a whole, and its schema."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema_rs
import pytest
from http_rig import Rig

from corral.controller.templates.template_usage import groups_using
from corral.domain.groups.extensions import place_extensions
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.domain.permissions import Role
from corral.domain.sensitive_fields import HIDDEN
from corral.testing.counted_calls import calls_by_turn

GROUPS = "/api/v1/groups"
BASE: dict[str, Any] = {"name": "base", "abstract": True, "memory_mb": 256, "env": {"A": "1"}}
LOBBY: dict[str, Any] = {
    "name": "lobby",
    "parent": "base",
    "command": ["serve", "--key", "secret"],
    "probes": [{"kind": "tcp"}],
    "ports": {"primary": {"range": [30000, 30100]}},
    "env": {"A": None, "B": "secret"},
    "jvm": None,
    "artifact": {"url": "https://user:secret@files.example/a.jar?key=secret", "sha256": "ab" * 32},
    "variable_types": {"KEY": {"default": "secret"}},
}


@pytest.fixture
async def family(client: httpx.AsyncClient) -> None:
    for document in (BASE, LOBBY):
        answer = await client.post(GROUPS, json=document)
        assert answer.status_code == 201, answer.text


@pytest.mark.usefixtures("family")
async def test_a_document_comes_back_as_it_was_written(client: httpx.AsyncClient) -> None:
    found = await client.get(f"{GROUPS}/lobby/document")
    assert found.json() == LOBBY
    shape = await client.get(f"{GROUPS}/lobby")
    assert found.headers["etag"] == shape.headers["etag"]
    assert shape.json()["memory_mb"] == 256
    again = await client.put(f"{GROUPS}/lobby/document", json=LOBBY)
    assert (again.status_code, again.headers["etag"]) == (200, found.headers["etag"]), "nothing changed"


@pytest.mark.usefixtures("family")
async def test_what_a_new_document_leaves_out_is_as_in_the_parent_or_the_default(
    client: httpx.AsyncClient,
) -> None:
    smaller = {"parent": "base", "command": ["serve"]}
    put = await client.put(f"{GROUPS}/lobby/document", json=smaller)
    assert put.status_code == 200, put.text
    shape = put.json()
    assert (shape["probes"], shape["ports"], shape["env"]) == ([], {}, {"A": "1"})
    assert (await client.get(f"{GROUPS}/lobby/document")).json() == {"name": "lobby", **smaller}
    alone = await client.put(f"{GROUPS}/lobby/document", json={"command": ["serve"]})
    assert (alone.json()["parent"], alone.json()["memory_mb"]) == ("", 0)


@pytest.mark.usefixtures("family")
async def test_a_group_that_was_read_and_is_written_back_keeps_what_it_inherits(
    client: httpx.AsyncClient,
) -> None:
    shape = await client.get(f"{GROUPS}/lobby")
    fields = {key: value for key, value in shape.json().items() if key not in ("status", "revision")}
    same = await client.patch(f"{GROUPS}/lobby", json=fields)
    assert (same.status_code, same.headers["etag"]) == (200, shape.headers["etag"]), "nothing changed"
    edited = await client.patch(f"{GROUPS}/lobby", json={**fields, "min": 1})
    assert edited.status_code == 200, edited.text
    written = (await client.get(f"{GROUPS}/lobby/document")).json()
    assert written.keys() == {*LOBBY, "min"}
    await client.patch(f"{GROUPS}/base", json={"memory_mb": 300})
    assert (await client.get(f"{GROUPS}/lobby")).json()["memory_mb"] == 300


@pytest.mark.usefixtures("family")
async def test_a_document_is_replaced_under_its_name_and_revision_only(client: httpx.AsyncClient) -> None:
    url = f"{GROUPS}/lobby/document"
    renamed = await client.put(url, json={**LOBBY, "name": "other"})
    assert (renamed.status_code, renamed.json()["error"]["field"]) == (400, "name")
    tag = (await client.get(url)).headers["etag"]
    assert (await client.put(url, json={**LOBBY, "min": 1}, headers={"If-Match": tag})).status_code == 200
    late = await client.put(url, json=LOBBY, headers={"If-Match": tag})
    assert (late.status_code, late.json()["error"]["code"]) == (412, "REVISION_MISMATCH")
    assert (await client.put(f"{GROUPS}/lobbi/document", json=LOBBY)).status_code == 404
    wrong = await client.put(url, json={**LOBBY, "mim": 1})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "UNKNOWN_FIELD")
    assert (await client.get(url)).json() == {**LOBBY, "min": 1}


@pytest.mark.usefixtures("family")
async def test_who_may_not_see_values_gets_the_document_without_them(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        found = await viewer.get(f"{GROUPS}/lobby/document")
        assert (await viewer.put(f"{GROUPS}/lobby/document", json=LOBBY)).status_code == 403
    assert "secret" not in found.text
    document = found.json()
    assert document["env"] == {"A": None, "B": HIDDEN}
    assert document["artifact"]["url"] == "https://files.example/a.jar"
    assert (document["probes"], document["ports"]) == (LOBBY["probes"], LOBBY["ports"])
    refused = await client.put(f"{GROUPS}/lobby/document", json=document)
    assert (refused.status_code, HIDDEN in refused.json()["error"]["message"]) == (400, True)


@pytest.mark.usefixtures("family")
async def test_the_schema_takes_what_the_api_takes_and_has_a_meaning_for_each_field(
    client: httpx.AsyncClient,
) -> None:
    schema = (await client.get("/api/v1/schemas/group")).json()
    checker = jsonschema_rs.Draft202012Validator(schema)
    resolved = (await client.get(f"{GROUPS}/lobby")).json()
    document = {name: resolved[name] for name in GroupSpec.__struct_fields__}
    assert list(checker.iter_errors(document)) == []
    wrong = list(checker.iter_errors({**document, "priority": 101}))
    assert [error.instance_path for error in wrong] == [["priority"]]
    assert list(checker.iter_errors({**document, "nmae": 1})) != []
    fields = schema["$defs"]["GroupSpec"]["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []


async def test_a_large_document_is_checked_aside_from_the_loop(client: httpx.AsyncClient) -> None:
    extensions = [
        {
            "id": f"e-{number}",
            "artifact": {"url": f"https://files.example/{number}.jar", "sha256": "0" * 64},
            "install_path": "plugins",
        }
        for number in range(900)
    ]
    document = {"name": "large", "command": ["serve"], "extensions": extensions}
    for path in (f"{GROUPS}?dry_run=true", GROUPS):
        async with calls_by_turn() as count:
            (await client.post(path, json=document)).raise_for_status()
        assert count.of(place_extensions) == 1, "the calls of the loop are counted"
        assert count.of(check_group) == 0, "done by a thread"
        assert count.most_in_a_turn < 200 * len(extensions)


@pytest.mark.parametrize(("mentions", "status", "looks"), [(900, 404, 3), (19_000, 400, 0)])
async def test_a_caller_with_a_scope_is_bounded_and_each_template_looked_up_once(
    rig: Rig, mentions: int, status: int, looks: int
) -> None:
    _, token = await rig.token(Role.OPERATOR, scope={"groups": ["lobby*"]})
    document = {"name": "lobby-2", "command": ["serve"], "templates": ["foreign"] * mentions}
    async with rig.client(token) as scoped, calls_by_turn() as count:
        answer = await scoped.post(f"{GROUPS}?dry_run=true", json=document)
    assert (answer.status_code, count.of(groups_using)) == (status, looks)
