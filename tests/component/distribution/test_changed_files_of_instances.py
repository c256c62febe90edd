"""Files of instances end to end: a request, the controller, the link, the daemon, the directory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import pathlib
import stat
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from corral.controller.distribution.instance_file_transfers import (
    CHANGES_PER_CALLER,
    DOWNLOADS_PER_CALLER,
    INLINE,
    FileChange,
)
from corral.domain.file_paths import MOST_BYTES
from corral.errors import Code, FileChanged, Rejected
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.waiting import eventually

GROUP = {
    "name": "lobby",
    "command": ["sh", "-c", "echo begun > begun.txt; exec sleep 600"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
}
FILES = "/api/v1/instances/lobby-1/files"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tag(content: bytes) -> dict[str, str]:
    return {"If-Match": f'"{sha256(content)}"'}


class Site:
    def __init__(self, controller: LocalController, daemon: LocalDaemon, client: httpx.AsyncClient) -> None:
        self.controller = controller
        self.daemon = daemon
        self.client = client
        self.directory = daemon.config.data / "running" / "lobby-1"

    async def put(self, path: str, content: Any, mode: str = "", **headers: str) -> httpx.Response:
        params = {"path": path} | ({"mode": mode} if mode else {})
        return await self.client.put(f"{FILES}/content", params=params, content=content, headers=headers)

    async def post(self, verb: str, **body: Any) -> httpx.Response:
        return await self.client.post(f"{FILES}/{verb}", json=body)

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await self.client.get(f"{FILES}/content", params={"path": path, **params})

    def staged(self) -> list[str]:
        place = self.directory.parent / ".staging"
        return os.listdir(place) if place.exists() else []


LARGEST = 4_000_000
UNREAD = 48_000_000
"""More than the buffers of a connection take when its other side reads nothing."""


@pytest.fixture
async def site(cluster: LocalCluster, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    controller = await cluster.controller(files__max_bytes=getattr(request, "param", LARGEST))
    daemon = await cluster.daemon("n1", controller)
    await controller.call("POST", "/api/v1/groups", GROUP)
    await controller.call("POST", "/api/v1/instances?wait=running&timeout=30", {"group": "lobby"})
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=60) as client:
        found = Site(controller, daemon, client)
        await eventually(lambda: (found.directory / "begun.txt").exists())
        yield found


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def events(site: Site) -> list[dict[str, Any]]:
    listed = await site.client.get("/api/v1/events", params={"types": "INSTANCE_FILE_CHANGED"})
    return [event["data"] for event in listed.json()["items"]]


async def test_what_is_written_is_read_again_whatever_its_size(site: Site) -> None:
    for size in (0, 5, INLINE + 1, 1_500_000):
        content = os.urandom(size)
        written = await site.put("conf/a.bin", content)
        assert written.status_code == 200, written.text
        body = written.json()
        assert (body["digest"], body["size"], body["changed"]) == (sha256(content), size, True)
        assert written.headers["etag"] == f'"{sha256(content)}"'
        read = await site.get("conf/a.bin")
        assert (read.content, read.headers["etag"]) == (content, written.headers["etag"])
        part = await site.get("conf/a.bin", offset=3, length=MOST_BYTES + 100)
        assert part.content == content[3 : MOST_BYTES + 103]
        assert (await site.get("conf/a.bin", offset=size)).content == b""
        found = (await site.client.get(f"{FILES}/stat", params={"path": "conf/a.bin"})).json()
        assert (found["digest"], found["size"], found["mode"]) == (sha256(content), size, "0644")
        assert site.staged() == []


@pytest.mark.parametrize("size", [3, INLINE + 1])
async def test_a_mode_is_set_and_told_and_audited_and_others_are_refused(site: Site, size: int) -> None:
    assert (await site.put("run.sh", b"x" * size, "755")).status_code == 200
    assert stat.S_IMODE((site.directory / "run.sh").stat().st_mode) == 0o755
    told = (await site.client.get(f"{FILES}/stat", params={"path": "run.sh"})).json()
    assert told["mode"] == "0755"
    assert (await site.put("run.sh", b"y" * size)).status_code == 200
    assert stat.S_IMODE((site.directory / "run.sh").stat().st_mode) == 0o755
    entries = (await site.client.get("/api/v1/audit", params={"action": "instances.files.write"})).json()
    assert any((entry["after"] or {}).get("mode") == "755" for entry in entries["items"]), entries
    for mode in ("4755", "777", "0", "abc"):
        refused = await site.put("run.sh", b"bad", mode)
        assert error(refused) == (400, "INVALID_FIELD")
    assert (site.directory / "run.sh").read_bytes() == b"y" * size


async def test_an_editor_learns_of_what_was_changed_meanwhile_and_loses_nothing(site: Site) -> None:
    file = site.directory / "begun.txt"
    seen = file.read_bytes()
    file.write_bytes(b"by the server")
    refused = await site.put("begun.txt", b"by the editor", **tag(seen))
    assert error(refused) == (412, "FILE_CHANGED")
    assert refused.json()["error"]["digest"] == sha256(b"by the server")
    assert refused.headers["etag"] == f'"{sha256(b"by the server")}"'
    assert error(await site.put("begun.txt", b"x", **{"If-None-Match": "*"})) == (412, "FILE_CHANGED")
    assert file.read_bytes() == b"by the server"
    assert await events(site) == []
    again = await site.put("begun.txt", b"by the editor", **tag(b"by the server"))
    assert again.status_code == 200, again.text
    assert file.read_bytes() == b"by the editor"
    assert error(await site.put("missing", b"x", **{"If-Match": "*"})) == (412, "FILE_CHANGED")
    for header in ('"42"', 'W/"42"', "no tag"):
        assert error(await site.put("begun.txt", b"x", **{"If-Match": header}))[0] == 400
    assert error(await site.put("begun.txt", b"x", **{"If-None-Match": '"42"'})) == (400, "BAD_REQUEST")


async def test_of_many_editors_with_one_digest_one_writes(site: Site) -> None:
    (site.directory / "a").write_bytes(b"seen")
    contents = [b"%d" % number * (INLINE + 1 if number % 2 else 1) for number in range(CHANGES_PER_CALLER)]
    answers = await asyncio.gather(*(site.put("a", content, **tag(b"seen")) for content in contents))
    assert sorted(answer.status_code for answer in answers) == [200, *[412] * (CHANGES_PER_CALLER - 1)]
    (winner,) = (content for content, answer in zip(contents, answers, strict=True) if answer.is_success)
    assert (site.directory / "a").read_bytes() == winner


async def test_a_change_is_audited_before_it_with_its_path_and_never_its_content(site: Site) -> None:
    await site.put("a/secret.txt", b"the very secret")
    await site.post("rename", path="a/secret.txt", to="b.txt", digest=sha256(b"the very secret"))
    await site.post("mkdir", path="c/d")
    assert (await site.post("mkdir", path="c/d")).json()["changed"] is False
    await site.post("delete", path="c", recursive=True)
    assert error(await site.post("delete", path="a/nothing")) == (404, "NOT_FOUND")
    found = await events(site)
    assert [(each["verb"], each["path"], each.get("to")) for each in found] == [
        ("write", "a/secret.txt", None),
        ("rename", "a/secret.txt", "b.txt"),
        ("mkdir", "c/d", None),
        ("delete", "c", None),
    ]
    assert found[0]["digest"] == sha256(b"the very secret")
    assert {(each["group"], each["node"], each["by"]) for each in found} == {("lobby", "n1", found[0]["by"])}
    assert found[0]["by"].startswith("token:"), "as in INSTANCE_COMMAND"
    audit = (await site.client.get("/api/v1/audit", params={"limit": 100})).json()["items"]
    mine = [each for each in audit if each["action"].startswith("instances.files.")]
    assert "very secret" not in json.dumps(audit)
    begun = [each for each in mine if each["outcome"] == "begun"]
    assert {each["after"]["path"] for each in begun} == {"a/secret.txt", "c/d", "c", "a/nothing"}
    write = next(each for each in begun if each["action"] == "instances.files.write")
    assert write["after"]["digest"] == sha256(b"the very secret")
    assert sorted({each["outcome"] for each in mine}) == ["begun", "ok", "refused"]


async def test_a_key_covers_what_was_sent(site: Site) -> None:
    for _ in range(2):
        answer = await site.put("a", b"one", **{"Idempotency-Key": "k", **tag(b"") | {"If-None-Match": "*"}})
        assert answer.status_code == 400
    keyed = {"Idempotency-Key": "k2", "If-None-Match": "*"}
    first, second = await site.put("a", b"one", **keyed), await site.put("a", b"one", **keyed)
    assert (first.json(), second.status_code) == (second.json(), 200)
    assert error(await site.put("a", b"two", **keyed)) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert (site.directory / "a").read_bytes() == b"one"


async def test_too_much_is_refused_before_it_is_taken(site: Site) -> None:
    assert error(await site.put("a", b"x" * 4_000_001)) == (413, "BODY_TOO_LARGE")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 100_000

    with contextlib.suppress(httpx.WriteError, httpx.RemoteProtocolError):
        assert error(await site.put("a", endless())) == (413, "BODY_TOO_LARGE")
    (site.directory / "large").write_bytes(b"x" * 4_000_001)
    assert error(await site.get("large")) == (413, "BODY_TOO_LARGE")
    assert not (site.directory / "a").exists()


async def test_a_directory_is_taken_away_and_an_archive_unpacked(site: Site) -> None:
    await site.put("world/region/r.0", b"r" * 100_000)
    packed = await site.client.get(f"{FILES}/archive", params={"path": "world"})
    assert packed.status_code == 200, packed.text
    assert packed.headers["corral-left-out"] == "0"
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        assert archive.getnames() == ["region", "region/r.0"]
    await site.put("world.tar.gz", packed.content)
    done = await site.post("unpack", path="world.tar.gz", to="copy")
    assert (done.json()["entries"], done.json()["to"]) == (2, "copy")
    assert (site.directory / "copy/region/r.0").read_bytes() == b"r" * 100_000
    assert error(await site.post("unpack", path="world.tar.gz", to="copy")) == (409, "ALREADY_EXISTS")
    assert error(await site.client.get(f"{FILES}/archive", params={"path": "nowhere"})) == (404, "NOT_FOUND")
    assert site.staged() == []


@pytest.mark.trap("T70")
async def test_a_repeated_change_is_answered_as_the_first_and_leaves_what_is_newer(site: Site) -> None:
    """The controller asks again because it does not know what became of it."""
    term = site.controller.app.role.term
    assert term is not None
    once = {"caller": "somebody", "change_id": "once-1"}
    deleted = FileChange(verb="delete", path="begun.txt")
    first = await term.distribution.change_files("lobby-1", deleted, **once)
    (site.directory / "begun.txt").write_bytes(b"newer")
    assert await term.distribution.change_files("lobby-1", deleted, **once, repeated=True) == first
    assert (site.directory / "begun.txt").read_bytes() == b"newer"
    with pytest.raises(Rejected, match="may have been changed") as caught:
        await term.distribution.change_files(
            "lobby-1", deleted, caller="somebody", change_id="once-2", repeated=True
        )
    assert caught.value.code is Code.MAY_HAVE_ARRIVED
    refused = FileChange(verb="delete", path="begun.txt", if_digests=(sha256(b"other"),))
    once["change_id"] = "once-3"
    for repeated in (False, True):
        with pytest.raises(FileChanged) as changed:
            await term.distribution.change_files("lobby-1", refused, **once, repeated=repeated)
        assert changed.value.digest == sha256(b"newer")
    assert (site.directory / "begun.txt").read_bytes() == b"newer"


async def test_an_archive_says_how_many_entries_it_lacks(site: Site) -> None:
    await site.put("world/level.dat", b"level")
    (site.directory / "world/latest").symlink_to("level.dat")
    (site.directory / "world/level.bak").hardlink_to(site.directory / "begun.txt")
    os.mkfifo(site.directory / "world/pipe")
    packed = await site.client.get(f"{FILES}/archive", params={"path": "world"})
    assert packed.headers["corral-left-out"] == "3"
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        assert archive.getnames() == ["level.dat"]


@pytest.mark.trap("T26")
async def test_no_route_leads_out(site: Site, scratch: pathlib.Path) -> None:
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"theirs")
    (site.directory / "way").symlink_to(outside)
    os.mkfifo(site.directory / "fifo")
    for path in ("way/secret", "fifo", "../../x", "/etc/passwd"):
        for answer in (
            await site.put(path, b"x"),
            await site.put(path, b"x" * (INLINE + 1)),
            await site.get(path),
            await site.client.get(f"{FILES}/archive", params={"path": path}),
            await site.post("rename", path="begun.txt", to=path, replace=True),
            await site.post("rename", path=path, to="x"),
            await site.post("mkdir", path=f"{path}/x"),
            await site.post("unpack", path=path),
        ):
            assert error(answer)[1] in ("PATH_REFUSED", "ALREADY_EXISTS"), (path, answer.request)
    for answer in (await site.put("a\\b", b"x"), await site.post("mkdir", path="a\nb")):
        assert error(answer)[1] == "PATH_REFUSED"
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_bytes() == b"theirs"
    assert (site.directory / "begun.txt").exists()


async def test_what_a_server_has_named_in_odd_ways_is_shown_read_renamed_and_removed(site: Site) -> None:
    names = ["back\\slash", "line\nbreak", "\x1b[31mred", "bidi\u202e"]
    for name in names:
        (site.directory / name).write_bytes(b"odd")
    (site.directory / "mute").mkdir()
    for name in (b"caf\xe9", b"caf\xe8"):
        with open(os.fsencode(site.directory / "mute") + b"/" + name, "wb"):  # noqa: PTH123 - no name that is text
            pass
    packed = await site.client.get(f"{FILES}/archive", params={"path": ""})
    assert packed.headers["corral-left-out"] == "2", "names that are no text, which could become one"
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        found = archive.getnames()
    assert set(names) < set(found)
    assert len(found) == len(set(found))
    for name in names:
        assert (await site.get(name)).content == b"odd"
        digest = (await site.client.get(f"{FILES}/stat", params={"path": name})).json()["digest"]
        moved = await site.post("rename", path=name, to="plain", digest=digest)
        assert moved.status_code == 200, moved.text
        (site.directory / "plain").rename(site.directory / name)
        assert (await site.post("delete", path=name)).status_code == 200
    listed = (await site.client.get(FILES)).json()["items"]
    assert not {each["path"] for each in listed} & set(names)


async def test_a_directory_with_ten_thousand_entries_is_listed_in_pages(site: Site) -> None:
    many = site.directory / "many"
    many.mkdir()
    names = [f"{number:05}" for number in range(10_050)]
    for name in names:
        (many / name).touch()
    (many / "sub").mkdir()
    (many / "sub/below").touch()
    found, cursor = [], ""
    while True:
        params = {"path": "many", "limit": 4000, "depth": 1, "cursor": cursor, "digests": "true"}
        page = (await site.client.get(FILES, params=params)).json()
        assert len(page["items"]) <= 4000
        found += page["items"]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert [each["path"] for each in found] == [f"many/{name}" for name in [*names, "sub"]]
    assert (page["truncated"], found[0]["digest"], found[0]["binary"]) == (False, sha256(b""), False)


async def test_a_file_that_changes_while_it_is_sent_never_looks_whole(site: Site) -> None:
    file = site.directory / "level.dat"
    file.write_bytes(b"a" * 3_000_000)
    with pytest.raises(httpx.RemoteProtocolError):
        async with site.client.stream("GET", f"{FILES}/content", params={"path": "level.dat"}) as answer:
            assert answer.headers["etag"] == f'"{sha256(b"a" * 3_000_000)}"'
            file.write_bytes(b"b" * 3_000_000)
            async for _ in answer.aiter_bytes():
                pass
    with pytest.raises(httpx.RemoteProtocolError):
        async with site.client.stream("GET", f"{FILES}/content", params={"path": "level.dat"}) as answer:
            os.truncate(file, 10)
            async for _ in answer.aiter_bytes():
                pass
    assert (await site.get("level.dat")).content == b"b" * 10


async def test_an_instance_that_has_no_directory_says_so(site: Site) -> None:
    await site.client.post("/api/v1/instances/lobby-1/stop", json={})
    await eventually(lambda: not site.directory.exists())
    for answer in (await site.get("a"), await site.put("a", b"x"), await site.client.get(FILES)):
        assert error(answer) == (404, "NOT_FOUND")
        assert "no files" in answer.text or "is not" in answer.text or "no instance" in answer.text


@pytest.mark.trap("T42")
async def test_a_file_of_any_size_is_not_read_to_be_compared(site: Site) -> None:
    big = site.directory / "big"
    big.touch()
    os.truncate(big, 1 << 43)
    digest = "0" * 64
    for refused in (
        await site.post("delete", path="big", digest=digest),
        await site.post("rename", path="big", to="b", digest=digest),
        await site.put("big", b"x", **{"If-Match": f'"{digest}"'}),
    ):
        assert error(refused) == (413, "BODY_TOO_LARGE")
        assert "nothing was changed" in refused.text
    assert error(await site.put("big", b"x", **{"If-None-Match": "*"})) == (412, "FILE_CHANGED")
    assert (await site.post("delete", path="big")).status_code == 200
    assert not big.exists()


@pytest.mark.trap("T42")
@pytest.mark.parametrize("site", [UNREAD], indirect=True)
async def test_downloads_that_are_not_read_keep_nobody_from_changing_files(site: Site) -> None:
    (site.directory / "large").write_bytes(os.urandom(UNREAD // 48) * 48)
    made = (await site.client.post("/api/v1/tokens", json={"name": "slow", "role": "OPERATOR"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with (
        httpx.AsyncClient(base_url=site.controller.url, headers=headers, timeout=60) as other,
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(DOWNLOADS_PER_CALLER + 1):
            answer = await stack.enter_async_context(
                other.stream("GET", f"{FILES}/content", params={"path": "large"})
            )
            assert answer.status_code == (200 if number < DOWNLOADS_PER_CALLER else 429)
        assert (await site.post("mkdir", path="made")).status_code == 200
        for content in (b"small", b"large" * INLINE):
            assert (await site.put("made/file", content)).status_code == 200
        assert len((await site.get("large")).content) == UNREAD


@pytest.mark.trap("T25")
@pytest.mark.parametrize("site", [UNREAD], indirect=True)
async def test_a_download_ends_with_the_token_that_opened_it(site: Site) -> None:
    (site.directory / "large").write_bytes(os.urandom(UNREAD // 48) * 48)
    made = (await site.client.post("/api/v1/tokens", json={"name": "passing", "role": "OPERATOR"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    with pytest.raises(httpx.RemoteProtocolError):
        async with (
            httpx.AsyncClient(base_url=site.controller.url, headers=headers, timeout=60) as other,
            other.stream("GET", f"{FILES}/content", params={"path": "large"}) as answer,
        ):
            assert answer.status_code == 200
            await site.client.delete(f"/api/v1/tokens/{made['id']}")
            async for _ in answer.aiter_bytes():
                await asyncio.sleep(0)
