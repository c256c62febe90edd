"""An instance's plan, its variables, its files, and saving it as a template."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from http_rig import Rig, tar_gz

from corral.controller.distribution.instance_files import WalkRequest
from corral.domain.file_paths import LISTED_DIGESTED, MOST_BYTES
from corral.domain.permissions import Role
from corral.errors import Code, Retryable

INSTANCES = "/api/v1/instances"


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_plan_is_shown_with_its_hash_and_what_was_drawn(client: httpx.AsyncClient, rig: Rig) -> None:
    made = {name: await rig.template(name) for name in ("world/a", "world/b")}
    await rig.group(template_selection={"one_in_groups": [{"name": "world"}]}, max_players=20)
    record = await rig.instance()
    shown = (await client.get(f"{INSTANCES}/{record.id}/plan")).json()
    assert set(shown) == {"id", "hash", "plan", "picks"}
    assert shown["hash"] == record.plan_hash
    (pick,) = shown["picks"]
    (layer,) = shown["plan"]["templates"]
    assert (layer["name"], layer["version"], layer["hash"]) == (pick, 1, made[pick]["hash"])
    assert error(await client.get(f"{INSTANCES}/ghost-1/plan")) == (404, "NOT_FOUND")


async def test_an_instance_takes_variables_of_its_own(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group(variables={"MOTD": "hi"}, variable_types={"SLOTS": {"type": "int", "max": 10}})
    made = await client.post(
        INSTANCES, json={"group": "lobby", "variables": {"SLOTS": "7", "MOTD": "geheim"}}
    )
    assert made.status_code == 201, made.text
    assert made.json()["variables"] == {"SLOTS": "7", "MOTD": "geheim"}
    refused = await client.post(INSTANCES, json={"group": "lobby", "variables": {"SLOTS": "70"}})
    assert error(refused) == (422, "VARIABLE_INVALID")
    (entry,) = await rig.audits("instances.start")
    assert entry["after"]["variables"] == ["MOTD", "SLOTS"]
    assert "geheim" not in str(entry)


async def test_saved_files_become_a_template_and_the_next_ones_a_version(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    rig.distribution.saved = tar_gz({"world/level.dat": b"1"})
    path = f"{INSTANCES}/{record.id}/save"
    body: dict[str, Any] = {"template": "worlds/saved", "paths": ["world/**"], "note": "eve"}
    made = await client.post(path, json=body)
    assert made.status_code == 201, made.text
    assert (made.json()["name"], made.json()["files"], made.json()["note"]) == ("worlds/saved", 1, "eve")
    assert rig.distribution.asked == [("save", (record.id, ("world/**",)))]
    assert rig.distribution.open_saves == 0
    types = [event.type.value for event in rig.commits[-1].events]
    assert "INSTANCE_SAVED" in types
    (entry,) = await rig.audits("instances.save")
    assert (entry["subject"], entry["after"]["instance"]) == ("worlds/saved", record.id)
    rig.distribution.saved = tar_gz({"world/other.dat": b"2"})
    merged = await client.post(path, json={**body, "merge": True})
    assert (merged.status_code, merged.json()["files"], merged.json()["version"]) == (200, 2, 2)
    replaced = await client.post(path, json=body)
    assert (replaced.json()["files"], replaced.json()["version"]) == (1, 3)
    assert (await client.post(path, json=body)).json()["unchanged"] is True


async def test_a_save_that_fails_makes_nothing(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    path = f"{INSTANCES}/{record.id}/save"
    body = {"template": "saved", "paths": ["world"]}
    rig.distribution.saved = b"garbage"
    assert error(await client.post(path, json=body)) == (422, "ARCHIVE_INVALID")
    rig.distribution.failure = Retryable(Code.NODE_OFFLINE, "its node is not connected")
    assert error(await client.post(path, json=body)) == (409, "NODE_OFFLINE")
    assert len(rig.state.templates) == 0


BAD_SAVES = [
    ({"paths": []}, "INVALID_FIELD"),
    ({"paths": ["../x"]}, "PATH_REFUSED"),
    ({"paths": ["/etc"]}, "PATH_REFUSED"),
    ({"template": "A B"}, "INVALID_FIELD"),
    ({"path": ["x"]}, "UNKNOWN_FIELD"),
]


async def test_a_bad_save_is_refused_before_a_node_is_asked(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    for changed, code in BAD_SAVES:
        body = {"template": "saved", "paths": ["world"], **changed}
        refused = await client.post(f"{INSTANCES}/{record.id}/save", json=body)
        assert refused.json()["error"]["code"] == code, changed
        assert rig.distribution.asked == [], changed


async def test_files_are_listed_and_read_from_the_node(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    rig.distribution.saved = b"0123456789"
    path = f"{INSTANCES}/{record.id}/files"
    listed = await client.get(path, params={"path": "logs", "limit": 5, "depth": 1, "digests": "true"})
    body = listed.json()
    assert body["items"] == [
        {
            "path": "logs/latest.log",
            "kind": "file",
            "size": 4,
            "modified_at": None,
            "mode": "0640",
            "digest": None,
            "binary": None,
            "origin": "workload",
            "template": None,
            "template_version": None,
        }
    ]
    assert body["truncated"] is True
    assert (await client.get(path, params={"cursor": body["next"]})).status_code == 200
    read = await client.get(f"{path}/content", params={"path": "logs/a b.log", "offset": 3, "length": 4})
    assert (read.status_code, read.content) == (200, b"3456")
    assert read.headers["content-type"] == "application/octet-stream"
    assert "a b.log" in read.headers["content-disposition"]
    assert "etag" not in read.headers, "a part has none"
    behind = await client.get(f"{path}/content", params={"path": "a", "offset": 99})
    assert (behind.status_code, behind.content) == (200, b"")
    assert rig.distribution.asked == [
        ("walk", (record.id, WalkRequest(path="logs", limit=5, depth=1, digests=LISTED_DIGESTED))),
        ("walk", (record.id, WalkRequest(limit=1000, after=b"latest.log\xff"))),
        ("read", (record.id, "logs/a b.log", 3, 4)),
        ("read", (record.id, "a", 99, MOST_BYTES)),
    ]
    rig.distribution.failure = Retryable(Code.NODE_OFFLINE, "its node is not connected")
    assert error(await client.get(path)) == (409, "NODE_OFFLINE")
    assert error(await client.get(f"{path}/content", params={"path": "a"})) == (409, "NODE_OFFLINE")


async def test_a_whole_file_has_its_digest_as_its_tag_and_a_large_one_is_passed_on(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    path = f"{INSTANCES}/{record.id}/files"
    for size, way in ((10, "read"), (MOST_BYTES + 1, "open")):
        rig.distribution.saved = b"x" * size
        tag = f'"{hashlib.sha256(rig.distribution.saved).hexdigest()}"'
        read = await client.get(f"{path}/content", params={"path": "a"})
        assert (read.content, read.headers["etag"]) == (rig.distribution.saved, tag), size
        assert rig.distribution.asked[-1][0] == way
        head = await client.head(f"{path}/content", params={"path": "a"})
        assert (head.content, head.headers["etag"]) == (b"", tag)
        assert (await client.get(f"{path}/stat", params={"path": "a"})).json()["digest"] == tag.strip('"')
    packed = await client.get(f"{path}/archive", params={"path": "world"})
    assert packed.headers["content-type"] == "application/gzip"
    assert 'filename="world.tar.gz"' in packed.headers["content-disposition"]
    assert rig.distribution.open_saves == 0, "all are closed, those that were only asked about, too"


async def test_a_file_says_which_template_it_comes_from(client: httpx.AsyncClient, rig: Rig) -> None:
    for name, files in (
        ("base", {"server.properties": b"port=1\n", "conf/a.yml": b"a", "icon.png": b"\x89\xff"}),
        ("upper", {"conf/a.yml": b"b: %PORT%"}),
    ):
        made = await client.put(f"/api/v1/templates/{name}", content=tar_gz(files))
        assert made.status_code == 201, made.text
    patch = {"file": "server.properties", "path": "port", "value": "2"}
    await rig.group(templates=["base", "upper"], patches=[patch])
    record = await rig.instance()
    at = f"{INSTANCES}/{record.id}/files"

    async def origin(path: str) -> dict[str, Any]:
        return (await client.get(f"{at}/stat", params={"path": path})).json()

    found = {path: await origin(path) for path in ("server.properties", "conf/a.yml", "conf", "world/x")}
    seen = {path: (each["origin"], each["template"]) for path, each in found.items()}
    assert seen == {
        "server.properties": ("patch", "base"),
        "conf/a.yml": ("template", "upper"),
        "conf": ("template", "base"),
        "world/x": ("workload", None),
    }
    shown = (await client.get(f"{at}/origin", params={"path": "conf/a.yml"})).json()
    assert (shown["template"], shown["template_version"], shown["content"]) == ("upper", 1, "b: %PORT%")
    assert (await client.get(f"{at}/origin", params={"path": "icon.png"})).json()["content"] is None
    assert error(await client.get(f"{at}/origin", params={"path": "world/x"})) == (404, "NOT_FOUND")


async def test_a_write_that_cannot_be_done_is_refused_before_its_body_is_read(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()

    async def body() -> AsyncIterator[bytes]:
        for _ in range(16):
            yield b"x" * 64 * 1024

    async def put(path: str, **headers: str) -> tuple[int, str]:
        at = f"{INSTANCES}/{record.id}/files/content"
        return error(await client.put(at, params={"path": path}, content=body(), headers=headers))

    assert await put("../x") == (422, "PATH_REFUSED")
    assert await put("a", **{"If-Match": '"42"'}) == (400, "BAD_REQUEST")
    assert await put("a", **{"If-None-Match": '"42"'}) == (400, "BAD_REQUEST")
    rig.distribution.failure = Retryable(Code.NODE_OFFLINE, "its node is not connected")
    assert await put("a") == (409, "NODE_OFFLINE")
    assert rig.distribution.asked == []
    assert await rig.audits("instances.files.write") == [], "nothing was begun"


async def test_writes_need_a_permission_of_their_own(rig: Rig) -> None:
    record = await rig.instance()
    _, viewer = await rig.token(Role.VIEWER)
    _, operator = await rig.token(Role.OPERATOR)
    at = f"{INSTANCES}/{record.id}/files"
    async with rig.client(viewer) as other:
        for verb in ("rename", "mkdir", "delete", "unpack"):
            assert error(await other.post(f"{at}/{verb}", json={"path": "a", "to": "b"})) == (
                403,
                "FORBIDDEN",
            )
        assert error(await other.put(f"{at}/content", params={"path": "a"}, content=b"x")) == (
            403,
            "FORBIDDEN",
        )
    assert rig.distribution.asked == []
    async with rig.client(operator) as other:
        assert (await other.put(f"{at}/content", params={"path": "a"}, content=b"x")).status_code == 200
    assert rig.distribution.saved == b"x"


async def test_files_are_not_for_those_who_may_only_look(rig: Rig) -> None:
    record = await rig.instance()
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as other:
        for path in (
            "files",
            "files/content?path=a",
            "files/stat?path=a",
            "files/archive",
            "files/origin?path=a",
        ):
            assert error(await other.get(f"{INSTANCES}/{record.id}/{path}")) == (403, "FORBIDDEN")
    assert rig.distribution.asked == []


BAD_QUESTIONS = [
    ("files?limit=0", 400, "INVALID_FIELD"),
    ("files?limit=10001", 400, "INVALID_FIELD"),
    ("files?lmit=1", 400, "UNKNOWN_FIELD"),
    ("files/content", 400, "MISSING_FIELD"),
    ("files/content?path=", 400, "MISSING_FIELD"),
    ("files/content?path=a&offset=-1", 400, "INVALID_FIELD"),
    ("files/content?path=a&offset=9223372036854775808", 400, "INVALID_FIELD"),
    ("files/content?path=a&length=0", 400, "INVALID_FIELD"),
    ("files?cursor=!", 400, "INVALID_CURSOR"),
    ("files?depth=202", 400, "INVALID_FIELD"),
    ("files/stat", 400, "MISSING_FIELD"),
    ("files/origin?path=../x", 422, "PATH_REFUSED"),
]


async def test_a_bad_question_about_files_is_refused_before_a_node_is_asked(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    for query, status, code in BAD_QUESTIONS:
        assert error(await client.get(f"{INSTANCES}/{record.id}/{query}")) == (status, code), query
        assert rig.distribution.asked == [], query
        assert error(await client.get(f"{INSTANCES}/ghost-1/files")) == (404, "NOT_FOUND"), query


async def test_new_nested_fields_of_a_group_are_merged_by_a_patch(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for name in ("world/a", "base"):
        await rig.template(name)
    await rig.group(
        template_selection={"one_of": [{"name": "world/a"}]},
        variable_types={"A": {"type": "int"}},
        warmup={"paths": ["libraries/**"]},
    )
    patch = {
        "template_selection": {"all_of": [{"name": "base", "priority": 3}]},
        "variable_types": {"B": {"type": "bool"}},
    }
    changed = (await client.patch("/api/v1/groups/lobby", json=patch)).json()
    assert changed["template_selection"]["one_of"][0]["name"] == "world/a"
    assert changed["template_selection"]["all_of"][0]["priority"] == 3
    assert sorted(changed["variable_types"]) == ["A", "B"]
    gone = (await client.patch("/api/v1/groups/lobby", json={"variable_types": {"A": None}})).json()
    assert sorted(gone["variable_types"]) == ["B"]
    reset = (await client.patch("/api/v1/groups/lobby", json={"warmup": None})).json()
    assert reset["warmup"] == {"paths": []}
    patch = {
        "command": [],
        "jvm": {"heap_mb": 64},
        "artifact": {"url": "https://example.org/a.jar", "sha256": "ab" * 32},
    }
    assert (await client.patch("/api/v1/groups/lobby", json=patch)).status_code == 200
    both = (await client.patch("/api/v1/groups/lobby", json={"jvm": {"args": ["-ea"]}})).json()
    assert (both["jvm"]["heap_mb"], both["jvm"]["args"]) == (64, ["-ea"])
    none = (
        await client.patch("/api/v1/groups/lobby", json={"command": ["x"], "jvm": None, "artifact": None})
    ).json()
    assert (none["jvm"], none["artifact"]) == (None, None)
    typo = await client.patch("/api/v1/groups/lobby", json={"template_selection": {"al_of": []}})
    assert error(typo) == (400, "UNKNOWN_FIELD")


async def test_the_audit_of_a_group_holds_no_value_that_may_be_secret(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group(
        env={"A": "geheim"},
        variables={"B": "geheim"},
        properties={"C": "geheim"},
        patches=[{"file": "a.properties", "path": "rcon.password", "value": "geheim"}],
        artifact={"url": "https://u:geheim@example.org/x.jar?sig=geheim", "sha256": "ab" * 32},
    )
    (entry,) = await rig.audits("groups.create")
    assert "geheim" not in str(entry)
    assert entry["after"]["patches"][0]["path"] == "rcon.password"
    assert entry["after"]["artifact"]["url"] == "https://example.org/x.jar"
