"""`corral instance push|pull`: nothing is replaced, here or there, that was not compared or named."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest
import yaml
from stand_in_controller import Answer, Request, StandIn, refused
from stand_in_directory import AT, LOG, Directory, archive, sha256

Corral = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def source(scratch: pathlib.Path) -> pathlib.Path:
    made = scratch / "source"
    made.mkdir()
    return made


def writes(server: StandIn) -> dict[str, tuple[str | None, str | None]]:
    """What each write required: If-Match, If-None-Match."""
    return {
        each.query["path"]: (each.headers.get("If-Match"), each.headers.get("If-None-Match"))
        for each in server.requests
        if each.method == "PUT"
    }


@pytest.mark.parametrize("stat_digests", [1 << 30, 4], ids=["of the size of a stat", "larger than that"])
def test_a_large_file_is_compared_and_replaced_only_by_its_digest(
    corral: Corral, server: StandIn, source: pathlib.Path, stat_digests: int
) -> None:
    there = Directory(server, same=b"large, the same", other=b"large, old", size=b"of another size")
    there.listed_digests, there.stat_digests = 4, stat_digests
    for name, content in (("same", b"large, the same"), ("other", b"large, new"), ("size", b"longer" * 9)):
        (source / name).write_bytes(content)
    pushed = corral("instance", "push", "lobby-1", str(source), ".")
    assert "2 files sent, 1 as before" in pushed.stdout, pushed.stderr
    assert writes(server) == {
        "other": (f'"{sha256(b"large, old")}"', None),
        "size": (f'"{sha256(b"of another size")}"', None),
    }
    assert there.files["size"] == b"longer" * 9


def test_a_large_file_that_was_changed_since_it_was_listed_is_not_replaced(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server, world=b"large, old")
    there.listed_digests = there.stat_digests = 4
    listing = server.answers["GET", AT]

    def listed(request: Request) -> Answer:
        answer: Answer = listing(request)
        there.files["world"] = b"large, and saved by the server"
        return answer

    server.answers["GET", AT] = listed
    (source / "world").write_bytes(b"large, new")
    push = ("instance", "push", "lobby-1", str(source), ".")
    failed = corral(*push)
    assert failed.returncode == 1
    assert "was changed there meanwhile" in failed.stderr
    assert there.files["world"] == b"large, and saved by the server"
    assert corral(*push, "--force").returncode == 0
    assert there.files["world"] == b"large, new"


def test_a_file_too_large_to_be_compared_is_replaced_only_by_force(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server, world=b"large, old")
    there.listed_digests = there.stat_digests = there.most = 4
    (source / "world").write_bytes(b"large, new")
    push = ("instance", "push", "lobby-1", str(source), ".")
    failed = corral(*push)
    assert failed.returncode == 1
    assert "--force writes over it unseen" in failed.stderr
    assert there.files["world"] == b"large, old"
    assert corral(*push, "--force").returncode == 0
    assert there.files["world"] == b"large, new"


def test_one_file_is_pushed_over_what_was_there_when_the_push_began(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server, conf=b"old")
    (source / "conf").write_bytes(b"new")
    push = ("instance", "push", "lobby-1", str(source / "conf"))
    there.meanwhile = lambda: there.files.update(conf=b"server's")
    assert corral(*push).returncode == 1
    assert there.files["conf"] == b"server's"
    assert "is written" in corral(*push).stdout
    assert "as before" in corral(*push).stdout
    assert "is written" in corral(*push, "first").stdout
    assert writes(server)["first"] == (None, "*")
    refusal = corral("instance", "push", "lobby-1", "/dev/null", "conf")
    assert (refusal.returncode, there.files["conf"]) == (2, b"new"), refusal.stderr


def test_a_push_that_ends_early_says_how_far_it_got(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server, a=b"as before")
    write = server.answers["PUT", f"{AT}/content"]
    server.answers["PUT", f"{AT}/content"] = lambda request: (
        refused(503, "NODE_OFFLINE", "it is away") if request.query["path"] == "c" else write(request)
    )
    for name, content in (("a", b"as before"), ("b", b"new"), ("c", b"new")):
        (source / name).write_bytes(content)
    failed = corral("instance", "push", "lobby-1", str(source), ".")
    assert failed.returncode == 1
    assert "until then 1 file sent, 1 as before; the same command goes on" in failed.stderr
    assert there.files == {"a": b"as before", "b": b"new"}


def test_nothing_is_pushed_of_a_directory_that_cannot_be_read_as_a_whole(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    """Not even the superuser can name a path of more than 4,096 bytes."""
    there = Directory(server)
    (source / "a").write_bytes(b"readable")
    here = os.open(source, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    failed = corral("instance", "push", "lobby-1", str(source), ".")
    assert failed.returncode == 1
    assert "cannot read" in failed.stderr
    assert there.files == {}


def test_files_here_are_replaced_by_a_pull_only_if_that_is_said(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    Directory(server, conf=b"theirs")
    (scratch / "conf").write_bytes(b"mine")
    pull = ("instance", "pull", "lobby-1", "conf", str(scratch))
    failed = corral(*pull)
    assert failed.returncode == 2
    assert "--replace" in failed.stderr
    assert (scratch / "conf").read_bytes() == b"mine"
    assert corral(*pull, "--replace").returncode == 0
    assert (scratch / "conf").read_bytes() == b"theirs"
    assert corral(*pull).returncode == 0, "nothing differs"

    server.answers["GET", f"{AT}/archive"] = archive("conf", "new", "same")
    (scratch / "same").write_bytes(b"x")
    pull = ("instance", "pull", "lobby-1", ".", str(scratch))
    failed = corral(*pull)
    assert failed.returncode == 2
    assert f"1 file here with another content: {scratch / 'conf'}" in failed.stderr
    assert not (scratch / "new").exists()
    assert corral(*pull, "--replace").returncode == 0
    assert (scratch / "conf").read_bytes() == b"x"


def test_a_pull_names_what_it_leaves_out(corral: Corral, server: StandIn, scratch: pathlib.Path) -> None:
    Directory(server)
    server.answers["GET", f"{AT}/stat"] = (200, {**LOG, "path": "world", "kind": "directory"})
    listing = [
        {**LOG, "path": f"world/{name}", "kind": kind}
        for name, kind in (("a", "file"), ("link", "link"), ("sub", "directory"), ("twin", "file"))
    ]
    server.answers["GET", AT] = (200, {"items": listing, "truncated": False, "next": None})
    server.answers["GET", f"{AT}/archive"] = archive("a")
    pulled = corral("instance", "pull", "lobby-1", "world", str(scratch / "out"), "-o", "json")
    assert json.loads(pulled.stdout)["left_out"] == ["link", "twin"]
    assert "2 entries left out" in pulled.stderr
    assert "link, twin" in pulled.stderr


def test_what_cannot_be_written_keeps_nothing_else_from_being_pushed(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server)
    for name in (b"back\\slash", b"caf\xe9", b"first", b"last", b"line\nbreak"):
        (source / os.fsdecode(name)).write_bytes(b"new")
    push = ("instance", "push", "lobby-1", str(source), ".")
    failed = corral(*push)
    assert failed.returncode == 1
    assert "2 files sent, 0 as before; not written: back" in failed.stderr
    assert "error: 3 entries were not written" in failed.stderr
    assert there.files == {"first": b"new", "last": b"new"}


def test_a_file_that_is_saved_all_the_time_is_named_with_the_way_out(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    there = Directory(server, hot=b"0", last=b"0")
    write = server.answers["PUT", f"{AT}/content"]

    def saved(request: Request) -> Answer:
        there.files["hot"] += b"1"
        return write(request)

    server.answers["PUT", f"{AT}/content"] = saved
    for name in ("hot", "last"):
        (source / name).write_bytes(b"new")
    push = ("instance", "push", "lobby-1", str(source), ".")
    failed = corral(*push)
    assert failed.returncode == 1
    assert "1 file sent, 0 as before; not written: hot" in failed.stderr
    assert "hint: --force also writes over what changes meanwhile" in failed.stderr
    assert (there.files["hot"][:1], there.files["last"]) == (b"0", b"new")
    assert corral(*push, "--force").returncode == 0
    assert there.files["hot"] == b"new"


def test_a_directory_is_pulled_whatever_a_workload_has_called_its_files(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    names = ["back\\slash", "line\nbreak", "plain"]
    server.answers["GET", AT] = (200, {"items": [], "next": None, "truncated": False})
    server.answers["GET", f"{AT}/archive"] = archive(*names)
    target = scratch / "all"
    pulled = corral("instance", "pull", "lobby-1", ".", str(target))
    assert "3 files fetched" in pulled.stdout, pulled.stderr
    assert sorted(os.listdir(target)) == names


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "."])
def test_no_name_of_an_archive_leads_out_of_the_target(
    corral: Corral, server: StandIn, scratch: pathlib.Path, name: str
) -> None:
    server.answers["GET", f"{AT}/archive"] = archive("a", name)
    failed = corral("instance", "pull", "lobby-1", ".", str(scratch / "all"))
    assert (failed.returncode, "PATH" in failed.stderr or "refused" in failed.stderr) == (1, True), failed
    assert not (scratch / "out").exists()


def test_a_pull_follows_no_link_that_lies_in_its_target(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    outside, target = scratch / "outside", scratch / "all"
    for each in (outside, target):
        each.mkdir()
    (outside / "f").write_bytes(b"mine")
    (target / "sub").symlink_to(outside)
    (target / "f").symlink_to(outside / "f")
    for name in ("sub/new", "f"):
        server.answers["GET", f"{AT}/archive"] = archive(name)
        failed = corral("instance", "pull", "lobby-1", ".", str(target), "--replace")
        assert (failed.returncode, "is a link" in failed.stderr) == (1, True), failed.stderr
    assert {each.name: each.read_bytes() for each in outside.iterdir()} == {"f": b"mine"}


def test_an_archive_with_one_name_twice_and_a_list_without_end_are_refused(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    server.answers["GET", f"{AT}/archive"] = archive("a", "a")
    pull = ("instance", "pull", "lobby-1", ".", str(scratch / "all"))
    failed = corral(*pull)
    assert (failed.returncode, "twice" in failed.stderr) == (1, True)
    assert "until then 1 file fetched" in failed.stderr
    server.answers["GET", f"{AT}/archive"] = archive("a")
    server.answers["GET", AT] = (200, {"items": [LOG], "next": "same", "truncated": True})
    endless = corral(*pull, "--replace")
    assert (endless.returncode, "does not end" in endless.stderr) == (1, True)


def test_a_name_that_is_no_utf8_is_wrong_usage(corral: Corral, server: StandIn) -> None:
    Directory(server)
    failed = corral("instance", "cat", "lobby-1", os.fsdecode(b"caf\xe9"))
    assert (failed.returncode, "is no UTF-8" in failed.stderr) == (2, True), failed.stderr


def test_a_page_of_files_says_to_programs_that_there_are_more(corral: Corral, server: StandIn) -> None:
    Directory(server, a=b"", b=b"", c=b"")
    page = json.loads(corral("instance", "files", "lobby-1", "-o", "json").stdout)
    assert (len(page["items"]), page["next"]) == (2, "b")
    whole = json.loads(corral("instance", "files", "lobby-1", "--all", "-o", "json").stdout)
    assert (len(whole["items"]), whole["next"]) == (3, None)


def test_documents_hold_nothing_that_steers_a_terminal(corral: Corral, server: StandIn) -> None:
    name = "a\x9b31m\u202egnp\x1b[2J ä"
    server.answers["GET", AT] = (200, {"items": [{**LOG, "path": name}], "next": None, "truncated": False})
    for form in ("json", "yaml"):
        shown = corral("instance", "files", "lobby-1", "-o", form).stdout
        assert shown.replace("\n", "").isprintable(), form
        read = json.loads(shown) if form == "json" else yaml.safe_load(shown)
        assert read["items"][0]["path"] == name
    (plain,) = json.loads(corral("instance", "files", "lobby-1", "-o", "json").stdout)["items"]
    assert "ä" in plain["path"]
