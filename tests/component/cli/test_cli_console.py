"""Consoles on the command line: logs, search, download, and being attached to one."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from shell_terminal import PASTED, ShellTerminal
from stand_in_console import RUN, Console
from stand_in_controller import PROGRAM, Answer, Request, StandIn, refused

from corral.cli.terminal.console_line import Neutraliser, neutral

Corral = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def console(server: StandIn) -> Iterator[Console]:
    made = Console(server)
    yield made
    made.close()


def until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def test_the_last_lines_are_printed(corral: Corral, console: Console) -> None:
    console.write("".join(f"line {number}\n" for number in range(10)))
    assert corral("instance", "logs", "lobby-1", "--tail", "2").stdout == "line 8\nline 9\n"
    assert corral("instance", "logs", "lobby-1", "-n", "1").stdout == "line 9\n"
    assert corral("instance", "logs", "lobby-1", "--after", "7").stdout.startswith("line 1\nline 2\n")
    assert corral("instance", "logs", "lobby-1", "--after", "7", "-n", "2").stdout == "line 8\nline 9\n"
    refused = corral("instance", "logs", "lobby-1", "--since", "7")
    assert (refused.returncode, "'7' is no time" in refused.stderr) == (2, True), refused.stderr
    first = corral("instance", "logs", "lobby-1", "--tail", "1", "-o", "json").stdout
    assert json.loads(first)["line"] == "line 9"


def test_raw_lines_keep_their_colours_on_the_way_into_a_pipe(corral: Corral, console: Console) -> None:
    console.write("\x1b[31mred\x1b[0m \x1b[2J\n")
    assert corral("instance", "logs", "lobby-1", "--raw").stdout == "\x1b[31mred\x1b[0m \x1b[2J\n"
    assert "\x1b[31m" not in corral("instance", "logs", "lobby-1").stdout


def test_following_goes_on_across_a_broken_connection_and_ends_with_the_run(
    begin: Begin, console: Console
) -> None:
    console.write("one\n")
    console.cut = 1
    process = begin("instance", "logs", "lobby-1", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    until(lambda: console.streams, lambda: "no stream")
    console.write("two\n")
    assert process.stdout.readline() == "two\n"
    until(lambda: len(console.streams) == 2, lambda: len(console.streams))
    console.write("three\n")
    assert process.stdout.readline() == "three\n"
    assert console.streams[1].headers["Last-Event-ID"] == f"{RUN}-8"
    console.end(state="CRASHED", incarnation=RUN, exit={"summary": "exit code 3"})
    out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert "instance 'lobby-1' has ended: exit code 3" in told


def test_a_search_prints_matches_and_fails_without_any(corral: Corral, server: StandIn) -> None:
    page = {"items": [{"line": "found it"}], "next": None, "notes": []}
    server.answers["GET", "/api/v1/instances/lobby-1/console/search"] = (200, page)
    done = corral("instance", "search", "lobby-1", "fo+und")
    assert (done.returncode, done.stdout) == (0, "found it\n")
    assert server.requests[0].query["pattern"] == "fo+und"
    server.answers["GET", "/api/v1/instances/lobby-1/console/search"] = (200, {**page, "items": []})
    assert corral("instance", "search", "lobby-1", "x").returncode == 1


def test_a_search_goes_on_over_all_runs_and_backwards(corral: Corral, server: StandIn) -> None:
    def answer(request: Request) -> tuple[int, object]:
        item = {"line": "found it", "incarnation": 1025 if "cursor" not in request.query else 1024}
        following = None if "cursor" in request.query else "more"
        return 200, {"items": [item], "next": following, "notes": ["run 1023 was not searched: gone"]}

    server.answers["GET", "/api/v1/instances/lobby-1/console/search"] = answer
    done = corral("instance", "search", "lobby-1", "fo+und", "--all-runs", "--last")
    assert (done.returncode, done.stdout) == (0, "1025: found it\n1024: found it\n")
    assert done.stderr.count("run 1023 was not searched") == 1
    assert [request.query.get("newest") for request in server.requests] == ["true", "true"]
    wrong = corral("instance", "search", "lobby-1", "x", "--all-runs", "--before", "5")
    assert (wrong.returncode, "--all-runs" in wrong.stderr) == (2, True)


@pytest.mark.system
def test_lines_before_an_offset_and_around_a_time_are_a_page_of_logs(
    corral: Corral, console: Console, server: StandIn
) -> None:
    console.write("one\ntwo\nthree\n")
    done = corral("instance", "logs", "lobby-1", "--before", "8", "-n", "1")
    assert (done.returncode, done.stdout) == (0, "two\n")
    assert f"--run {RUN} --before 4" in done.stderr
    assert corral("instance", "logs", "lobby-1", "--at", "2026-01-02T03:04:05Z").returncode == 0
    assert server.requests[-1].query["at"] == "2026-01-02T03:04:05.000Z"
    for wrong in (["--at", "1h", "--before", "3"], ["--before", "3", "-f"], ["--at", "1h", "--since", "2h"]):
        assert corral("instance", "logs", "lobby-1", *wrong).returncode == 2, wrong


def test_a_console_begins_with_more_old_lines_than_a_page_has(corral: Corral, console: Console) -> None:
    lines = [f"line {number}" for number in range(12_000)]
    console.write("\n".join(lines) + "\n")
    console.end(state="STOPPED", incarnation=RUN, exit=None)
    done = corral("instance", "console", "lobby-1", "-n", "11000", input="")
    assert (done.returncode, done.stdout.splitlines()) == (0, lines[1000:]), done.stderr


def test_a_download_is_saved_byte_by_byte_and_a_broken_one_fails(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    content = bytes(range(256))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    path = ("GET", "/api/v1/instances/lobby-1/console/download")
    server.answers[path] = lambda _: head + b"100\r\n" + content + b"\r\n0\r\n\r\n"
    target = tmp_path / "console.log"
    done = corral("instance", "download", "lobby-1", "-O", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == content
    server.answers[path] = lambda _: head + b"100\r\n" + content[:10]
    broken = corral("instance", "download", "lobby-1", "-O", str(target))
    assert broken.returncode == 1
    assert "broke off" in broken.stderr


def test_without_a_terminal_lines_of_stdin_are_commands(pointed: dict[str, str], console: Console) -> None:
    console.write("old\n")
    done = subprocess.run(
        [*PROGRAM, "instance", "console", "lobby-1"],
        env=pointed,
        input="list\nsay hi\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    assert console.commands == ["list", "say hi"]


def test_a_line_that_may_have_arrived_is_asked_for_again_with_its_key(
    corral: Corral, server: StandIn, console: Console
) -> None:
    answers: list[Answer] = [None, refused(503, "STORE_UNAVAILABLE", "not now"), (200, {"command": "list"})]
    server.answers["POST", "/api/v1/instances/lobby-1/command"] = lambda _: answers.pop(0)
    done = corral("instance", "command", "lobby-1", "list")
    assert done.returncode == 0, done.stderr
    keys = [request.headers["Idempotency-Key"] for request in server.requests]
    assert (len(keys), len(set(keys))) == (3, 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("say buy -o name now", "say buy -o name now"),
        ("say -h", "say -h"),
        ("--help", "--help"),
        ("-- -x --", "-x --"),
    ],
)
def test_what_follows_the_id_is_the_line_whatever_it_looks_like(
    corral: Corral, server: StandIn, words: str, line: str
) -> None:
    server.answers["POST", "/api/v1/instances/lobby-1/command"] = (200, {"command": line})
    done = corral("instance", "exec", "-o", "json", "lobby-1", *words.split())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"command": line}
    assert server.requests[-1].body == {"command": line}


def test_a_line_that_was_refused_or_never_sent_is_told_at_once(
    corral: Corral, server: StandIn, console: Console
) -> None:
    server.answers["POST", "/api/v1/instances/lobby-1/command"] = refused(503, "STORE_UNAVAILABLE", "not now")
    assert "not now" in corral("instance", "command", "lobby-1", "list").stderr
    assert len(server.requests) == 1
    nobody = corral("instance", "command", "lobby-1", "list", CORRAL_URL="http://127.0.0.1:1")
    assert (nobody.returncode, "cannot reach" in nobody.stderr) == (3, True)


def test_a_typed_line_is_tried_until_it_is_taken_and_each_has_its_own_key(
    pointed: dict[str, str], server: StandIn, console: Console
) -> None:
    answers: list[Answer] = [
        refused(503, "NOT_LEADER", "not leading"),
        None,
        refused(409, "NODE_OFFLINE", "its node is away"),
        (200, {"command": "list"}),
        refused(409, "NOT_RUNNING", "it is STOPPED"),
    ]
    server.answers["POST", "/api/v1/instances/lobby-1/command"] = lambda _: answers.pop(0)
    done = subprocess.run(
        [*PROGRAM, "instance", "console", "lobby-1"],
        env=pointed,
        input="list\nsay hi\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "not leading; trying again\n" in done.stderr
    assert "error: it is STOPPED" in done.stderr
    sent = [request for request in server.requests if request.method == "POST"]
    assert [request.body["command"] for request in sent] == ["list"] * 4 + ["say hi"]
    assert len({request.headers["Idempotency-Key"] for request in sent[:4]}) == 1
    assert len({request.headers["Idempotency-Key"] for request in sent}) == 2


class Tmux:
    """A real terminal that can be looked at."""

    def __init__(self, directory: pathlib.Path, command: list[str], env: dict[str, str]) -> None:
        self._socket = str(directory / "tmux.sock")
        self._env = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", *command)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p").rstrip("\n")

    def type(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def shows(self, text: str) -> None:
        until(lambda: text in self.screen(), lambda: f"{text!r} is not on\n{self.screen()}")

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def terminal(
    tmp_path: pathlib.Path, pointed: dict[str, str], console: Console
) -> Iterator[Callable[..., Tmux]]:
    opened: list[Tmux] = []

    def attach(*more: str) -> Tmux:
        program = " ".join([*PROGRAM, "instance", "console", "lobby-1", *more])
        opened.append(Tmux(tmp_path, ["sh", "-c", f"{program}; echo exit $?; cat"], pointed))
        return opened[-1]

    yield attach
    for made in opened:
        made.close()


def test_a_terminal_shows_scroll_back_live_output_and_the_line_being_typed(
    terminal: Callable[..., Tmux], console: Console
) -> None:
    console.write("scrolled back\n")
    tmux = terminal()
    tmux.shows("scrolled back")
    tmux.shows("lobby-1>")
    until(lambda: console.streams, lambda: "no stream")
    tmux.type("-l", "say hello")
    tmux.shows("lobby-1> say hello")
    console.write("live one\nlive two\n")
    tmux.shows("live two\nlobby-1> say hello")
    tmux.type("Left", "Left", "Left", "Left", "Left", "BSpace", "_")
    tmux.type("Enter")
    until(lambda: console.commands, lambda: tmux.screen())
    tmux.shows("» say_hello")
    tmux.type("Up")
    tmux.shows("lobby-1> say_hello")
    tmux.type("C-]")
    tmux.shows("exit 0")
    assert "detached" in tmux.screen()
    assert console.commands == ["say_hello"], "leaving sends nothing"


def test_lines_of_others_are_shown_with_who_sent_them_and_earlier_ones_are_recalled(
    terminal: Callable[..., Tmux], console: Console, server: StandIn
) -> None:
    sent = [{"line": "list", "by": "user:ada"}, {"line": "•••", "by": "x"}, {"line": "save", "by": "x"}]
    server.answers["GET", "/api/v1/instances/lobby-1/commands"] = (200, {"items": sent, "next": None})
    tmux = terminal()
    tmux.shows("lobby-1>")
    until(lambda: console.streams, lambda: "no stream")
    console.typed_elsewhere("whitelist on")
    tmux.shows("» whitelist on  (Ada's laptop)")
    tmux.type("Up")
    tmux.shows("lobby-1> list")
    tmux.type("Up")
    tmux.shows("lobby-1> save")


def test_sent_lines_are_listed_with_who_sent_them(corral: Corral, server: StandIn) -> None:
    sent = {
        "at": "2026-01-01T12:00:00Z",
        "line": "list",
        "by": "user:ada",
        "by_name": "Ada",
        "incarnation": 1024,
    }
    server.answers["GET", "/api/v1/instances/lobby-1/commands"] = (200, {"items": [sent], "next": None})
    done = corral("instance", "commands", "lobby-1", "--since", "2h")
    assert done.returncode == 0, done.stderr
    assert ("Ada" in done.stdout, "user:ada" in done.stdout) == (True, False)
    assert (" list" in done.stdout, "since" in server.requests[-1].query) == (True, True)


def test_a_typed_line_is_shown_before_its_answer_and_once(
    terminal: Callable[..., Tmux], console: Console, server: StandIn
) -> None:
    take = server.answers["POST", "/api/v1/instances/lobby-1/command"]

    def answered_at_once(request: Request) -> Answer:
        answer = f"answer to {request.body['command']}"
        console.write(f"{answer}\n")
        tmux.shows(answer)  # the echo comes only now
        return take(request)

    server.answers["POST", "/api/v1/instances/lobby-1/command"] = answered_at_once
    tmux = terminal()
    tmux.shows("lobby-1>")
    until(lambda: console.streams, lambda: "no stream")
    for number in range(3):
        tmux.type("-l", f"list {number}")
        tmux.type("Enter")
        tmux.shows(f"» list {number}\nanswer to list {number}\n")
    assert tmux.screen().count("» list") == 3


def test_ctrl_c_detaches_and_the_terminal_is_as_before(
    terminal: Callable[..., Tmux], console: Console
) -> None:
    tmux = terminal()
    tmux.shows("lobby-1>")
    tmux.type("C-c")
    tmux.shows("exit 0")
    tmux.type("-l", "echoed again")
    tmux.shows("echoed again")
    assert console.commands == []


@pytest.mark.trap("T17")
def test_escape_sequences_of_an_instance_do_not_reach_the_terminal(
    terminal: Callable[..., Tmux], console: Console
) -> None:
    console.write("first\n")
    tmux = terminal()
    tmux.shows("first")
    until(lambda: console.streams, lambda: "no stream")
    console.write("\x1b[2J\x1b[H\x1b[31mred\x1b[0m\x07 \x1b]0;owned\x07\nlast\n")
    tmux.shows("last")
    seen = tmux.screen()
    assert "first" in seen, "the screen was not cleared"
    assert "\\x1b[2J\\x1b[Hred\\x07 \\x1b]0;owned\\x07" in seen


def test_raw_passes_them(terminal: Callable[..., Tmux], console: Console) -> None:
    console.write("first\n")
    tmux = terminal("--raw")
    tmux.shows("first")
    until(lambda: console.streams, lambda: "no stream")
    console.write("\x1b[2J\x1b[Hcleared\n")
    tmux.shows("cleared")
    assert "first" not in tmux.screen()


def test_a_prompt_stands_before_the_line(terminal: Callable[..., Tmux], console: Console) -> None:
    tmux = terminal()
    tmux.shows("lobby-1>")
    until(lambda: console.streams, lambda: "no stream")
    console.write("Password: ")
    tmux.shows("Password: lobby-1>")
    console.write("ok\n")
    tmux.shows("Password: ok\nlobby-1>")


@pytest.fixture
def attached(pointed: dict[str, str], console: Console) -> Iterator[ShellTerminal]:
    words = ("instance", "console", "lobby-1")
    with ShellTerminal(pointed, *words, prompt="lobby-1> ") as shell:
        until(lambda: console.streams, lambda: "no stream")
        yield shell


def test_a_killed_client_is_all_that_ends_and_its_terminal_is_as_before(
    attached: ShellTerminal, console: Console
) -> None:
    attached.press("begun")
    attached.shows("begun")
    attached.process.send_signal(signal.SIGTERM)
    assert attached.ends() == 128 + signal.SIGTERM
    assert attached.is_as_before()
    assert console.commands == []


@pytest.mark.parametrize("key", ["\x03", "\x1d", "\x04"])
def test_these_keys_detach(attached: ShellTerminal, console: Console, key: str) -> None:
    attached.press(key + "not sent\r")
    assert attached.ends() == 0
    assert attached.is_as_before()
    assert console.commands == []


def test_pasted_lines_are_sent_by_enter_one_by_one(attached: ShellTerminal, console: Console) -> None:
    attached.press(PASTED.format("say héllo 世界\rlist\x07\r"))
    attached.shows("list")
    assert console.commands == []
    attached.press("\r")
    attached.shows("» say héllo 世界\n» list\n")
    until(lambda: len(console.commands) == 2, lambda: console.commands)
    assert console.commands == ["say héllo 世界", "list"]


def test_a_flood_passes_above_the_line_that_is_typed(attached: ShellTerminal, console: Console) -> None:
    for begin in range(0, 20_000, 100):
        console.write("".join(f"line {number}\n" for number in range(begin, begin + 100)))
        if begin % 1000 == 0:
            attached.press("x")
    shown = attached.shows("line 19999\n")
    assert shown.splitlines()[-1] == "line 19998"
    assert [f"line {number}" for number in range(19_999)] == [
        line for line in shown.splitlines() if "line" in line
    ]
    attached.press("\r")
    attached.shows(f"» {'x' * 20}\n")
    until(lambda: console.commands, lambda: "nothing was sent")
    assert console.commands == ["x" * 20]


@pytest.mark.parametrize("words", [("console",), ("instance", "console", "lobby-1")])
def test_a_terminal_without_a_cursor_is_written_line_by_line(
    pointed: dict[str, str], console: Console, words: tuple[str, ...]
) -> None:
    console.write("\x1b[2Jold\n")
    first, typed = ("corral> ", "exit") if words == ("console",) else ("\\x1b[2Jold\n", "list")
    with ShellTerminal(pointed, *words, prompt=first, term="dumb") as shell:
        shell.press(f"{typed}\n\x04")
        assert shell.ends() == 0
        assert shell.codes == 0
    assert console.commands == ([] if words == ("console",) else ["list"])


def test_sequences_that_are_cut_are_put_together_first() -> None:
    pieces = Neutraliser()
    assert pieces.clean("a\x1b[3") + pieces.clean("1mred\x1b") + pieces.clean("[0m.") == "ared."
    assert pieces.clean("x\r") + pieces.clean("\ny") == "x\ny"
    assert neutral("tags \U000e0041 and marks \ufff9") == "tags \\U000e0041 and marks \\ufff9"
    assert neutral("tab\tstays, \x9b and \u202e do not") == "tab\tstays, \\x9b and \\u202e do not"
