"""`corral instance files|cat`: what they send and what people read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from stand_in_controller import File, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]

AT = "/api/v1/instances/lobby-1/files"
LOG = {"path": "logs/latest.log", "kind": "file", "size": 42, "modified_at": "2026-01-01T00:00:00Z"}
LINK = {"path": "logs/\x1b[2Jodd", "kind": "link", "size": 3, "modified_at": None}


def test_files_are_listed_and_what_is_left_out_is_said(corral: Corral, server: StandIn) -> None:
    server.answers["GET", AT] = (200, {"items": [LOG, LINK], "truncated": True})
    shown = corral("instance", "files", "lobby-1", "logs", "--limit", "2")
    assert server.requests[-1].query == {"path": "logs", "limit": "2"}
    assert "logs/latest.log" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "more than these 2" in shown.stderr
    named = corral("instance", "files", "lobby-1", "-o", "name")
    assert named.stdout.splitlines()[0] == "logs/latest.log"
    assert json.loads(corral("instance", "files", "lobby-1", "-o", "json").stdout)["items"] == [LOG, LINK]
    assert corral("instance", "files", "lobby-1", "--limit", "10001").returncode == 2


def test_a_file_goes_to_stdout_as_it_is(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{AT}/content"] = File(b"hello\n")
    read = corral("instance", "cat", "lobby-1", "logs/a b.log", "--offset", "7")
    assert (read.returncode, read.stdout) == (0, "hello\n")
    assert "there may be more" not in read.stderr
    assert server.requests[-1].query == {"path": "logs/a b.log", "offset": "7", "length": "262144"}
    part = corral("instance", "cat", "lobby-1", "a", "--length", "6")
    assert part.stdout == "hello\n"
    assert "--offset 6" in part.stderr


def test_a_refusal_is_said_as_it_came(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{AT}/content"] = refused(422, "PATH_REFUSED", "'x' is no regular file")
    failed = corral("instance", "cat", "lobby-1", "x")
    assert failed.returncode != 0
    assert "no regular file" in failed.stderr
    assert failed.stdout == ""
