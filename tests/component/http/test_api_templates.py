"""Templates over the API: versions, settings, names of two parts, downloads, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import pathlib
import tarfile
import zipfile
from collections.abc import AsyncIterator

import httpx
import pytest
from http_rig import Rig, http_rig, tar_gz
from raw_client import raw_call

from corral.domain.permissions import Role
from corral.system.controller_config import TemplatesSection
from corral.testing.waiting import eventually

TEMPLATES = "/api/v1/templates"
BASE = f"{TEMPLATES}/base"
TREE = {"server.properties": b"port=%PORT%\n", "plugins/a.jar": b"jar", "empty": b""}
SHAPE = {
    "name", "group", "version", "hash", "files", "size", "settings", "note", "created_at", "updated_at",
    "created_by", "versions", "used_by", "revision",
}  # fmt: skip


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


async def test_an_upload_makes_a_template_and_the_next_one_a_version(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    made = await client.put(BASE, params={"note": "first"}, content=tar_gz(TREE))
    assert made.status_code == 201, made.text
    shape = made.json()
    assert set(shape) == SHAPE | {"unchanged"}
    assert (shape["name"], shape["group"], shape["version"], shape["files"], shape["size"]) == (
        "base", "", 1, 3, sum(map(len, TREE.values())),
    )  # fmt: skip
    assert (shape["note"], shape["unchanged"], shape["used_by"]) == ("first", False, [])
    assert shape["created_by"].startswith("token:")
    assert made.headers["etag"] == f'"{shape["revision"]}"'
    shown = await client.get(BASE)
    assert shown.json() == {key: value for key, value in shape.items() if key != "unchanged"}
    assert shown.headers["etag"] == made.headers["etag"]
    second = (await client.put(BASE, content=tar_gz({**TREE, "new": b"x"}))).json()
    assert (second["version"], second["versions"], second["files"]) == (2, 2, 4)
    types = [event.type.value for commit in rig.commits for event in commit.events]
    assert [type for type in types if type.startswith("TEMPLATE")] == ["TEMPLATE_CREATED", "TEMPLATE_UPDATED"]
    first, *_ = reversed(await rig.audits("templates.upload"))
    assert (first["subject"], first["after"]["version"], first["before"]) == ("base", 1, None)


async def test_the_same_tree_as_tar_and_as_zip_is_one_version(client: httpx.AsyncClient, rig: Rig) -> None:
    first = (await client.put(BASE, content=tar_gz(TREE))).json()
    number = rig.state.number
    again = await client.put(BASE, content=zipped(TREE), headers={"Content-Type": "application/zip"})
    assert (again.status_code, again.json()["unchanged"], again.json()["hash"]) == (200, True, first["hash"])
    assert rig.state.number == number


async def test_a_name_has_one_part_or_two_and_any_word_may_be_one(client: httpx.AsyncClient) -> None:
    for name in ["world/lobby", "versions", "import", "a.b_c-d", "files/import"]:
        path = f"{TEMPLATES}/{name}"
        assert (await client.put(path, content=tar_gz(TREE))).status_code == 201, name
        assert (await client.get(path)).json()["name"] == name, name
        assert len((await client.get(f"{path}/-/versions")).json()["items"]) == 1, name
        assert len((await client.get(f"{path}/-/files")).json()["items"]) == 3, name
        assert (await client.get(f"{path}/-/files/plugins/a.jar")).content == b"jar", name
        put = await client.put(f"{path}/-/files/plugins/b.jar", content=b"b")
        assert (put.status_code, put.json()["name"], put.json()["files"]) == (200, name, 4), name
        assert (await client.delete(f"{path}/-/files/plugins/b.jar")).json()["files"] == 3, name
        assert (await client.get(f"{path}/-/diff")).json()["removed"][0]["path"] == "plugins/b.jar", name
        assert (await client.post(f"{path}/-/rollback", json={"version": 1})).json()["version"] == 1, name
        assert (await client.get(f"{path}/-/export")).status_code == 200, name
        assert (await client.patch(path, json={"settings": {"description": "d"}})).status_code == 200, name
        assert (await client.delete(path)).status_code == 204, name
        assert error(await client.get(path)) == (404, "NOT_FOUND"), name


async def test_a_bad_name_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    for name in ["-", "A", "a..b", ".a", "a%20b", "a/-", "-/a", "a/B", "x" * 64]:
        refused = await client.put(f"{TEMPLATES}/{name}", content=tar_gz(TREE))
        assert error(refused) == (400, "INVALID_FIELD"), name
        assert len(rig.state.templates) == 0, name


async def test_an_import_is_an_upload_whose_name_is_in_the_query(client: httpx.AsyncClient) -> None:
    made = await client.post(f"{TEMPLATES}/import", params={"name": "world/lobby"}, content=zipped(TREE))
    assert (made.status_code, made.json()["name"], made.json()["group"]) == (201, "world/lobby", "world")
    assert error(await client.post(f"{TEMPLATES}/import", content=zipped(TREE))) == (400, "MISSING_FIELD")
    bad = await client.post(f"{TEMPLATES}/import", params={"name": "../x"}, content=zipped(TREE))
    assert error(bad) == (400, "INVALID_FIELD")


LEADING_OUT = {
    "up": tar_gz({"../x": b"x"}),
    "absolute": tar_gz({"/etc/x": b"x"}),
    "up in the middle": tar_gz({"a/../../x": b"x"}),
    "link out": tar_gz({"a": link("a", "/etc/passwd")}),
    "link within": tar_gz({"a": link("a", "b"), "b": b"x"}),
    "zip slip": zipped({"../x": b"x"}),
    "control character": zipped({"a\x01b": b"x"}),
}


@pytest.mark.trap("T26")
async def test_an_archive_that_leaves_its_tree_is_refused_whole(client: httpx.AsyncClient, rig: Rig) -> None:
    for kind, body in LEADING_OUT.items():
        refused = await client.put(BASE, content=body)
        assert error(refused) == (422, "PATH_REFUSED"), kind
        assert len(rig.state.templates) == 0, kind


async def test_what_is_no_archive_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    for body in [b"", b"garbage" * 1000, tar_gz(TREE)[:-20], zipped(TREE)[:-30], b"PK\x03\x04", b"\x1f\x8b"]:
        refused = await client.put(BASE, content=body)
        assert error(refused) == (422, "ARCHIVE_INVALID"), body[:20]
        assert len(rig.state.templates) == 0, body[:20]


@pytest.mark.trap("T26")
async def test_a_bomb_is_refused_while_it_is_unpacked(client: httpx.AsyncClient, rig: Rig) -> None:
    zeros = {"a": bytes(rig.setting.templates.max_bytes + 1)}
    for body in (tar_gz(zeros), zipped(zeros)):
        assert len(body) < 100_000
        assert error(await client.put(BASE, content=body)) == (413, "ARCHIVE_TOO_LARGE")
    many = tar_gz({f"f{number}": b"" for number in range(rig.setting.templates.max_files + 1)})
    assert error(await client.put(BASE, content=many)) == (413, "ARCHIVE_TOO_LARGE")
    assert len(rig.state.templates) == 0


async def test_an_upload_that_breaks_off_leaves_the_template_as_it_was(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    before = await rig.template()
    body = tar_gz({"big": os.urandom(500_000)})
    async with raw_call(rig, "PUT", BASE, Content_Length=str(len(body))) as call:
        await call.send(body[:250_000])
        await eventually(lambda: len(rig.leading.uploads) == 1)
        call.drop()
    await eventually(lambda: len(rig.leading.uploads) == 0)
    assert (await client.get(BASE)).json()["hash"] == before["hash"]
    assert [path for path in (rig.data / "uploads").rglob("*") if path.is_file()] == []


async def test_a_tree_larger_than_memory_should_hold_travels_both_ways(data: pathlib.Path) -> None:
    size = 24 * 1024 * 1024
    content = os.urandom(size)
    async with http_rig(data, templates=TemplatesSection(max_bytes=2 * size)) as rig, rig.client() as client:
        body = tar_gz({"world.dat": content})

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 100_000):
                yield body[at : at + 100_000]

        made = (await client.put(BASE, content=pieces())).json()
        assert made["size"] == size
        assert (await client.get(f"{BASE}/-/files/world.dat")).content == content
        exported = await client.get(f"{BASE}/-/export")
        assert hashlib.sha256(exported.content).hexdigest() == made["hash"]


async def test_settings_are_merged_into_a_new_version_with_the_same_files(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    before = await rig.template()
    await client.patch(BASE, json={"settings": {"variables": {"MOTD": "geheim", "B": "2"}}})
    patch = {"settings": {"variables": {"B": None, "C": "3"}, "substitute": ["*.txt"]}, "note": "n"}
    changed = (await client.patch(BASE, json=patch)).json()
    assert changed["settings"]["variables"] == {"MOTD": "geheim", "C": "3"}
    assert changed["settings"]["substitute"] == ["*.txt"]
    assert (changed["version"], changed["hash"], changed["note"]) == (3, before["hash"], "n")
    same = (await client.patch(BASE, json={"settings": {"description": None}})).json()
    assert (same["unchanged"], same["version"]) == (True, 3)
    entries = await rig.audits("templates.set")
    assert entries[0]["after"]["settings"]["variables"] == ["C", "MOTD"]
    assert "geheim" not in str(entries)


BAD_SETTINGS = [
    ({"descripton": "x"}, 400, "UNKNOWN_FIELD"),
    ({"description": 7}, 400, "INVALID_FIELD"),
    ({"variables": {"a b": "x"}}, None, None),
    ({"parents": ["ghost"]}, 404, "TEMPLATE_NOT_FOUND"),
    ({"parents": ["base"]}, 422, "TEMPLATE_CYCLE"),
    ({"substitute": ["../x"]}, 422, "PATH_REFUSED"),
]


async def test_bad_settings_are_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    before = await rig.template()
    for settings, status, code in BAD_SETTINGS:
        refused = await client.patch(BASE, json={"settings": settings})
        assert 400 <= refused.status_code < 500, refused.text
        if code is not None:
            assert error(refused) == (status, code), settings
        assert (await client.get(BASE)).json()["version"] == before["version"], settings


async def test_the_list_knows_prefixes_groups_and_pages(client: httpx.AsyncClient, rig: Rig) -> None:
    for name in ("base", "world/a", "world/b", "worlds"):
        await rig.template(name)
    listed = (await client.get(TEMPLATES)).json()["items"]
    assert [item["name"] for item in listed] == ["base", "world/a", "world/b", "worlds"]
    assert set(listed[0]) == SHAPE
    for params, names in (
        ({"prefix": "world/"}, ["world/a", "world/b"]),
        ({"group": "world"}, ["world/a", "world/b"]),
        ({"prefix": "w", "limit": "1"}, ["world/a"]),
    ):
        found = (await client.get(TEMPLATES, params=params)).json()["items"]
        assert [item["name"] for item in found] == names


async def test_a_template_that_something_needs_stays(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template()
    await rig.group(templates=["base"])
    assert (await client.get(BASE)).json()["used_by"] == ["lobby"]
    refused = await client.delete(BASE)
    assert error(refused) == (409, "TEMPLATE_IN_USE")
    assert "lobby" in refused.json()["error"]["message"]


async def test_if_match_guards_an_upload(client: httpx.AsyncClient, rig: Rig) -> None:
    body = tar_gz({"b": b"b"})
    none = await client.put(BASE, content=body, headers={"If-Match": "*"})
    assert error(none) == (412, "REVISION_MISMATCH")
    await rig.template()
    tag = (await client.get(BASE)).headers["etag"]
    assert (await client.put(BASE, content=body, headers={"If-Match": tag})).status_code == 200
    stale = await client.put(BASE, content=tar_gz({"c": b"c"}), headers={"If-Match": tag})
    assert error(stale) == (412, "REVISION_MISMATCH")
    assert (await client.get(BASE)).json()["version"] == 2


async def test_a_change_that_comes_in_between_refuses_who_insisted_on_a_revision(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.template()
    tag = (await client.get(BASE)).headers["etag"]
    body = tar_gz({"b": os.urandom(1000)})
    async with raw_call(rig, "PUT", BASE, Content_Length=str(len(body)), If_Match=tag) as call:
        await call.send(body[:500])
        await eventually(lambda: len(rig.leading.uploads) == 1)
        await rig.template(files={"other": b"x"})
        await call.send(body[500:])
        status, _, answer = await call.answer()
    assert (status, answer["error"]["code"]) == (412, "REVISION_MISMATCH")
    assert (await client.get(BASE)).json()["version"] == 2


async def test_a_key_makes_an_upload_take_effect_once(client: httpx.AsyncClient, rig: Rig) -> None:
    headers = {"Idempotency-Key": "k-1"}
    body = tar_gz(TREE)
    first = await client.put(BASE, content=body, headers=headers)
    await rig.template(files={"other": b"x"})
    again = await client.put(BASE, content=body, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert (await client.get(BASE)).json()["version"] == 2


async def test_roles_see_lists_and_only_some_see_contents_or_change_them(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.template()
    _, viewer = await rig.token(Role.VIEWER)
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(viewer) as looking, rig.client(operator) as working:
        for path in ("", "/-/versions", "/-/files"):
            assert (await looking.get(BASE + path)).status_code == 200
        for path in ("/-/export", "/-/files/a.txt"):
            assert error(await looking.get(BASE + path)) == (403, "FORBIDDEN")
            assert (await working.get(BASE + path)).status_code == 200
        assert error(await looking.put(BASE, content=b"x")) == (403, "FORBIDDEN")
        assert (await working.put(BASE, content=tar_gz(TREE))).status_code == 200


async def test_uploads_of_one_template_side_by_side_all_become_versions(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    bodies = [tar_gz({"a": bytes([number])}) for number in range(8)]
    answers = await asyncio.gather(*(client.put(BASE, content=body) for body in bodies))
    assert sorted(answer.json()["version"] for answer in answers) == list(range(1, 9))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
