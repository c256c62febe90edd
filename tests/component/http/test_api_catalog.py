"""The catalog over the API."""

from __future__ import annotations

import hashlib

import httpx
from http_rig import Rig

from corral.domain.permissions import Role

CATALOG = "/api/v1/catalog"
ENTRY = f"{CATALOG}/paper/1.21.4"
DIGEST = "ab" * 32
BODY = {"file": "paper.jar", "url": "https://user:geheim@example.org/paper.jar?key=geheim", "sha256": DIGEST}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_an_entry_is_made_shown_changed_and_removed(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await client.put(ENTRY, json={**BODY, "category": "server", "config_format": "paper"})
    assert made.status_code == 201, made.text
    shape = made.json()
    assert set(shape) == {
        "platform", "version", "file", "url", "sha256", "size", "category", "config_format", "description",
        "used_by", "created_at", "updated_at", "revision",
    }  # fmt: skip
    assert (shape["platform"], shape["version"], shape["category"]) == ("paper", "1.21.4", "server")
    assert (await client.get(ENTRY)).json() == shape
    changed = await client.put(ENTRY, json={**BODY, "description": "the server"})
    assert (changed.status_code, changed.json()["created_at"]) == (200, shape["created_at"])
    assert changed.json()["category"] == "", "a document replaces the one before"
    same = await client.put(ENTRY, json={**BODY, "description": "the server"})
    assert same.json() == changed.json()
    assert (await client.delete(ENTRY)).status_code == 204
    assert error(await client.get(ENTRY)) == (404, "NOT_FOUND")
    types = [event.type.value for commit in rig.commits for event in commit.events]
    assert [type for type in types if type.startswith("CATALOG")] == [
        "CATALOG_UPDATED", "CATALOG_UPDATED", "CATALOG_REMOVED",
    ]  # fmt: skip


async def test_what_a_url_may_carry_is_for_those_who_manage_and_never_in_the_audit(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.put(ENTRY, json=BODY)
    assert "geheim" in (await client.get(ENTRY)).text
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        assert (await looking.get(ENTRY)).json()["url"] == "https://example.org/paper.jar"
        assert "geheim" not in (await looking.get(CATALOG)).text
    assert "geheim" not in (await client.get("/api/v1/audit", params={"limit": 500})).text
    assert "geheim" not in (await client.get("/api/v1/events", params={"limit": 500})).text


async def test_the_list_is_filtered_and_paged(client: httpx.AsyncClient) -> None:
    for name in ("paper/1", "paper/2", "velocity/3"):
        assert (await client.put(f"{CATALOG}/{name}", json=BODY)).status_code == 201
    first = (await client.get(CATALOG, params={"limit": 2})).json()
    rest = (await client.get(CATALOG, params={"limit": 2, "cursor": first["next"]})).json()
    assert [item["version"] for item in first["items"] + rest["items"]] == ["1", "2", "3"]
    assert rest["next"] is None
    assert len((await client.get(CATALOG, params={"platform": "velocity"})).json()["items"]) == 1


async def test_if_match_holds_for_what_is_there_and_for_what_is_not(client: httpx.AsyncClient) -> None:
    none = await client.put(ENTRY, json=BODY, headers={"If-Match": "*"})
    assert error(none) == (412, "REVISION_MISMATCH")
    tag = (await client.put(ENTRY, json=BODY)).headers["etag"]
    good = await client.put(ENTRY, json={**BODY, "description": "x"}, headers={"If-Match": tag})
    assert good.status_code == 200
    stale = await client.put(ENTRY, json={**BODY, "description": "y"}, headers={"If-Match": tag})
    assert error(stale) == (412, "REVISION_MISMATCH")
    assert error(await client.delete(ENTRY, headers={"If-Match": tag})) == (412, "REVISION_MISMATCH")


BAD_ENTRIES = [
    ({"sha256": "x"}, "INVALID_FIELD", "sha256"),
    ({"file": "a/b"}, "INVALID_FIELD", "file"),
    ({"file": ".."}, "PATH_REFUSED", "file"),
    ({"url": "file:///etc/passwd"}, "ARTIFACT_REFUSED", "url"),
    ({"url": "ftp://example.org/x"}, "ARTIFACT_REFUSED", "url"),
    ({"urll": "x"}, "UNKNOWN_FIELD", "urll"),
    ({"category": "x"}, "INVALID_FIELD", "category"),
]


async def test_a_bad_entry_is_refused_with_its_field(client: httpx.AsyncClient, rig: Rig) -> None:
    for changed, code, field in BAD_ENTRIES:
        refused = await client.put(ENTRY, json={**BODY, **changed})
        assert (refused.json()["error"]["code"], refused.json()["error"]["field"]) == (code, field), changed
        assert 400 <= refused.status_code < 500, changed
        assert len(rig.state.catalog) == 0, changed


async def test_a_program_that_a_group_needs_stays(client: httpx.AsyncClient, rig: Rig) -> None:
    await client.put(ENTRY, json=BODY)
    await rig.group(artifact={"platform": "paper", "version": "1.21.4"})
    assert (await client.get(ENTRY)).json()["used_by"] == ["lobby"]
    refused = await client.delete(ENTRY)
    assert error(refused) == (409, "ARTIFACT_IN_USE")
    assert "lobby" in refused.json()["error"]["message"]


async def test_an_uploaded_program_keeps_what_is_said_of_it(client: httpx.AsyncClient) -> None:
    params = {"name": "paper.jar", "category": "server", "description": "ours"}
    made = (await client.put(f"{ENTRY}/file", params=params, content=b"one")).json()
    assert (made["url"], made["category"], made["description"]) == ("", "server", "ours")
    again = (await client.put(f"{ENTRY}/file", content=b"two")).json()
    assert (again["file"], again["category"], again["description"]) == ("paper.jar", "server", "ours")
    assert again["sha256"] == hashlib.sha256(b"two").hexdigest()


async def test_bytes_of_another_digest_are_refused_and_empty_ones_are(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    params = {"name": "x.jar", "sha256": DIGEST}
    assert error(await client.put(f"{ENTRY}/file", params=params, content=b"one")) == (422, "DIGEST_MISMATCH")
    assert error(await client.put(f"{ENTRY}/file", params={"name": "x.jar"})) == (400, "BAD_REQUEST")
    bad = await client.put(f"{ENTRY}/file", params={"name": "../x"}, content=b"one")
    assert error(bad) == (422, "PATH_REFUSED")
    assert len(rig.state.catalog) == 0
