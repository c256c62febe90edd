"""What changes when there is a terminal: colours, width, questions."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pytest
from stand_in_controller import NODE, PROGRAM, File, StandIn, refused


def on_terminal(
    arguments: list[str],
    env: dict[str, str],
    *,
    answer: str | signal.Signals | None = None,
    columns: int = 200,
) -> tuple[int, str]:
    """Run a command on a pseudo-terminal; its exit code and all that appeared.

    The answer, a text or a signal, is given once the command has said something; a signal that
    slips in before the command reads is repeated, as a person would.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *arguments], env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    try:
        while True:
            quiet = not select.select([ours], [], [], 1.0)[0]
            first = not quiet and not seen
            if not quiet:
                seen += os.read(ours, 65_536)
            if first and isinstance(answer, str):
                os.write(ours, answer.encode())
            if (first or (quiet and seen)) and isinstance(answer, signal.Signals):
                process.send_signal(answer)
    except OSError:
        pass  # the other end is closed: it has ended
    os.close(ours)
    return process.wait(timeout=30), seen.decode().replace("\r\n", "\n")


def test_states_are_coloured_on_a_terminal_unless_somebody_minds(pointed: dict[str, str]) -> None:
    assert "\x1b[32mONLINE\x1b[0m" in on_terminal(["node", "list"], pointed)[1]
    assert "\x1b" not in on_terminal(["node", "list"], {**pointed, "NO_COLOR": "1"})[1]


def test_a_table_is_cut_to_the_width_of_the_terminal(pointed: dict[str, str], server: StandIn) -> None:
    node = {**NODE, "labels": {"purpose": "a very long label " * 20}}
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [node], "next": None})
    _, seen = on_terminal(["node", "list"], {**pointed, "NO_COLOR": "1"}, columns=110)
    assert max(map(len, seen.splitlines())) == 110
    assert "…" in seen


def test_the_ids_of_tokens_are_whole_on_a_terminal_of_80_columns(
    pointed: dict[str, str], server: StandIn
) -> None:
    token = {
        "id": "tok-abcdefghijkl", "name": "deployments-from-the-pipeline", "role": "OPERATOR", "owner": "alexandra.longname",
        "scope": {"groups": ["lobby*", "survival-*"], "nodes": ["eu-*"]}, "created_at": "2026-01-01T00:00:00Z",
        "expires_at": None, "last_used_at": None, "created_by": "user:alexandra.longname",
    }  # fmt: skip
    server.answers["GET", "/api/v1/tokens"] = (200, {"items": [token], "next": None})
    _, seen = on_terminal(["token", "list"], {**pointed, "NO_COLOR": "1"}, columns=80)
    assert seen.splitlines()[1].startswith("tok-abcdefghijkl ")
    assert max(map(len, seen.splitlines())) <= 80


@pytest.mark.parametrize(
    ("answer", "code", "sent"), [("y\n", 0, 1), ("n\n", 1, 0), (signal.SIGINT, 130, 0), ("\x04", 1, 0)]
)
def test_a_question_is_asked_and_the_answer_counts(
    pointed: dict[str, str], server: StandIn, answer: str | signal.Signals, code: int, sent: int
) -> None:
    server.answers["DELETE", "/api/v1/nodes/web-1"] = (204, None)
    found, seen = on_terminal(["node", "remove", "web-1"], pointed, answer=answer)
    assert (found, len(server.requests)) == (code, sent), seen


@pytest.mark.trap("T90")
@pytest.mark.parametrize(("answer", "code", "sent"), [("y\ny\n", 0, 2), ("y\nn\n", 1, 1)])
def test_instances_that_would_be_given_up_are_named_and_asked_about(
    pointed: dict[str, str], server: StandIn, answer: str, code: int, sent: int
) -> None:
    told = "with node 'web-1' 'w-11' (RUNNING) would be given up"
    asked = refused(409, "CONFIRMATION_REQUIRED", told)
    server.answers["DELETE", "/api/v1/nodes/web-1"] = lambda request: (
        (204, None) if request.query.get("confirm") == "web-1" else asked
    )
    found, seen = on_terminal(["node", "remove", "web-1"], pointed, answer=answer)
    assert (found, len(server.requests)) == (code, sent), seen
    assert told in seen


def test_a_file_of_an_instance_cannot_steer_the_terminal(pointed: dict[str, str], server: StandIn) -> None:
    content = (
        "ok\tü\x1b]52;c;ZXZpbA==\x07 \x1b]0;title\x07\x1b[31mred\x1b[0m \u202e\x9b31m\nend\n".encode()
        + b"\xff"
    )
    server.answers["GET", "/api/v1/instances/lobby-1/files/content"] = File(content)
    code, seen = on_terminal(["instance", "cat", "lobby-1", "motd.txt"], pointed)
    steering = ("\x1b]", "\x1b[31m", "\x9b", "\u202e", "\x07")
    assert (code, [each for each in steering if each in seen]) == (0, []), seen
    assert "ok\tü\\x1b]52;c;ZXZpbA==" in seen
    assert "end\n\ufffd" in seen
    piped = subprocess.run(
        [*PROGRAM, "instance", "cat", "lobby-1", "motd.txt"], env=pointed, capture_output=True, check=True
    )
    assert piped.stdout == content
