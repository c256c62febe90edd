"""Universe's templates: files, archives, distribution."""

from __future__ import annotations

import io
import zipfile

import httpx
from http_rig import Rig
from test_universe_controller import refusal

from corral.domain.permissions import Role

BASE = "/api/templates/Lobby/Base"


async def test_files_are_written_read_changed_and_deleted(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await client.post(f"{BASE}/files/conf/a.txt", content=b"one\n")
    assert (made.status_code, made.json()["path"]) == (201, "conf/a.txt")
    assert (await client.post(f"{BASE}/files/b.bin", content=b"\x00\xff")).status_code == 201
    assert refusal(await client.patch(f"{BASE}/files/none", content=b"x"))[0] == 404
    assert (await client.patch(f"{BASE}/files/conf/a.txt", content=b"two\n")).status_code == 200
    text = await client.get(f"{BASE}/files/conf/a.txt")
    assert (text.content, text.headers["content-type"]) == (b"two\n", "text/plain; charset=utf-8")
    assert text.headers["content-disposition"].startswith("attachment")
    shown = {"group": "lobby", "name": "base", "files": ["b.bin", "conf/a.txt"]}
    assert (await client.get(BASE)).json() == shown
    assert (await client.get(f"{BASE}/files")).json() == shown
    assert (await client.delete(f"{BASE}/files/b.bin")).status_code == 200
    assert (await client.get(BASE)).json()["files"] == ["conf/a.txt"]
    assert len(await rig.audits("templates.put_file")) == 3
    versions = (await client.get("/api/v1/templates/lobby/base/-/versions")).json()["items"]
    assert [each["note"] for each in versions] == [
        "remove b.bin",
        "put conf/a.txt",
        "put b.bin",
        "put conf/a.txt",
    ]


async def test_templates_are_listed_also_those_of_one_part(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template("single")
    await rig.template("lobby/base")
    assert (await client.get("/api/templates")).json() == [
        {"group": "lobby", "name": "base", "path": "templates/lobby/base"},
        {"group": "", "name": "single", "path": "templates/single"},
    ]
    assert refusal(await client.get("/api/templates/none/such"))[0] == 404


async def test_paths_that_leave_the_template_are_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    for path in ("..%2fx", "a%2f..%2f..%2fx", "%2fetc%2fpasswd", "a%5cb"):
        assert refusal(await client.post(f"{BASE}/files/{path}", content=b"x"))[0] == 422
    assert refusal(await client.post("/api/templates/a b/c/files/x", content=b"x"))[0] == 400
    assert list(rig.state.templates) == []


async def test_a_template_travels_as_a_zip(client: httpx.AsyncClient, rig: Rig) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("d/b.txt", "b")
    made = await client.post(
        f"{BASE}/import", content=packed.getvalue(), headers={"content-type": "application/zip"}
    )
    assert (made.status_code, made.json()["path"]) == (201, "lobby/base")
    exported = await client.post(f"{BASE}/export")
    assert exported.headers["content-type"] == "application/zip"
    found = zipfile.ZipFile(io.BytesIO(exported.content))
    assert {name: found.read(name) for name in found.namelist() if not name.endswith("/")} == {
        "a.txt": b"a",
        "d/b.txt": b"b",
    }
    assert refusal(await client.post(f"{BASE}/import", content=b"no archive"))[0] in (400, 422)
    form = await client.post(f"{BASE}/import", files={"file": ("a.zip", packed.getvalue())})
    assert refusal(form)[0] == 415
    too_large = await client.post(f"{BASE}/files/x", content=b"x" * (5 * 1024 * 1024))
    assert refusal(too_large)[0] == 413


async def test_templates_are_sent_to_nodes(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online("node-1")
    for name in ("lobby/base", "lobby/plugins", "arena/base", "single"):
        await rig.template(name)
    one = (await client.post(f"{BASE}/sync", json={"storage": "local"})).json()
    assert [(each["template"], each["storage"]) for each in one] == [("lobby/base", "local")]
    assert set(one[0]) == {"template", "node", "storage", "success", "message"}
    for pattern, names in (
        ("Lobby/*", {"lobby/base", "lobby/plugins"}),
        ("*/base", {"lobby/base", "arena/base"}),
        ("arena", {"arena/base"}),
        ("*", {"lobby/base", "lobby/plugins", "arena/base", "single"}),
        ("none", set()),
    ):
        answers = (await client.post("/api/templates/sync", json={"pattern": pattern})).json()
        assert {each["template"] for each in answers} == names, pattern
    assert refusal(await client.post(f"{BASE}/sync", json={"storage": "s3"}))[0] == 400
    for bad in ("", "../x", "**a", "*" * 100, "x" * 300):
        assert refusal(await client.post("/api/templates/sync", json={"pattern": bad}))[0] in (400, 422)
    assert len(await rig.audits("templates.sync")) == 6


async def test_viewers_list_and_operators_change(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.template("lobby/base")
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as other:
        assert (await other.get(BASE)).json()["files"] == ["a.txt"]
        assert refusal(await other.get(f"{BASE}/files/a.txt"))[0] == 403
        assert refusal(await other.post(f"{BASE}/files/a.txt", content=b"x"))[0] == 403
        assert refusal(await other.post(f"{BASE}/export"))[0] == 403
