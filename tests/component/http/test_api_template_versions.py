"""Versions of templates over the API: listed, compared, rolled back, exported, pushed."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from http_rig import Rig, tar_gz

from corral.errors import Code, Retryable

TEMPLATES = "/api/v1/templates"
BASE = f"{TEMPLATES}/base"
TREE = {"server.properties": b"port=%PORT%\n", "plugins/a.jar": b"jar", "empty": b""}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_rollback_makes_an_old_version_current(client: httpx.AsyncClient, rig: Rig) -> None:
    first = await rig.template(files={"a": b"1"})
    await rig.template(files={"a": b"2"})
    back = await client.post(f"{BASE}/-/rollback", json={"version": 1})
    assert (back.status_code, back.json()["version"], back.json()["hash"]) == (200, 1, first["hash"])
    assert rig.commits[-1].events[0].type == "TEMPLATE_ROLLED_BACK"
    listed = (await client.get(f"{BASE}/-/versions")).json()["items"]
    assert [(item["number"], item["current"]) for item in listed] == [(2, False), (1, True)]
    assert error(await client.post(f"{BASE}/-/rollback", json={"version": 9})) == (404, "NOT_FOUND")
    assert error(await client.post(f"{BASE}/-/rollback", json={})) == (400, "MISSING_FIELD")


async def test_versions_come_in_pages_the_newest_first(client: httpx.AsyncClient, rig: Rig) -> None:
    for number in range(4):
        await rig.template(files={"a": bytes([number])})
    first = (await client.get(f"{BASE}/-/versions", params={"limit": 3})).json()
    rest = (await client.get(f"{BASE}/-/versions", params={"limit": 3, "cursor": first["next"]})).json()
    assert [item["number"] for item in first["items"] + rest["items"]] == [4, 3, 2, 1]
    assert rest["next"] is None


async def test_a_diff_tells_files_and_settings_apart(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files={"a": b"1", "b": b"1"})
    await rig.template(files={"a": b"22", "c": b"1"})
    await client.patch(BASE, json={"settings": {"description": "d"}})
    found = (await client.get(f"{BASE}/-/diff", params={"from": 1, "to": 2})).json()
    assert (found["name"], found["from"], found["to"]) == ("base", 1, 2)
    assert [file["path"] for file in found["added"]] == ["c"]
    assert [file["path"] for file in found["removed"]] == ["b"]
    assert found["changed"] == [
        {"path": "a", "old_size": 1, "new_size": 2, "old_mode": "644", "new_mode": "644", "content": True}
    ]
    assert found["added"][0]["mode"] == "644"
    newest = (await client.get(f"{BASE}/-/diff")).json()
    assert (newest["from"], newest["to"], newest["settings"][0]["field"]) == (2, 3, "description")
    assert error(await client.get(f"{BASE}/-/diff", params={"to": 1})) == (404, "NOT_FOUND")


@pytest.mark.parametrize("form", ["tar.gz", "zip"])
async def test_an_export_is_an_attachment_and_comes_back_as_the_same_version(
    client: httpx.AsyncClient, form: str
) -> None:
    made = (await client.put(f"{TEMPLATES}/world/lobby", content=tar_gz(TREE))).json()
    answer = await client.get(f"{TEMPLATES}/world/lobby/-/export", params={"format": form})
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="world-lobby-1.{form}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    if form == "tar.gz":
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert hashlib.sha256(answer.content).hexdigest() == made["hash"]
    again = await client.put(f"{TEMPLATES}/copy", content=answer.content)
    assert (again.status_code, again.json()["hash"]) == (201, made["hash"])
    assert error(await client.get(f"{BASE}/-/export", params={"format": "rar"})) == (400, "INVALID_FIELD")


async def test_a_sync_answers_per_node_and_is_audited(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template()
    await rig.node("node-1")
    await rig.node("node-2")
    answer = await client.post(f"{BASE}/-/sync", json={"nodes": ["node-2"]})
    assert answer.json() == {"items": [{"node": "node-2", "ok": True, "code": "", "message": ""}]}
    assert len((await client.post(f"{BASE}/-/sync")).json()["items"]) == 2
    assert [asked[1] for asked in rig.distribution.asked] == [("base", ("node-2",)), ("base", None)]
    assert len(await rig.audits("templates.sync")) == 2
    ghost = await client.post(f"{BASE}/-/sync", json={"nodes": ["ghost"]})
    assert error(ghost) == (404, "NOT_FOUND")
    rig.distribution.failure = Retryable(Code.TIMEOUT, "no answer")
    assert error(await client.post(f"{BASE}/-/sync")) == (504, "TIMEOUT")
