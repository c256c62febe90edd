"""Modules over the API: upload, look, control, remove."""

from __future__ import annotations

import asyncio
import hashlib
import json
import pathlib
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from module_archives import module_zip
from raw_client import raw_call

from corral.controller.http.pipeline.route_table import FormUpload, Relay
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Role
from corral.modules.services.registrations import RESERVED_SEGMENTS
from corral.signing import new_key, sign_keyed
from corral.system.config_sections import SigningSection
from corral.system.controller_config import ModulesSection
from corral.testing.waiting import eventually
from corral.wire.v1.module_pb2 import ModuleMetricFamily, ModuleMetrics, ModuleMetricSample

MODULES = "/api/v1/modules"
PLAIN = f"{MODULES}/plain"

CONFIGURED = """
    from corral.sdk import PlatformModule

    class Plain(PlatformModule):
        async def on_reload(self, ctx):
            if ctx.config.get("word") == "bad":
                raise ValueError("not that one")
"""
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "default": "hello"}},
    "additionalProperties": False,
}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def post(
    client: httpx.AsyncClient,
    archive: bytes,
    *,
    path: str = MODULES,
    signature: tuple[str, bytes] | None = None,
    headers: dict[str, str] | None = None,
    **query: str,
) -> httpx.Response:
    files: dict[str, Any] = {"file": ("m.zip", archive)}
    if signature is not None:
        files["signature"] = signature
    return await client.post(path, params=query, files=files, headers=headers)


def left(rig: Rig) -> list[str]:
    """Uploads that were not cleared away."""
    directory = rig.data / "uploads"
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []


async def test_a_module_is_installed_shown_and_removed(client: httpx.AsyncClient, rig: Rig) -> None:
    archive = module_zip(title="Plain", description="Does nothing", capabilities={"requires": []})
    made = await post(client, archive)
    assert made.status_code == 201, made.text
    shape = made.json()
    assert (shape["kind"], shape["outcome"]) == ("installed", "installed")
    assert shape["steps"]
    assert (shape["id"], shape["version"], shape["phase"], shape["intent"]) == (
        "plain", "1.0.0", "ACTIVE", "active",
    )  # fmt: skip
    assert shape["sha256"] == hashlib.sha256(archive).hexdigest()
    assert (shape["size"], shape["hosts"], shape["nodes"]) == (len(archive), ["controller"], [])
    shown = (await client.get(PLAIN)).json()
    assert set(shown) == {
        "id", "version", "title", "description", "hosts", "phase", "intent", "reason", "paused_reason", "sha256",
        "size", "signature", "on_nodes", "nodes", "provides", "requires", "extensions", "storage", "settings", "frontend",
        "previous_version", "installed_at", "updated_at", "failure", "history", "live", "revision",
    }  # fmt: skip
    assert shown["live"]["pid"] > 0
    assert [(step["from"], step["to"]) for step in shown["history"]] == [
        (None, "INSTALLED"), ("INSTALLED", "WAITING"), ("WAITING", "ACTIVE"),
    ]  # fmt: skip
    assert made.headers["etag"] == f'"{shown["revision"]}"'
    assert left(rig) == []
    assert len(await rig.audits("modules.install")) == 1
    assert (await client.delete(PLAIN)).status_code == 204
    assert error(await client.get(PLAIN)) == (404, "NOT_FOUND")
    assert error(await client.delete(PLAIN)) == (404, "NOT_FOUND")
    assert len(await rig.audits("modules.uninstall")) == 1
    types = [event.type.value for commit in rig.commits for event in commit.events]
    assert [type for type in types if type.startswith("MODULE_")][:3] == [
        "MODULE_INSTALLED", "MODULE_WAITING", "MODULE_ACTIVATED",
    ]  # fmt: skip


async def test_installs_are_told_apart(client: httpx.AsyncClient, rig: Rig) -> None:
    first = module_zip()
    await rig.install(first)
    same = await post(client, first)
    assert (same.status_code, same.json()["outcome"]) == (200, "unchanged")
    other = module_zip(title="other")
    assert error(await post(client, other)) == (409, "MODULE_VERSION_CONFLICT")
    assert (await post(client, other, replace="true")).json()["outcome"] == "replaced"
    higher = await post(client, module_zip(version="1.1.0"))
    assert (higher.status_code, higher.json()["outcome"]) == (200, "upgraded")
    assert error(await post(client, first)) == (409, "MODULE_VERSION_CONFLICT")
    assert (await post(client, first, allow_downgrade="true")).json()["outcome"] == "downgraded"
    assert (await client.get(PLAIN)).json()["version"] == "1.0.0"


