"""`corral template`, `catalog`, `node cache|prewarm`, `instance plan|save`: what they send and what people read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from stand_in_controller import File, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]

TEMPLATE: dict[str, Any] = {
    "name": "games/lobby",
    "group": "games",
    "version": 3,
    "versions": 3,
    "hash": "ab" * 32,
    "files": 2,
    "size": 5_242_880,
    "settings": {"description": "", "parents": ["base"], "variables": {"MOTD": "hi"}, "substitute": []},
    "note": "more bots",
    "used_by": ["lobby"],
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "revision": 9,
}
ENTRY: dict[str, Any] = {
    "id": "paper/1.21",
    "platform": "paper",
    "version": "1.21",
    "file": "paper.jar",
    "url": "",
    "sha256": "cd" * 32,
    "size": 1024,
    "category": "server",
    "config_format": "paper",
    "description": "",
    "updated_at": "2026-01-01T00:00:00Z",
}
PLACE = "/api/v1/templates/games/lobby"


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "tree"
    (root / "config").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "config" / "a.yml").write_text("port: %PORT%\n")
    (root / "start.sh").write_text("#!/bin/sh\n")
    (root / "start.sh").chmod(0o755)
    return root


def test_templates_are_listed_and_shown_under_every_usual_word(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/templates"] = (200, {"items": [TEMPLATE], "next": None})
    server.answers["GET", PLACE] = (200, TEMPLATE)
    listed = corral("template", "list", "--prefix", "games/").stdout.splitlines()
    assert listed[1].split()[:5] == ["games/lobby", "3", "2", "5.0", "MiB"]
    assert server.requests[-1].query["prefix"] == "games/"
    for verb in ("show", "get", "info"):
        shown = corral("template", verb, "games/lobby")
        assert "MOTD=hi" in shown.stdout, shown.stderr
    assert json.loads(corral("template", "show", "games/lobby", "-o", "json").stdout) == TEMPLATE


def test_a_directory_is_packed_the_same_way_each_time_and_uploaded(
    corral: Corral, server: StandIn, tree: pathlib.Path
) -> None:
    server.answers["PUT", PLACE] = (201, {**TEMPLATE, "unchanged": False})
    done = corral("template", "upload", "games/lobby", str(tree), "--note", "more bots")
    assert done.stdout == "template 'games/lobby' is at version 3 with 2 files\n", done.stderr
    sent = server.requests[-1]
    assert sent.query["note"] == "more bots"
    assert sent.headers["Content-Type"] == "application/gzip"
    assert "Idempotency-Key" in sent.headers
    os.utime(tree / "start.sh", (1, 1))
    corral("template", "import", "games/lobby", str(tree))
    assert gzip.decompress(server.requests[-1].body) == gzip.decompress(sent.body)
    with tarfile.open(fileobj=io.BytesIO(sent.body)) as tar:
        assert sorted(tar.getnames()) == ["config", "config/a.yml", "empty", "start.sh"]
        assert tar.getmember("start.sh").mode == 0o755


def test_archives_are_uploaded_as_they_are(corral: Corral, server: StandIn, tmp_path: pathlib.Path) -> None:
    server.answers["PUT", "/api/v1/templates/base"] = (200, {**TEMPLATE, "name": "base", "unchanged": True})
    archive = tmp_path / "base.zip"
    with zipfile.ZipFile(archive, "w") as zip:
        zip.writestr("a.txt", "a")
    done = corral("template", "upload", "base", str(archive))
    assert done.stdout == "template 'base' is at version 3, as before\n", done.stderr
    assert server.requests[-1].body == archive.read_bytes()
    assert server.requests[-1].headers["Content-Type"] == "application/zip"


def test_a_plain_tar_is_an_archive_too(corral: Corral, server: StandIn, tree: pathlib.Path) -> None:
    server.answers["PUT", "/api/v1/templates/base"] = (200, {**TEMPLATE, "unchanged": False})
    archive = tree.parent / "base.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, ".")
    assert corral("template", "upload", "base", str(archive)).returncode == 0
    assert server.requests[-1].body == archive.read_bytes()
    assert server.requests[-1].headers["Content-Type"] == "application/x-tar"


def test_an_upload_that_is_answered_early_is_not_sent_to_its_end(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.early[f"{PLACE}/-/files/world"] = refused(413, "BODY_TOO_LARGE", "it is too large")
    world = tmp_path / "world"
    with world.open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    done = corral("template", "put", "games/lobby", "world", str(world))
    assert (done.returncode, done.stderr) == (1, "error: it is too large\n")
    assert server.discarded < world.stat().st_size / 2


def test_what_cannot_be_a_template_is_refused_before_anything_is_sent(
    corral: Corral, server: StandIn, tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tree / "link").symlink_to("/etc/passwd")
    linked = corral("template", "upload", "base", str(tree))
    assert (linked.returncode, "link is a symbolic link" in linked.stderr) == (1, True)
    text = tmp_path / "a.txt"
    text.write_text("no archive")
    assert corral("template", "upload", "base", str(text)).returncode == 2
    assert "neither a tar.gz, a tar nor a zip" in corral("template", "upload", "base", str(text)).stderr
    assert corral("template", "upload", "base", str(tmp_path / "nowhere")).returncode == 2
    assert corral("template", "upload", "a/b/c", str(tree)).returncode == 2
    assert server.requests == []


def test_a_refusal_that_comes_before_all_is_sent_is_told(
    corral: Corral, server: StandIn, tree: pathlib.Path
) -> None:
    server.answers["PUT", "/api/v1/templates/base"] = refused(
        413, "ARCHIVE_TOO_LARGE", "the tree is larger than 1 GiB", hint="leave something out"
    )
    done = corral("template", "upload", "base", str(tree))
    assert done.returncode == 1
    assert done.stderr == "error: the tree is larger than 1 GiB\nhint: leave something out\n"


def test_files_are_listed_read_put_and_removed(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    file = {"path": "config/a b.yml", "mode": "0644", "size": 5, "digest": "ef" * 32}
    server.answers["GET", f"{PLACE}/-/files"] = (200, {"items": [file], "next": None})
    at = f"{PLACE}/-/files/config/a%20b.yml"
    server.answers["GET", at] = File(b"a: 1\n")
    server.answers["PUT", at] = server.answers["DELETE", at] = (200, TEMPLATE)
    assert "config/a b.yml" in corral("template", "files", "games/lobby", "--version", "2").stdout
    assert server.requests[-1].query == {"version": "2", "limit": "500"}
    assert corral("template", "cat", "games/lobby", "config/a b.yml").stdout == "a: 1\n"
    source = tmp_path / "new"
    source.write_bytes(b"\0\xff")
    done = corral("template", "put", "games/lobby", "config/a b.yml", str(source), "--mode", "755")
    assert done.stdout == "template 'games/lobby' is at version 3\n", done.stderr
    assert (server.requests[-1].body, server.requests[-1].query["mode"]) == (b"\0\xff", "755")
    assert corral("template", "rm", "games/lobby", "config/a b.yml").returncode == 0
    assert server.requests[-1].method == "DELETE"


def test_an_edited_file_becomes_a_version_and_one_left_alone_does_not(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    at = f"{PLACE}/-/files/motd.txt"
    server.answers["GET", PLACE] = (200, TEMPLATE)
    server.answers["GET", at] = File(b"hello\n")
    server.answers["PUT", at] = (200, TEMPLATE)
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\necho changed >> "$1"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert (
        corral("template", "edit", "games/lobby", "motd.txt", VISUAL="true").stdout == "nothing was changed\n"
    )
    assert corral("template", "edit", "games/lobby", "motd.txt", VISUAL="false").returncode == 1
    unreadable = corral("template", "edit", "games/lobby", "motd.txt", VISUAL="'")
    assert (unreadable.returncode, "set EDITOR" in unreadable.stderr) == (1, True), unreadable.stderr
    assert all(request.method == "GET" for request in server.requests)
    done = corral("template", "edit", "games/lobby", "motd.txt", VISUAL=None, EDITOR=str(script))
    assert done.returncode == 0, done.stderr
    assert server.requests[-1].body == b"hello\nchanged\n"
    assert server.requests[-1].headers["If-Match"] == f'"{TEMPLATE["revision"]}"'
    server.answers["PUT", at] = refused(412, "REVISION_MISMATCH", "the revision is 12 now")
    lost = corral(
        "template", "edit", "games/lobby", "motd.txt", VISUAL=None, EDITOR=str(script), TMPDIR=str(tmp_path)
    )
    assert lost.returncode == 1
    (kept,) = tmp_path.glob("corral-kept-*/motd.txt")
    assert kept.read_bytes() == b"hello\nchanged\n"
    assert f"what you wrote is kept in {kept}" in lost.stderr


def test_an_export_is_saved_whole_or_not_at_all(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / "out.zip"
    server.answers["GET", f"{PLACE}/-/export"] = File(b"PK...", kind="application/zip")
    assert corral("template", "export", "games/lobby", str(target), "--version", "2").returncode == 0
    assert target.read_bytes() == b"PK..."
    assert server.requests[-1].query == {"version": "2", "format": "zip"}
    server.answers["GET", f"{PLACE}/-/export"] = File(b"PK.", cut=True)
    broken = corral("template", "export", "games/lobby", str(target))
    assert (broken.returncode, "broke off" in broken.stderr) == (1, True)
    assert target.read_bytes() == b"PK..."
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["out.zip"]


def test_versions_differences_rollbacks_settings_and_deletion(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["GET", f"{PLACE}/-/versions"] = (
        200,
        {"items": [{"number": 3, "current": True, "hash": "ab" * 32, "note": "n"}], "next": None},
    )
    change = {"path": "a", "old_size": 1, "new_size": 2, "old_mode": "0644", "new_mode": "0755"}
    server.answers["GET", f"{PLACE}/-/diff"] = (200, {"added": [], "removed": [], "changed": [change]})
    server.answers["POST", f"{PLACE}/-/rollback"] = (200, {**TEMPLATE, "version": 2})
    server.answers["PATCH", PLACE] = (200, {**TEMPLATE, "version": 4})
    server.answers["DELETE", PLACE] = (204, None)
    assert "*" in corral("template", "versions", "games/lobby").stdout
    assert "1 B, 0644" in corral("template", "diff", "games/lobby", "2", "3").stdout
    assert server.requests[-1].query == {"from": "2", "to": "3"}
    assert "at version 2" in corral("template", "rollback", "games/lobby", "2").stdout
    done = corral(
        "template", "set", "games/lobby", "--parent", "base", "--var", "A=b=c", "--substitute", "*.yml"
    )
    assert "at version 4" in done.stdout, done.stderr
    settings = {"parents": ["base"], "variables": {"A": "b=c"}, "substitute": ["*.yml"]}
    assert server.requests[-1].body == {"settings": settings}
    assert corral("template", "set", "games/lobby").returncode == 2
    assert corral("template", "set", "games/lobby", "--var", "A").returncode == 2
    assert corral("template", "delete", "games/lobby").returncode == 2  # nobody to ask
    assert corral("template", "delete", "games/lobby", "--yes").returncode == 0


def test_sync_answers_for_each_node_and_fails_when_one_does(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/templates"] = (
        200,
        {"items": [TEMPLATE, {**TEMPLATE, "name": "base"}], "next": None},
    )
    server.answers["POST", f"{PLACE}/-/sync"] = (
        200,
        {"items": [{"node": "n1", "ok": True}, {"node": "n2", "ok": False, "message": "n2 is not there"}]},
    )
    done = corral("template", "sync", "games/*", "--node", "n1", "--node", "n2")
    assert done.returncode == 1
    assert "in its cache" in done.stdout
    assert "n2 is not there" in done.stdout
    assert server.requests[-1].body == {"nodes": ["n1", "n2"]}
    assert corral("template", "sync", "nothing*").returncode == 1


def test_the_catalog_takes_urls_with_digests_and_files(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["GET", "/api/v1/catalog"] = (200, {"items": [ENTRY], "next": None})
    server.answers["GET", "/api/v1/catalog/paper/1.21"] = (200, ENTRY)
    server.answers["PUT", "/api/v1/catalog/paper/1.21"] = (200, ENTRY)
    server.answers["PUT", "/api/v1/catalog/paper/1.21/file"] = (200, ENTRY)
    server.answers["DELETE", "/api/v1/catalog/paper/1.21"] = (204, None)
    assert "uploaded" in corral("catalog", "list").stdout
    assert "paper.jar" in corral("catalog", "show", "paper", "1.21").stdout
    assert corral("catalog", "show", "paper", "1.21", "-o", "name").stdout == "paper/1.21\n"
    del server.answers["GET", "/api/v1/catalog/paper/1.21"]
    assert corral("catalog", "add", "paper", "1.21", "--from", "https://x.example/p.jar").returncode == 2
    assert corral("catalog", "add", "paper", "1.21").returncode == 2
    url = ("--from", "https://x.example/p.jar", "--sha256", "CD" * 32, "--config-format", "paper")
    assert corral("catalog", "add", "paper", "1.21", *url).returncode == 0
    assert server.requests[-1].body == {
        "file": "p.jar",
        "url": "https://x.example/p.jar",
        "sha256": "cd" * 32,
        "config_format": "paper",
    }
    bare = ("--from", "https://x.example/", "--sha256", "cd" * 32)
    assert "--name" in corral("catalog", "add", "paper", "1.21", *bare).stderr
    for verb in (("list",), ("add", "paper", "1.21", *url)):
        assert corral("catalog", *verb, "-o", "name").stdout == "paper/1.21\n"
    jar = tmp_path / "server.jar"
    jar.write_bytes(b"jar")
    assert (
        corral("catalog", "add", "paper", "1.21", "--file", str(jar), "--sha256", "00" * 32).returncode == 2
    )
    done = corral("catalog", "add", "paper", "1.21", "--file", str(jar))
    assert done.stdout == "'paper 1.21' is in the catalog as paper.jar\n", done.stderr
    digest = hashlib.sha256(b"jar").hexdigest()
    assert server.requests[-1].query == {"name": "server.jar", "sha256": digest}
    assert server.requests[-1].body == b"jar"
    server.answers["GET", "/api/v1/catalog/paper/1.21"] = (200, ENTRY)
    again = corral("catalog", "add", "paper", "1.21", "--file", str(jar))
    assert (again.returncode, "--replace" in again.stderr) == (1, True)
    assert server.requests[-1].method == "GET"
    assert corral("catalog", "add", "paper", "1.21", "--file", str(jar), "--replace").returncode == 0
    assert corral("catalog", "remove", "paper", "1.21", "--yes").returncode == 0
    assert corral("catalog", "delete", "paper", "1.21", "--yes").returncode == 0


def test_the_cache_of_a_node_is_shown_and_warmed(corral: Corral, server: StandIn) -> None:
    report = {
        "node": "web-1",
        "total_bytes": 2048,
        "quota_bytes": 1_073_741_824,
        "templates": [{"name": "base", "hash": "ab" * 32, "version": 3, "size": 1024, "last_used": None}],
        "artifacts": [
            {"platform": "paper", "version": "1.21", "file": "p.jar", "size": 1024, "sha256": "cd"}
        ],
        "bootstraps": [],
        "failures": [],
    }
    server.answers["GET", "/api/v1/nodes/web-1/cache"] = (200, report)
    server.answers["POST", "/api/v1/nodes/web-1/cache/prewarm"] = (200, report)
    shown = corral("node", "cache", "web-1").stdout
    assert "template" in shown
    assert "2.0 KiB of 1.0 GiB" in shown
    for verb in ("cache", "prewarm"):
        assert json.loads(corral("node", verb, "web-1", "-o", "json").stdout) == report
    done = corral("node", "prewarm", "web-1", "--group", "lobby")
    assert (done.returncode, "warm" in done.stdout) == (0, True), done.stderr
    assert server.requests[-1].body == {"group": "lobby"}
    failed = {**report, "failures": [{"subject": "template/base", "code": "TIMEOUT", "message": "too slow"}]}
    server.answers["POST", "/api/v1/nodes/cache/prewarm"] = (200, {"items": [failed]})
    done = corral("node", "prewarm", "--all")
    assert (done.returncode, "too slow" in done.stdout) == (1, True)
    assert corral("node", "prewarm").returncode == 2
    assert corral("node", "prewarm", "web-1", "--all").returncode == 2


def test_an_instance_shows_its_plan_is_saved_and_started_with_variables(
    corral: Corral, server: StandIn
) -> None:
    at = "/api/v1/instances/lobby-1"
    server.answers["GET", f"{at}/plan"] = (200, {"hash": "ab", "plan": {"group": "lobby", "templates": []}})
    server.answers["POST", f"{at}/save"] = (200, TEMPLATE)
    server.answers["POST", "/api/v1/instances"] = (
        201,
        {"id": "lobby-1", "state": "SCHEDULED", "node": "n1"},
    )
    assert "lobby" in corral("instance", "plan", "lobby-1").stdout
    done = corral("instance", "save", "lobby-1", "games/lobby", "--path", "world/**", "--merge")
    assert done.stdout == "template 'games/lobby' is at version 3 with 2 files\n", done.stderr
    assert server.requests[-1].body == {
        "template": "games/lobby",
        "paths": ["world/**"],
        "merge": True,
        "note": "",
    }
    assert corral("instance", "save", "lobby-1", "games/lobby").returncode == 2
    assert corral("instance", "start", "lobby", "--var", "MAP=city").returncode == 0
    assert server.requests[-1].body == {"group": "lobby", "variables": {"MAP": "city"}}
