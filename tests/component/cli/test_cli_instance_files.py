"""`corral instance files|cat|put|edit|rm|mv|mkdir|pull|push`: what they send and what people read."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest
from people import Person
from stand_in_controller import File, StandIn, refused
from stand_in_directory import AT, LOG, Directory, archive, editor, sha256

from corral.cli.instance.file_edits import merge

Corral = Callable[..., subprocess.CompletedProcess[str]]

LINK = {**LOG, "path": "logs/\x1b[2Jodd", "kind": "link", "size": 3, "modified_at": None, "template": None}


def test_files_are_listed_and_what_is_left_out_is_said(corral: Corral, server: StandIn) -> None:
    server.answers["GET", AT] = (200, {"items": [LOG, LINK], "truncated": True, "next": "x"})
    shown = corral("instance", "files", "lobby-1", "logs", "--limit", "2", "--depth", "1")
    assert server.requests[-1].query == {"path": "logs", "limit": "2", "depth": "1"}
    assert "logs/latest.log" in shown.stdout
    assert "template base v14" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "more than these 2" in shown.stderr
    named = corral("instance", "files", "lobby-1", "-o", "name")
    assert named.stdout.splitlines()[0] == "logs/latest.log"
    assert json.loads(corral("instance", "files", "lobby-1", "-o", "json").stdout)["items"] == [LOG, LINK]
    assert corral("instance", "files", "lobby-1", "--limit", "10001").returncode == 2


def test_all_files_are_listed_page_by_page(corral: Corral, server: StandIn) -> None:
    Directory(server, a=b"1", b=b"2", c=b"3")
    shown = corral("instance", "files", "lobby-1", "--all", "--digests", "-o", "name")
    assert shown.stdout.split() == ["a", "b", "c"]
    assert server.requests[-1].query["digests"] == "true"


def test_a_file_goes_to_stdout_as_it_is(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{AT}/content"] = File(b"hello\n")
    read = corral("instance", "cat", "lobby-1", "logs/a b.log", "--offset", "7", "--length", "6")
    assert (read.returncode, read.stdout) == (0, "hello\n")
    assert server.requests[-1].query == {"path": "logs/a b.log", "offset": "7", "length": "6"}
    assert corral("instance", "cat", "lobby-1", "a").stdout == "hello\n"
    assert server.requests[-1].query == {"path": "a"}
    server.answers["GET", f"{AT}/content"] = File(b"hello\n", cut=True)
    broken = corral("instance", "cat", "lobby-1", "a")
    assert broken.returncode == 1
    assert "broke off" in broken.stderr


def test_a_refusal_is_said_as_it_came(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{AT}/content"] = refused(422, "PATH_REFUSED", "'x' is no regular file")
    failed = corral("instance", "cat", "lobby-1", "x")
    assert failed.returncode != 0
    assert "no regular file" in failed.stderr
    assert failed.stdout == ""


def test_a_file_is_put_only_over_what_was_seen(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    there = Directory(server, conf=b"one")
    (scratch / "two").write_bytes(b"two")
    put = ("instance", "put", "lobby-1", "conf", str(scratch / "two"))
    assert corral(*put, "--if-match", "none").returncode == 1
    assert corral(*put, "--if-match", sha256(b"zero")).returncode == 1
    assert there.files["conf"] == b"one"
    done = corral(*put, "--if-match", sha256(b"one"), "-o", "json")
    assert json.loads(done.stdout)["digest"] == sha256(b"two")
    assert there.files["conf"] == b"two"


def test_a_file_that_cannot_be_read_here_is_answered_with_the_order_of_both_names(
    corral: Corral, server: StandIn
) -> None:
    there = Directory(server, conf=b"one")
    failed = corral("instance", "put", "lobby-1", "/no/such/file", "conf")
    assert failed.returncode == 2
    assert "cannot read conf" in failed.stderr
    assert "path in the instance comes first, the file on this machine second" in failed.stderr
    assert there.files == {"conf": b"one"}


def test_an_edit_is_written_over_what_was_read(corral: Corral, server: StandIn) -> None:
    there = Directory(server, conf=b"one\n")
    env = {"EDITOR": editor("path.write_text('two')"), "VISUAL": ""}
    assert "is written" in corral("instance", "edit", "lobby-1", "conf", **env).stdout
    assert there.files["conf"] == b"two"
    assert server.requests[-1].headers["If-Match"] == f'"{sha256(b"one" + bytes([10]))}"'
    env = {"EDITOR": editor("pass"), "VISUAL": ""}
    assert "nothing was changed" in corral("instance", "edit", "lobby-1", "conf", **env).stdout


def test_an_edit_of_what_was_changed_meanwhile_keeps_the_text_and_says_how_to_go_on(
    corral: Corral, server: StandIn
) -> None:
    there = Directory(server, conf=b"one")
    there.meanwhile = lambda: there.files.update(conf=b"server's")
    env = {"EDITOR": editor("path.write_text('mine')"), "VISUAL": ""}
    failed = corral("instance", "edit", "lobby-1", "conf", **env)
    assert failed.returncode == 1
    assert there.files["conf"] == b"server's"
    (kept,) = (line for line in failed.stderr.splitlines() if line.startswith("what you wrote is kept in "))
    file = pathlib.Path(kept.removeprefix("what you wrote is kept in "))
    assert file.read_bytes() == b"mine"
    put = f"corral instance put lobby-1 conf {file} --if-match {sha256(b'server' + bytes([39]) + b's')}"
    assert put in failed.stderr
    assert corral(*put.split()[1:]).returncode == 0
    assert there.files["conf"] == b"mine"
    file.unlink()
    file.parent.rmdir()


def test_a_directory_is_deleted_only_after_a_yes(corral: Corral, server: StandIn) -> None:
    server.answers["POST", f"{AT}/delete"] = (200, {"path": "world", "entries": 1, "changed": True})
    assert corral("instance", "rm", "-r", "lobby-1", "world").returncode == 2
    assert server.requests == []
    assert corral("instance", "rm", "-r", "-y", "lobby-1", "world").returncode == 0
    assert server.requests[-1].body == {"path": "world", "recursive": True}
    assert corral("instance", "rm", "lobby-1", "a", "--if-match", "ab" * 32).returncode == 0
    assert server.requests[-1].body == {"path": "a", "recursive": False, "digest": "ab" * 32}


def test_names_directories_and_archives_are_changed_by_their_verbs(corral: Corral, server: StandIn) -> None:
    done = {"path": "a", "to": "b", "entries": 2, "changed": True}
    for verb in ("rename", "mkdir", "unpack"):
        server.answers["POST", f"{AT}/{verb}"] = (200, done)
    corral("instance", "mv", "lobby-1", "a", "b", "--replace")
    assert server.requests[-1].body == {"path": "a", "to": "b", "replace": True}
    corral("instance", "mkdir", "lobby-1", "a/b")
    assert server.requests[-1].body == {"path": "a/b"}
    assert "2 files" in corral("instance", "unpack", "lobby-1", "a.zip", "plugins").stdout
    assert server.requests[-1].body == {"path": "a.zip", "to": "plugins", "replace": False}


def test_only_what_differs_is_pushed(corral: Corral, server: StandIn, scratch: pathlib.Path) -> None:
    there = Directory(server, **{"p/same": b"same", "p/other": b"old", "p/theirs": b"theirs"})
    server.answers["POST", f"{AT}/mkdir"] = (200, {"path": "", "changed": True})
    source = scratch / "source"
    (source / "sub").mkdir(parents=True)
    for name, content in (("same", b"same"), ("other", b"new"), ("sub/first", b"first")):
        (source / name).write_bytes(content)
    (source / "link").symlink_to("same")
    pushed = corral("instance", "push", "lobby-1", str(source), "p")
    assert "2 files sent, 1 as before" in pushed.stdout, pushed.stderr
    assert "link is no plain file" in pushed.stderr
    assert there.files == {
        "p/same": b"same",
        "p/other": b"new",
        "p/sub/first": b"first",
        "p/theirs": b"theirs",
    }
    writes = {each.query["path"]: each.headers for each in server.requests if each.method == "PUT"}
    assert sorted(writes) == ["p/other", "p/sub/first"]
    assert writes["p/other"]["If-Match"] == f'"{sha256(b"old")}"'
    assert writes["p/sub/first"]["If-None-Match"] == "*"
    (source / "other").write_bytes(b"newer")
    there.meanwhile = lambda: there.files.update({"p/other": b"server's"})
    assert corral("instance", "push", "lobby-1", str(source), "p").returncode == 1
    assert there.files["p/other"] == b"server's"
    assert corral("instance", "push", "lobby-1", str(source / "other"), "p/other").returncode == 0
    assert there.files["p/other"] == b"newer"


def test_a_push_waits_where_there_are_too_many_requests(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    there = Directory(server)
    write, refusals = server.answers["PUT", f"{AT}/content"], [refused(429, "RATE_LIMITED", "slower")]
    server.answers["PUT", f"{AT}/content"] = lambda request: refusals.pop() if refusals else write(request)
    (scratch / "source").mkdir()
    (scratch / "source/a").write_bytes(b"content")
    pushed = corral("instance", "push", "lobby-1", str(scratch / "source"), ".")
    assert (pushed.returncode, there.files) == (0, {"a": b"content"}), pushed.stderr


def test_a_file_or_a_directory_is_pulled(corral: Corral, server: StandIn, scratch: pathlib.Path) -> None:
    Directory(server, conf=b"one")
    assert corral("instance", "pull", "lobby-1", "conf", str(scratch)).returncode == 0
    assert (scratch / "conf").read_bytes() == b"one"
    server.answers["GET", f"{AT}/stat"] = (200, {**LOG, "path": "world", "kind": "directory"})
    server.answers["GET", f"{AT}/archive"] = archive("a", "sub/b")
    pulled = corral("instance", "pull", "lobby-1", "world", str(scratch / "out"))
    assert "2 files fetched" in pulled.stdout, pulled.stderr
    assert (scratch / "out/sub/b").read_bytes() == b"x"
    server.answers["GET", f"{AT}/archive"] = archive("../escaped")
    assert corral("instance", "pull", "lobby-1", ".", str(scratch / "out")).returncode == 1
    assert not (scratch / "escaped").exists()


def test_what_is_executable_stays_so_in_both_directions(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    there = Directory(server, **{"p/run": b"run", "p/plain": b"plain", "p/secret": b"old"})
    there.modes = {"p/plain": "755", "p/secret": "600"}
    source = scratch / "source"
    source.mkdir()
    for name, content in (("run", b"run"), ("plain", b"plain"), ("secret", b"new"), ("new", b"new")):
        (source / name).write_bytes(content)
    (source / "run").chmod(0o700)
    (source / "new").chmod(0o755)
    pushed = corral("instance", "push", "lobby-1", str(source), "p")
    assert "4 files sent" in pushed.stdout, pushed.stderr
    assert there.modes == {"p/run": "755", "p/plain": "644", "p/secret": "600", "p/new": "755"}
    assert "0 files sent, 4 as before" in corral("instance", "push", "lobby-1", str(source), "p").stdout
    corral("instance", "put", "lobby-1", "tool", str(source / "run"))
    corral("instance", "put", "lobby-1", "other", str(source / "run"), "--mode", "444")
    corral("instance", "put", "lobby-1", "plain", str(source / "plain"))
    assert (there.modes["tool"], there.modes["other"], there.modes.get("plain")) == ("755", "444", None)
    assert corral("instance", "pull", "lobby-1", "tool", str(scratch / "fetched")).returncode == 0
    assert os.access(scratch / "fetched", os.X_OK)
    assert corral("instance", "pull", "lobby-1", "plain", str(scratch / "fetched-plain")).returncode == 0
    assert not os.access(scratch / "fetched-plain", os.X_OK)


def test_a_node_that_knows_no_modes_gets_the_file_and_that_is_said(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    there = Directory(server)
    there.knows_modes = False
    (scratch / "run").write_bytes(b"run")
    (scratch / "run").chmod(0o755)
    put = corral("instance", "put", "lobby-1", "run", str(scratch / "run"))
    assert put.returncode == 0, put.stderr
    assert "has not got the mode 755" in put.stderr
    assert there.files == {"run": b"run"}
    asked = corral("instance", "put", "lobby-1", "run", str(scratch / "run"), "--mode", "555")
    assert (asked.returncode, there.files) == (1, {"run": b"run"})
    assert "cannot be told the mode" in asked.stderr


def test_standard_input_is_put(corral: Corral, server: StandIn) -> None:
    there = Directory(server)
    assert corral("instance", "put", "lobby-1", "a", input="from a pipe").returncode == 0
    assert there.files == {"a": b"from a pipe"}


def test_nothing_on_standard_input_empties_no_file_unless_that_is_said(
    corral: Corral, server: StandIn
) -> None:
    there = Directory(server, conf=b"one")
    refusal = corral("instance", "put", "lobby-1", "conf", input="")
    assert refusal.returncode == 2
    assert "standard input is empty" in refusal.stderr
    assert there.files["conf"] == b"one"
    assert corral("instance", "put", "lobby-1", "conf", "-", input="").returncode == 0
    assert there.files["conf"] == b""


def test_a_file_with_another_content_than_announced_replaces_nothing(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    Directory(server, conf=b"one")
    server.answers["GET", f"{AT}/content"] = File(b"two", tag=sha256(b"one"))
    (scratch / "conf").write_bytes(b"mine")
    pulled = corral("instance", "pull", "lobby-1", "conf", str(scratch / "conf"), "--replace")
    assert pulled.returncode == 1
    assert "another content" in pulled.stderr
    assert (scratch / "conf").read_bytes() == b"mine"


def test_what_cannot_be_merged_is_between_marks_and_whole(scratch: pathlib.Path) -> None:
    mine, base, theirs = (scratch / name for name in ("mine", "base", "theirs"))
    for file in (mine, base, theirs):
        file.write_bytes(f"{file.name}\0".encode())
    merge(mine, base, theirs)
    assert mine.read_bytes() == b"<<<<<<< yours\nmine\0\n=======\ntheirs\0\n>>>>>>> theirs\n"


async def test_what_is_no_text_is_overwritten_or_kept_and_not_merged(
    server: StandIn, tmp_path: pathlib.Path
) -> None:
    there = Directory(server, conf=b"one")
    there.meanwhile = lambda: there.files.update(conf=b"two")
    script = tmp_path / "editor"
    script.write_text("#!/bin/sh\nprintf 'mine\\0' > \"$1\"\n")
    script.chmod(0o755)
    person = Person(
        tmp_path / "home",
        CORRAL_URL=server.url,
        CORRAL_TOKEN="corral_test_0123456789abcdef",
        EDITOR=str(script),
        VISUAL="",
        TMPDIR=str(tmp_path),
    )
    code, seen = await person.talk(
        "instance", "edit", "lobby-1", "conf", answers=[("overwrite it, or abort", "abort")]
    )
    assert code == 1, seen
    assert there.files["conf"] == b"two"
    assert [file.read_bytes() for file in tmp_path.glob("corral-kept-*/conf")] == [b"mine\0"]


def test_what_is_no_text_is_not_opened_in_an_editor(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    there = Directory(server, **{"region.mca": b"\0\1\2"})
    env = {"EDITOR": editor(f"pathlib.Path('{tmp_path}/opened').touch()"), "VISUAL": ""}
    refusal = corral("instance", "edit", "lobby-1", "region.mca", **env)
    assert refusal.returncode == 1
    assert "is no text" in refusal.stderr
    assert "corral instance pull lobby-1 region.mca" in refusal.stderr
    assert "corral instance put lobby-1 region.mca FILE" in refusal.stderr
    assert not (tmp_path / "opened").exists()
    assert there.files["region.mca"] == b"\0\1\2"


def test_an_edit_of_a_file_that_is_not_there_names_the_command_that_makes_one(
    corral: Corral, server: StandIn
) -> None:
    Directory(server)
    refusal = corral("instance", "edit", "lobby-1", "conf", EDITOR=editor("pass"), VISUAL="")
    assert refusal.returncode == 1
    assert "hint: a new file is written with: corral instance put lobby-1 conf FILE" in refusal.stderr


def test_without_a_terminal_and_an_editor_nothing_is_edited(corral: Corral, server: StandIn) -> None:
    there = Directory(server, conf=b"one")
    refusal = corral("instance", "edit", "lobby-1", "conf", EDITOR="", VISUAL="")
    assert refusal.returncode == 1
    assert "set EDITOR" in refusal.stderr
    assert there.files["conf"] == b"one"


def test_what_comes_through_a_named_pipe_is_put(
    corral: Corral, server: StandIn, scratch: pathlib.Path
) -> None:
    there = Directory(server)
    os.mkfifo(scratch / "pipe")
    with subprocess.Popen(["/bin/sh", "-c", 'printf content > "$0"', str(scratch / "pipe")]):
        put = corral("instance", "put", "lobby-1", "a", str(scratch / "pipe"))
    assert (put.returncode, there.files) == (0, {"a": b"content"}), put.stderr


@pytest.mark.parametrize("source", ["", "-", "/dev/stdin"])
def test_lines_of_the_console_are_not_taken_for_a_file(corral: Corral, server: StandIn, source: str) -> None:
    there = Directory(server, conf=b"one")
    shell = corral("console", input=f"instance put lobby-1 conf {source}\ninstance cat lobby-1 conf\n")
    assert shell.returncode == 2
    assert "has the lines of the console" in shell.stderr
    assert (shell.stdout, there.files) == ("one", {"conf": b"one"}), "and the next line is run"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("overwrite", b"one\ntwo\nmine\n"),
        ("o", b"one\ntwo\nmine\n"),
        ("m", b"server's\ntwo\nmine\n"),
        ("abort", b"server's\ntwo\nthree\n"),
    ],
)
async def test_somebody_at_a_terminal_chooses_what_becomes_of_two_texts(
    server: StandIn, tmp_path: pathlib.Path, choice: str, expected: bytes
) -> None:
    there = Directory(server, conf=b"one\ntwo\nthree\n")
    there.meanwhile = lambda: there.files.update(conf=b"server's\ntwo\nthree\n")
    person = Person(
        tmp_path / "home",
        CORRAL_URL=server.url,
        CORRAL_TOKEN="corral_test_0123456789abcdef",
        EDITOR="sed -i s/three/mine/",
        VISUAL="",
        TMPDIR=str(tmp_path),
    )
    answers = [("both, or abort", choice), *([("again, or abort", "w")] if choice == "m" else [])]
    code, seen = await person.talk("instance", "edit", "lobby-1", "conf", answers=answers)
    assert there.files["conf"] == expected
    assert code == (1 if choice == "abort" else 0), seen
    assert "'conf' was changed while you edited it" in seen
    assert ("is kept in" in seen) == (choice == "abort")


@pytest.mark.parametrize(("saves", "wins"), [(3, True), (1000, False)])
async def test_an_overwrite_is_tried_again_while_the_server_saves_and_names_the_way_out_in_the_end(
    server: StandIn, tmp_path: pathlib.Path, saves: int, wins: bool
) -> None:
    there = Directory(server, conf=b"one\n")
    left = iter(range(saves))

    def save() -> None:
        if (number := next(left, None)) is not None:
            there.files["conf"] = f"save {number}\n".encode()
            there.meanwhile = save

    there.meanwhile = save
    person = Person(
        tmp_path / "home",
        CORRAL_URL=server.url,
        CORRAL_TOKEN="corral_test_0123456789abcdef",
        EDITOR="sed -i s/one/mine/",
        VISUAL="",
        TMPDIR=str(tmp_path),
    )
    code, seen = await person.talk(
        "instance", "edit", "lobby-1", "conf", answers=[("both, or abort", "overwrite")]
    )
    assert seen.count("both, or abort") == 1
    if wins:
        assert (code, there.files["conf"]) == (0, b"mine\n"), seen
        return
    assert code == 1, seen
    assert "it was changed again" in seen
    (kept,) = tmp_path.glob("corral-kept-*/conf")
    assert f"corral instance put lobby-1 conf {kept}\n" in seen
    assert (await person.run("instance", "put", "lobby-1", "conf", str(kept))).returncode == 0
    assert there.files["conf"] == b"mine\n"


@pytest.mark.parametrize("choice", ["write", "edit", "abort"])
async def test_marks_of_a_merge_are_written_only_if_somebody_says_so(
    server: StandIn, tmp_path: pathlib.Path, choice: str
) -> None:
    there = Directory(server, conf=b"one\ntwo\n")
    there.meanwhile = lambda: there.files.update(conf=b"server's\ntwo\n")
    script = tmp_path / "editor"  # the second time nothing is changed, the third time the marks are removed
    script.write_text(
        f'#!/bin/sh\nif [ -e {tmp_path}/second ]; then echo settled > "$1"; '
        f"elif [ -e {tmp_path}/first ]; then touch {tmp_path}/second; "
        f'else sed -i s/one/mine/ "$1"; touch {tmp_path}/first; fi\n'
    )
    script.chmod(0o755)
    person = Person(
        tmp_path / "home",
        CORRAL_URL=server.url,
        CORRAL_TOKEN="corral_test_0123456789abcdef",
        EDITOR=str(script),
        VISUAL="",
        TMPDIR=str(tmp_path),
    )
    answers = [("both, or abort", "merge"), ("still has marks", choice)]
    code, seen = await person.talk("instance", "edit", "lobby-1", "conf", answers=answers)
    assert code == (1 if choice == "abort" else 0), seen
    if choice == "write":
        assert b"<<<<<<< yours\nmine\n" in there.files["conf"]
    else:
        assert there.files["conf"] == (b"settled\n" if choice == "edit" else b"server's\ntwo\n")
    kept = [file.read_bytes() for file in tmp_path.glob("corral-kept-*/conf")]
    assert [b"mine\n" in text for text in kept] == ([True] if choice == "abort" else [])


@pytest.mark.parametrize("fault", ["no answer", "node away", "editor fails again", "not allowed any more"])
async def test_an_edit_that_fails_at_any_point_keeps_the_text(
    server: StandIn, tmp_path: pathlib.Path, fault: str
) -> None:
    there = Directory(server, conf=b"one\n")

    def meanwhile() -> None:
        there.files["conf"] = b"server's\n"
        if fault == "node away":
            server.answers["GET", f"{AT}/content"] = refused(
                503, "NODE_OFFLINE", "node 'n1' is not connected"
            )
        elif fault == "not allowed any more":
            server.answers["PUT", f"{AT}/content"] = refused(403, "FORBIDDEN", "you may not")

    there.meanwhile = meanwhile
    edits = tmp_path / "edits"
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\necho mine >> "$1"\n[ ! -e {edits} ] || exit 3\n')
    if fault == "editor fails again":
        script.write_text(script.read_text() + f"touch {edits}\n")
    script.chmod(0o755)
    person = Person(
        tmp_path / "home",
        CORRAL_URL=server.url,
        CORRAL_TOKEN="corral_test_0123456789abcdef",
        EDITOR=str(script),
        VISUAL="",
        TMPDIR=str(tmp_path),
    )
    answer = {"no answer": "\x04", "not allowed any more": "overwrite"}.get(fault, "merge")
    code, seen = await person.talk("instance", "edit", "lobby-1", "conf", answers=[("or abort", answer)])
    assert code == 1, seen
    assert there.files["conf"] == b"server's\n"
    (kept,) = tmp_path.glob("corral-kept-*/conf")
    assert b"mine\n" in kept.read_bytes()
    assert str(kept) in "".join(seen.split())


def test_a_text_is_kept_when_the_editor_itself_fails(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    Directory(server, conf=b"one")
    env = {"EDITOR": editor("path.write_text('mine'); sys.exit(1)"), "VISUAL": "", "TMPDIR": str(tmp_path)}
    assert corral("instance", "edit", "lobby-1", "conf", **env).returncode == 1
    (kept,) = tmp_path.glob("corral-kept-*/conf")
    assert kept.read_bytes() == b"mine"
    env["EDITOR"] = editor("sys.exit(1)")
    assert corral("instance", "edit", "lobby-1", "conf", **env).returncode == 1
    assert list(tmp_path.glob("corral-kept-*/conf")) == [kept], "an unchanged text is not kept"