async def test_a_dry_run_tells_and_does_nothing(client: httpx.AsyncClient, rig: Rig) -> None:
    number = rig.state.number
    told = await post(client, module_zip(), dry_run="true")
    assert told.status_code == 200, told.text
    assert (told.json()["kind"], told.json()["ok"], told.json()["action"]) == ("examined", True, "install")
    assert error(await client.get(PLAIN)) == (404, "NOT_FOUND")
    assert rig.state.number == number
    needy = module_zip(api=">=99")
    refused = (await post(client, needy, dry_run="true")).json()
    assert refused["ok"] is False
    assert refused["problems"][0]["code"] == "MODULE_INCOMPATIBLE"
    assert error(await post(client, needy)) == (422, "MODULE_INCOMPATIBLE")
    assert (await client.get(MODULES)).json()["items"] == []
    assert len(left(rig)) == len(rig.modules.examined) == 2, "what was examined is kept for a while"


async def test_a_module_may_be_installed_and_held(client: httpx.AsyncClient, rig: Rig) -> None:
    held = await rig.install(module_zip(), activate="false")
    assert (held["phase"], held["intent"], held["live"]) == ("INSTALLED", "inactive", None)
    assert (await client.post(f"{PLAIN}/activate")).json()["phase"] == "ACTIVE"


async def test_the_file_alone_may_be_the_body(client: httpx.AsyncClient) -> None:
    for number, kind in enumerate(("application/zip", "application/octet-stream")):
        archive = module_zip(version=f"1.{number}.0")
        answer = await client.post(MODULES, content=archive, headers={"Content-Type": kind})
        assert answer.json()["version"] == f"1.{number}.0", answer.text


async def test_settings_may_come_with_the_archive(client: httpx.AsyncClient) -> None:
    files = {"file": ("m.zip", module_zip(config=SCHEMA)), "settings": (None, json.dumps({"word": "x"}))}
    answer = await client.post(MODULES, files=files)
    assert answer.json()["settings"] == {"word": "x"}, answer.text
    files["settings"] = (None, "[]")
    assert error(await client.post(MODULES, files=files)) == (400, "INVALID_FIELD")
    files["settings"] = (None, "{")
    assert error(await client.post(MODULES, files=files)) == (400, "INVALID_JSON")


async def test_the_seed_paths_answer_too(client: httpx.AsyncClient) -> None:
    made = await post(client, module_zip(), path=f"{MODULES}/platform/upload")
    assert (made.status_code, made.json()["id"]) == (201, "plain")
    listed = (await client.get(f"{MODULES}/platform")).json()
    assert [item["id"] for item in listed["items"]] == ["plain"]
    assert (await client.get(f"{MODULES}/platform/leaked-classloaders")).json() == {"items": [], "next": None}
    assert (await client.post(f"{MODULES}/platform/force-cleanup")).json() == {"items": [], "next": None}


async def test_the_list_is_filtered_and_paged(client: httpx.AsyncClient, rig: Rig) -> None:
    for id in ("charlie", "alpha", "bravo"):
        await rig.install(module_zip(id), activate="false" if id == "bravo" else "true")

    async def ids(**query: str) -> list[str]:
        return [item["id"] for item in (await client.get(MODULES, params=query)).json()["items"]]

    assert await ids() == ["alpha", "bravo", "charlie"]
    assert await ids(phase="ACTIVE") == ["alpha", "charlie"]
    assert await ids(intent="inactive") == ["bravo"]
    assert await ids(host="controller") == ["alpha", "bravo", "charlie"]
    assert await ids(host="daemon") == []
    assert await ids(ids="charlie,nobody,alpha") == ["alpha", "charlie"]
    assert await ids(q="AL") == ["alpha"]
    page = (await client.get(MODULES, params={"limit": 2})).json()
    assert [item["id"] for item in page["items"]] == ["alpha", "bravo"]
    assert await ids(limit="2", cursor=page["next"]) == ["charlie"]
    assert error(await client.get(MODULES, params={"phase": "RUNNING"})) == (400, "INVALID_FIELD")


