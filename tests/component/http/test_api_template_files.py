"""Single files of a template over the API."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from http_rig import Rig
from raw_client import raw_call

BASE = "/api/v1/templates/base"
FILES = f"{BASE}/-/files"
TREE = {"a.txt": b"a", "plugins/x/config.yml": b"x: 1\n", "plugins/y.jar": b"y"}
ESCAPES = [
    "../x",
    "..",
    "a/../../x",
    "%2e%2e/x",
    "%2e%2e%2fx",
    "/etc/passwd",
    "%2Fetc/passwd",
    "a//b",
    "./a",
    "a/",
    "a%00b",
    "a%0Ab",
    "a%5Cb",
    "..%5Cx",
    "x" * 256,
]


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_files_are_listed_by_prefix_and_in_pages(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    listed = (await client.get(FILES)).json()
    assert [item["path"] for item in listed["items"]] == sorted(TREE)
    assert set(listed["items"][0]) == {"path", "mode", "size", "digest"}
    assert listed["items"][0]["mode"] == "644"
    beneath = (await client.get(FILES, params={"prefix": "plugins/"})).json()["items"]
    assert len(beneath) == 2
    first = (await client.get(FILES, params={"limit": 2})).json()
    rest = (await client.get(FILES, params={"limit": 2, "cursor": first["next"]})).json()
    assert [item["path"] for item in first["items"] + rest["items"]] == sorted(TREE)
    assert rest["next"] is None
    foreign = await client.get(FILES, params={"prefix": "plugins/", "cursor": first["next"]})
    assert error(foreign) == (400, "INVALID_CURSOR")


async def test_a_file_is_an_attachment_of_bytes_whatever_it_holds(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    page = b"<script>alert(1)</script>"
    await rig.template(files={'dir/we"ird näme.html': page})
    answer = await client.get(f'{FILES}/dir/we"ird näme.html')
    assert answer.content == page
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["content-length"] == str(len(page))
    said = answer.headers["content-disposition"]
    assert said == "attachment; filename=\"we_ird n_me.html\"; filename*=UTF-8''we%22ird%20n%C3%A4me.html"


async def test_a_head_says_what_a_get_would_send(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files={"a": b"four"})
    there = await client.head(f"{BASE}/-/files/a")
    assert (there.status_code, there.headers["content-length"], there.content) == (200, "4", b"")
    assert (await client.head(f"{BASE}/-/files/b")).status_code == 404
    assert (await client.get(f"{BASE}/-/files/a")).content == b"four"  # the connection is in order


async def test_a_put_makes_a_version_and_keeps_the_others(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    put = await client.put(f"{FILES}/a.txt", params={"mode": "755", "note": "exec"}, content=b"new")
    assert (put.status_code, put.json()["version"], put.json()["note"]) == (200, 2, "exec")
    kept = await client.put(f"{FILES}/a.txt", content=b"newer")
    assert kept.json()["version"] == 3
    listed = {item["path"]: item for item in (await client.get(FILES)).json()["items"]}
    assert listed["a.txt"]["mode"] == "755", "without a mode it stays as it was"
    assert (await client.get(f"{FILES}/a.txt")).content == b"newer"
    assert (await client.get(f"{FILES}/a.txt", params={"version": 1})).content == b"a"
    same = await client.put(f"{FILES}/a.txt", content=b"newer")
    assert (same.json()["unchanged"], same.json()["version"]) == (True, 3)
    empty = await client.put(f"{FILES}/new/empty")
    assert (empty.status_code, empty.json()["files"]) == (200, 4)
    entry = (await rig.audits("templates.put_file"))[-1]
    assert (entry["subject"], entry["after"]["path"]) == ("base", "a.txt")


async def test_a_delete_makes_a_version_without_it(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    gone = await client.delete(f"{FILES}/plugins/y.jar", params={"note": "unused"})
    assert (gone.status_code, gone.json()["files"], gone.json()["note"]) == (200, 2, "unused")
    assert error(await client.get(f"{FILES}/plugins/y.jar")) == (404, "NOT_FOUND")
    assert error(await client.delete(f"{FILES}/plugins/y.jar")) == (404, "NOT_FOUND")
    assert (await client.get(f"{FILES}/plugins/y.jar", params={"version": 1})).content == b"y"
    assert len(await rig.audits("templates.remove_file")) == 1


async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient, rig: Rig) -> None:
    assert error(await client.put(f"{FILES}/a", content=b"x")) == (404, "NOT_FOUND")
    assert error(await client.get(FILES)) == (404, "NOT_FOUND")
    await rig.template(files=TREE)
    assert error(await client.get(f"{FILES}/plugins")) == (404, "NOT_FOUND")
    assert error(await client.get(f"{FILES}/a.txt", params={"version": 7})) == (404, "NOT_FOUND")


async def test_a_file_beneath_a_file_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    for path in ("a.txt/b", "plugins"):
        assert error(await client.put(f"{FILES}/{path}", content=b"x")) == (422, "PATH_REFUSED")
    assert error(await client.put(f"{FILES}/a", params={"mode": "4755"}, content=b"")) == (
        400,
        "INVALID_FIELD",
    )


@pytest.mark.trap("T26")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_no_path_leads_out_of_a_template(rig: Rig, method: str) -> None:
    before = await rig.template(files=TREE)
    for path in ESCAPES:
        async with raw_call(rig, method, f"{FILES}/{path}", Content_Length="0") as call:
            status, _, body = await call.answer()
        assert status in (404, 422), path
        assert body["error"]["code"] in ("PATH_REFUSED", "NOT_FOUND"), path
    assert rig.state.templates.require("base").record.current == before["version"]
    assert len(rig.state.templates) == 1


@pytest.mark.trap("T26")
async def test_a_path_that_leads_out_is_called_so(rig: Rig) -> None:
    await rig.template(files=TREE)
    async with raw_call(rig, "PUT", f"{FILES}/%2e%2e/x", Content_Length="0") as call:
        status, _, body = await call.answer()
    assert (status, body["error"]["code"], body["error"]["field"]) == (422, "PATH_REFUSED", "path")


async def test_edits_side_by_side_are_all_in_the_end(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    answers = await asyncio.gather(
        *(client.put(f"{FILES}/new/{number}", content=b"%d" % number) for number in range(40))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.json()["version"] for answer in answers) == list(range(2, 42))
    listed = (await client.get(FILES, params={"prefix": "new/"})).json()["items"]
    assert len(listed) == 40
    assert len(rig.leading.edits) == 0


async def test_if_match_guards_an_edit(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    tag = (await client.get(BASE)).headers["etag"]
    good = await client.put(f"{FILES}/a.txt", content=b"2", headers={"If-Match": tag})
    assert good.status_code == 200
    for stale in (
        await client.put(f"{FILES}/a.txt", content=b"3", headers={"If-Match": tag}),
        await client.delete(f"{FILES}/a.txt", headers={"If-Match": tag}),
    ):
        assert error(stale) == (412, "REVISION_MISMATCH")


async def test_a_key_makes_a_delete_take_effect_once(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template(files=TREE)
    headers = {"Idempotency-Key": "k"}
    first = await client.delete(f"{FILES}/a.txt", headers=headers)
    again = await client.delete(f"{FILES}/a.txt", headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"