async def test_every_verb_moves_the_module(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.install(module_zip())
    paused = (await client.post(f"{PLAIN}/pause", json={"reason": "a fix is coming"})).json()
    assert (paused["phase"], paused["intent"], paused["paused_reason"]) == (
        "INSTALLED", "paused", "a fix is coming",
    )  # fmt: skip
    assert (await client.post(f"{PLAIN}/resume")).json()["phase"] == "ACTIVE"
    stopped = await client.post(f"{PLAIN}/deactivate")
    assert (stopped.json()["phase"], stopped.json()["intent"]) == ("INSTALLED", "inactive")
    assert stopped.headers["etag"] == f'"{stopped.json()["revision"]}"'
    assert (await client.get(PLAIN)).json()["revision"] == stopped.json()["revision"]
    assert (await client.post(f"{PLAIN}/activate")).json()["phase"] == "ACTIVE"
    assert error(await client.post(f"{PLAIN}/recover")) == (409, "ILLEGAL_TRANSITION")
    for verb in ("pause", "resume", "deactivate", "activate"):
        (entry,) = await rig.audits(f"modules.{verb}")
        assert (entry["subject"], entry["actor"][:6]) == ("plain", "token:")


async def test_a_failed_module_tells_why_and_is_recovered(client: httpx.AsyncClient, rig: Rig) -> None:
    source = """
        from corral.sdk import PlatformModule

        class Plain(PlatformModule):
            async def on_start(self, ctx):
                raise ValueError("geheim")
    """
    failed = await rig.install(module_zip(source=source))
    assert (failed["phase"], failed["reason"]) == ("FAILED", "hook_failed:on_start")
    assert "geheim" in failed["failure"]["message"] + failed["failure"]["traceback"]
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        seen = await looking.get(PLAIN)
        assert seen.json()["failure"]["reason"] == "hook_failed:on_start"
        assert "geheim" not in seen.text
        assert seen.json()["settings"] is None
    assert (await client.post(f"{PLAIN}/recover")).json()["phase"] == "FAILED"
    assert (await client.post(PLAIN + "/activate")).status_code in (200, 409)


async def test_settings_are_checked_and_taken_in_while_it_runs(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.install(module_zip(source=CONFIGURED, config=SCHEMA))
    assert made["settings"] == {"word": "hello"}
    shown = (await client.get(f"{PLAIN}/config")).json()
    assert shown == {"settings": {"word": "hello"}, "schema": SCHEMA}
    changed = await client.put(f"{PLAIN}/config", json={"word": "bye"})
    assert (changed.status_code, changed.json()["settings"]) == (200, {"word": "bye"})
    assert changed.json()["live"]["pid"] == made["live"]["pid"], "without a restart"
    refused = await client.put(f"{PLAIN}/config", json={"word": 7})
    assert error(refused) == (422, "SETTINGS_INVALID")
    assert refused.json()["error"]["field"] == "word"
    assert "`corral module config ID` shows what it takes" in refused.json()["error"]["hint"]
    unwilling = await client.put(f"{PLAIN}/config", json={"word": "bad"})
    assert unwilling.status_code >= 400
    assert (await client.get(f"{PLAIN}/config")).json()["settings"] == {"word": "bye"}
    assert (await client.post(f"{PLAIN}/reload")).json()["settings"] == {"word": "bye"}


async def test_settings_are_not_cleared_by_a_body_that_got_lost(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.install(module_zip(source=CONFIGURED, config=SCHEMA))
    await client.put(f"{PLAIN}/config", json={"word": "bye"})
    assert error(await client.put(f"{PLAIN}/config")) == (400, "BAD_REQUEST")
    assert (await client.get(f"{PLAIN}/config")).json()["settings"] == {"word": "bye"}
    cleared = await client.put(f"{PLAIN}/config", json={})
    assert cleared.json()["settings"] == {"word": "hello"}


async def test_health_is_asked_of_the_module(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.install(module_zip())
    assert (await client.get(f"{PLAIN}/health")).json() == {"healthy": True, "detail": ""}
    await client.post(f"{PLAIN}/deactivate")
    assert error(await client.get(f"{PLAIN}/health")) == (503, "MODULE_NOT_ACTIVE")
    assert error(await client.get(f"{MODULES}/none/health")) == (404, "NOT_FOUND")


async def test_a_module_for_nodes_alone_has_no_routes_and_no_health(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    backend = {"daemon": {"entrypoint": "plain_code.main:Plain"}}
    await rig.install(module_zip(hosts=["daemon"], backend=backend))
    for path in ("anything", "health"):
        answer = await client.get(f"{PLAIN}/{path}")
        assert error(answer) == (404, "NOT_FOUND")
        assert "no part on the controller" in answer.json()["error"]["message"]


async def test_a_node_tells_what_its_part_of_a_module_uses(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.install(
        module_zip(hosts=["daemon"], backend={"daemon": {"entrypoint": "plain_code.main:Plain"}})
    )
    link = await rig.online("node-1")
    await rig.online("node-2")
    samples = [ModuleMetricSample(value=4096.0)]
    frame = ModuleMetricFamily(module_id="plain", name="memory_bytes", kind="gauge", samples=samples)
    rig.modules.node_reports.received(link, ModuleMetrics(families=[frame]))
    used = {"cpu_seconds": 0.0, "memory_bytes": 4096, "threads": 0, "processes": 0, "calls": 0, "failures": 0}
    listed = (await client.get(f"{PLAIN}/nodes")).json()["items"]
    assert [each["live"] for each in listed] == [used, None]
    assert [each["live"] for each in (await client.get(PLAIN)).json()["nodes"]] == [used, None]
    assert (await client.get("/api/v1/nodes/node-1/modules")).json()["items"][0]["live"] == used


async def test_data_is_dropped_only_when_the_module_is_gone(client: httpx.AsyncClient, rig: Rig) -> None:
    source = """
        from corral.sdk import PlatformModule

        class Plain(PlatformModule):
            async def on_start(self, ctx):
                await ctx.require_document_storage().collection("notes", dict).insert({"text": "x"})
    """
    await rig.install(module_zip(source=source, storage={"documents": True}))
    drop = f"{PLAIN}/storage/drop"
    assert error(await client.post(drop)) == (409, "STORAGE_IN_USE")
    assert error(await client.delete(f"{MODULES}/storage/plain")) == (409, "STORAGE_IN_USE")
    assert (await client.delete(PLAIN)).status_code == 204
    assert (await client.post(drop)).status_code == 204
    assert error(await client.delete(f"{MODULES}/storage/plain")) == (404, "NOT_FOUND")
    assert len(await rig.audits("modules.drop_storage")) == 1
    found = (await client.get("/api/v1/events", params={"types": "MODULE_STORAGE_DROPPED"})).json()["items"]
    assert [(event["subject"], event["data"]) for event in found] == [("plain", {"id": "plain"})]


async def test_capabilities_are_listed_with_what_is_missing(client: httpx.AsyncClient, rig: Rig) -> None:
    provider = """
        from typing import Protocol
        from corral.sdk import CapabilityBinding, PlatformModule

        class Words(Protocol):
            async def word(self) -> str: ...

        class Impl:
            async def word(self) -> str:
                return "x"

        class Plain(PlatformModule):
            def capability_handles(self):
                return [CapabilityBinding("test.words", Words, Impl)]
    """
    provides = {"provides": [{"id": "test.words", "version": "1.2.0"}]}
    requires = {
        "requires": [{"id": "test.words", "versionRange": "^1"}, {"id": "test.none", "optional": False}]
    }
    await rig.install(module_zip("giver", source=provider, capabilities=provides))
    waiting = await rig.install(module_zip("taker", capabilities=requires))
    assert (waiting["phase"], waiting["reason"]) == ("WAITING", "waiting_for_capability:test.none")
    assert waiting["requires"][0] == {
        "id": "test.words", "version_range": "^1", "optional": False, "from": None,
    }  # fmt: skip
    listed = (await client.get("/api/v1/capabilities")).json()
    assert listed == (await client.get(f"{MODULES}/capabilities")).json()
    (found,) = [item for item in listed["items"] if item["id"] == "test.words"]
    assert (found["provider"], found["version"], found["consumers"]) == ("giver", "1.2.0", ["taker"])
    assert [(item["module"], item["id"]) for item in listed["unresolved"]] == [("taker", "test.none")]


# --- uploads -------------------------------------------------------------------------------------


async def test_a_key_takes_effect_once_however_the_form_is_wrapped(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    headers = {"Idempotency-Key": "k-1"}
    archive = module_zip()
    first = await post(client, archive, headers=headers)
    again = await post(client, archive, headers=headers)  # httpx takes a new boundary each time
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.json()) == (201, first.json())
    assert len(await rig.audits("modules.install")) == 1
    other = await post(client, module_zip(version="2.0.0"), headers=headers)
    assert error(other) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert left(rig) == []


async def test_one_key_sent_by_many_at_once_installs_once(client: httpx.AsyncClient, rig: Rig) -> None:
    archive = module_zip()
    answers = await asyncio.gather(
        *(post(client, archive, headers={"Idempotency-Key": "k-1"}) for _ in range(5))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len(await rig.audits("modules.install")) == 1


async def test_what_is_no_module_is_refused_and_nothing_is_left(client: httpx.AsyncClient, rig: Rig) -> None:
    blobs = len(await rig.store.blobs.blob_stamps(limit=100))
    for archive, code in (
        (b"not a zip", "ARCHIVE_INVALID"),
        (module_zip()[:-30], "ARCHIVE_INVALID"),
        (module_zip(unknown="key"), "MANIFEST_INVALID"),
        (module_zip("platform"), "MANIFEST_INVALID"),
    ):
        answer = await post(client, archive)
        assert error(answer)[0] in (400, 422), answer.text
        assert error(answer)[1] == code, answer.text
    assert left(rig) == []
    assert await rig.audits("modules.install") == []
    assert {change.collection for commit in rig.commits[2:] for change in commit.changes} == set()
    assert len(await rig.store.blobs.blob_stamps(limit=100)) == blobs
    assert (await client.get(MODULES)).json()["items"] == []


async def test_an_upload_is_refused_before_it_is_read(client: httpx.AsyncClient, rig: Rig) -> None:
    _, operator = await rig.token(Role.OPERATOR)
    form = "multipart/form-data; boundary=x"
    refusals = [
        ({"token": "nobody"}, MODULES, (401, "UNAUTHENTICATED")),
        ({"token": operator}, MODULES, (403, "FORBIDDEN")),
        ({"If_Match": '"7"'}, MODULES, (400, "BAD_REQUEST")),
        ({"Idempotency_Key": "a b"}, MODULES, (400, "BAD_REQUEST")),
        ({"Content_Type": "multipart/form-data"}, MODULES, (400, "BAD_REQUEST")),
        ({"Content_Type": f"multipart/form-data; boundary={'x' * 71}"}, MODULES, (400, "BAD_REQUEST")),
        ({"Content_Type": "application/xml"}, MODULES, (415, "UNSUPPORTED_MEDIA_TYPE")),
        ({"Content_Encoding": "gzip"}, MODULES, (415, "UNSUPPORTED_MEDIA_TYPE")),
        ({"Content_Length": "9999999999"}, MODULES, (413, "BODY_TOO_LARGE")),
        ({}, f"{MODULES}?replase=true", (400, "UNKNOWN_FIELD")),
        ({}, f"{MODULES}?replace=perhaps", (400, "INVALID_FIELD")),
    ]
    for headers, target, expected in refusals:
        given = {"Content_Type": form, "Content_Length": "1000", **headers}
        async with raw_call(rig, "POST", target, **given) as call:
            status, _, body = await call.answer()  # not a byte of the body was sent
        assert (status, body["error"]["code"]) == expected, headers


async def test_an_archive_larger_than_it_may_be_is_cut_off(client: httpx.AsyncClient, rig: Rig) -> None:
    limit = rig.modules.max_archive_bytes
    answer = await post(client, b"x" * (limit + 1))
    assert error(answer) == (413, "BODY_TOO_LARGE")
    assert left(rig) == []


async def test_a_caller_that_hangs_up_in_the_middle_leaves_nothing(rig: Rig) -> None:
    headers = {"Content_Type": "multipart/form-data; boundary=x", "Content_Length": "100000"}
    async with raw_call(rig, "POST", MODULES, **headers) as call:
        await call.send(b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc')
        await eventually(lambda: len(left(rig)) == 1)
        call.drop()
    await eventually(lambda: left(rig) == [])
    await eventually(lambda: len(rig.leading.uploads) == 0)


async def test_a_caller_that_stops_sending_is_given_up(data: pathlib.Path) -> None:
    headers = {"Content_Type": "multipart/form-data; boundary=x", "Content_Length": "100000"}
    async with http_rig(data, upload_idle_seconds=0.2) as rig:
        async with raw_call(rig, "POST", MODULES, **headers) as call:
            await call.send(b"--x\r\n")
            status, _, body = await call.answer()
        assert (status, body["error"]["code"]) == (400, "BAD_REQUEST")
        assert left(rig) == []


@pytest.mark.trap("T25")
async def test_a_token_that_is_revoked_ends_its_upload_at_once(rig: Rig) -> None:
    id, admin = await rig.token(Role.ADMIN)
    headers = {"Content_Type": "application/zip", "Content_Length": "1000"}
    async with raw_call(rig, "POST", MODULES, token=admin, **headers) as call:
        await call.send(b"x" * 500)
        await eventually(lambda: len(left(rig)) == 1)
        async with rig.client() as client:
            await client.delete(f"/api/v1/tokens/{id}")
        async with asyncio.timeout(2):
            status, _, body = await call.answer()
    assert (status, body["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert left(rig) == []


async def test_a_signature_travels_with_the_archive(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    key = new_key()
    (tmp_path / "trust.pem").write_bytes(key.public_pem)
    archive = module_zip()
    (tmp_path / "m.zip").write_bytes(archive)
    signature = sign_keyed(tmp_path / "m.zip", key.private_pem)
    signing = SigningSection(required=True, mode="keyed", trust_root=str(tmp_path / "trust.pem"))
    async with http_rig(data, modules=ModulesSection(signing=signing)) as rig, rig.client() as client:
        assert error(await post(client, archive)) == (422, "SIGNATURE_VERIFICATION_FAILED")
        foreign = sign_keyed(tmp_path / "m.zip", new_key().private_pem)
        bad = await post(client, archive, signature=("m.zip.sig", foreign))
        assert error(bad) == (422, "SIGNATURE_VERIFICATION_FAILED")
        assert (await client.get(MODULES)).json()["items"] == []
        assert await rig.store.blobs.blob_stamps(limit=100) == []
        for name in ("m.zip.sig", "whatever"):
            good = await post(client, archive, signature=(name, signature))
            assert good.status_code in (200, 201), good.text
        assert good.json()["signature"]["kind"] == "sig"
        assert error(await post(client, archive, signature=("m.zip.sig", b" "))) == (400, "INVALID_FIELD")


# --- pages ---------------------------------------------------------------------------------------

PAGE = {
    "frontend/index.html": b"<script src=app.js></script>",
    "frontend/app.js": b"1",
    "frontend/deep/x.css": b"a{}",
    "secret.txt": b"geheim",
}
FRONTEND = {"entry": "index.html", "title": "A page", "nav": "Tools"}


async def test_a_page_is_served_from_the_archive(client: httpx.AsyncClient, rig: Rig) -> None:
    shape = await rig.install(module_zip(files=PAGE, frontend=FRONTEND))
    assert (shape["frontend"]["title"], shape["frontend"]["entry"]) == ("A page", "index.html")
    page = await client.get(shape["frontend"]["url"])
    assert (page.status_code, page.content) == (200, PAGE["frontend/index.html"])
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "immutable" in page.headers["cache-control"]
    (policy,) = page.headers.get_list("content-security-policy")
    assert "sandbox" in policy
    assert "allow-same-origin" not in policy
    script = await client.get(f"{PLAIN}/frontend/app.js")
    assert script.headers["cache-control"] == "private, no-cache"
    assert script.headers["content-type"].startswith("text/javascript")
    tag = script.headers["etag"]
    assert tag == f'"{hashlib.sha256(b"1").hexdigest()}"'
    held = await client.get(f"{PLAIN}/frontend/app.js", headers={"If-None-Match": f'"x", W/{tag}'})
    assert (held.status_code, held.content, held.headers["etag"]) == (304, b"", tag)
    kept = await client.get(f"{PLAIN}/frontend/app.js", params={"v": tag.strip('"')})
    assert "immutable" in kept.headers["cache-control"]
    stale = await client.get(f"{PLAIN}/frontend/app.js", params={"v": "0" * 64})
    assert "immutable" not in stale.headers["cache-control"]
    assert (await client.get(f"{PLAIN}/frontend/deep/x.css")).text == "a{}"
    assert (await client.head(f"{PLAIN}/frontend/app.js")).headers["content-length"] == "1"


async def test_no_path_leads_out_of_the_page(rig: Rig) -> None:
    await rig.install(module_zip(files=PAGE, frontend=FRONTEND))
    for path in [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "deep/../../secret.txt",
        "//etc/passwd",
        "%2fetc/passwd",
        "deep",
        "index.html/",
        "none.js",
        "a%00b",
        "..%5csecret.txt",
        "%ff",
    ]:
        async with raw_call(rig, "GET", f"{PLAIN}/frontend/{path}") as call:
            status, _, body = await call.answer()
        assert (status, body["error"]["code"]) == (404, "NOT_FOUND"), path


async def test_a_page_goes_with_its_module_and_needs_what_it_says(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    guarded = {**FRONTEND, "permissions": ["tokens.manage"]}
    await rig.install(module_zip(files=PAGE, frontend=guarded))
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        assert error(await looking.get(f"{PLAIN}/frontend/index.html")) == (403, "FORBIDDEN")
    assert (await client.get(f"{PLAIN}/frontend/")).status_code == 200, "the entry"
    await rig.install(module_zip(version="1.1.0"))
    assert error(await client.get(f"{PLAIN}/frontend/index.html")) == (404, "NOT_FOUND")
    await client.delete(PLAIN)
    assert error(await client.get(f"{PLAIN}/frontend/index.html")) == (404, "NOT_FOUND")


# --- the table -----------------------------------------------------------------------------------


def test_every_fixed_name_beneath_a_module_is_reserved() -> None:
    fixed = {route.path.split("/")[5] for route in ROUTES if route.path.startswith(f"{MODULES}/{{id}}/")}
    assert {name for name in fixed if not name.startswith("{")} <= RESERVED_SEGMENTS


def test_relays_come_after_everything_that_they_would_hide() -> None:
    names = [route.path for route in ROUTES if route.path.startswith(f"{MODULES}/{{id}}/")]
    assert names[-5:] == [f"{MODULES}/{{id}}/{{path}}"] * 5
    assert len([route for route in ROUTES if isinstance(route, Relay)]) == 5
    assert len([route for route in ROUTES if isinstance(route, FormUpload) and not route.bare]) == 2


@pytest.mark.trap("T81")
async def test_a_controller_without_modules_says_so_and_lets_them_be_removed(data: pathlib.Path) -> None:
    async with http_rig(data) as rig, rig.client() as client:
        await rig.install(module_zip())
    async with http_rig(data, modules=ModulesSection(enabled=False)) as rig, rig.client() as client:

        async def standing() -> tuple[str, str, object]:
            (shown,) = (await client.get(MODULES)).json()["items"]
            return shown["phase"], shown["reason"], (await client.get(PLAIN)).json()["live"]

        await eventually(lambda: rig.modules.find("plain").reason == "modules_disabled")
        assert await standing() == ("INSTALLED", "modules_disabled", None)
        (note,) = (await client.get("/ready")).json()["notes"]
        assert "modules are switched off" in note
        assert (await client.delete(PLAIN)).status_code == 204


async def test_why_tells_the_phase_of_a_module_and_what_it_waits_for(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.install(
        module_zip("taker", capabilities={"requires": [{"id": "test.none", "optional": False}]})
    )
    told = (await client.get(f"{MODULES}/taker/why")).json()
    assert (told["subject"], told["state"]) == ("module/taker", "WAITING")
    assert "it waits for capability 'test.none'" in told["summary"]
    assert [each["condition"] for each in told["would_change"]] == ["a module provides 'test.none'"]
    assert {each["topic"] for each in told["now"]} == {"phase", "waiting"}
    assert told["chain"][-1]["kind"] == "phase"
    await rig.install(module_zip())
    well = (await client.get(f"{PLAIN}/why")).json()
    assert (well["state"], well["would_change"]) == ("ACTIVE", [])
    await client.post(f"{PLAIN}/deactivate")
    held = (await client.get(f"{PLAIN}/why")).json()
    assert [each["condition"] for each in held["would_change"]] == ["corral module activate plain"]
