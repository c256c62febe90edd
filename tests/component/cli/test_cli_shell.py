"""`corral console`: the commands in one shell, on a terminal and in a pipe."""

from __future__ import annotations

import pathlib
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
from shell_terminal import PASTED, ShellTerminal
from stand_in_controller import NODE, Answer, Request, StandIn

from corral.cli.console.history import LINES_MAX, may_be_kept

Corral = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def answers(server: StandIn) -> None:
    server.answers["GET", "/api/v1/auth/me"] = (200, {"user": "anna", "token": None})
    server.answers["GET", "/api/v1/commands"] = (
        200,
        {"items": [{"name": "stats show", "module": "stats", "usage": "", "help": ""}], "next": None},
    )
    server.answers["POST", "/api/v1/commands/execute"] = (200, {"output": ["7 starts"], "exit_code": 0})
    server.answers["GET", "/api/v1/nodes"] = (
        200,
        {"items": [NODE, {**NODE, "id": "web-2"}], "next": None},
    )


@pytest.fixture
def shell(pointed: dict[str, str], server: StandIn) -> Iterator[ShellTerminal]:
    with ShellTerminal({**pointed, "NO_COLOR": "1"}) as terminal:
        yield terminal


def history(pointed: dict[str, str]) -> pathlib.Path:
    return pathlib.Path(pointed["HOME"]) / ".config" / "corral" / "console_history"


def test_commands_run_on_one_connection_and_errors_do_not_end_the_console(
    shell: ShellTerminal, server: StandIn, pointed: dict[str, str]
) -> None:
    assert "web-1" in shell.type("node list")
    assert "web-1" in shell.type("corral node list")
    assert "Did you mean 'node'?" in shell.type("nod list")
    assert "Did you mean 'list'?" in shell.type("node lst")
    assert "no closing quotation" in shell.type("node info 'web")
    assert "is not for the console" in shell.type("console")
    assert "there is nothing" in shell.type("node info web-9")
    assert "7 starts" in shell.type("stats show lobby")
    assert server.requests[-1].body == {"command": "stats show lobby"}
    assert "Usage: corral node cordon" in shell.type("help node cordon")
    assert "Ctrl-D leaves" in shell.type("help")
    own = {each.peer for each in server.requests if each.path != "/api/v1/commands"}
    assert len(own) - 1 <= 1, "one connection, and another one for the command that may take long"
    kept = history(pointed)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "node list\n" in kept.read_text()
    shell.press("exit\n")
    assert shell.ends() == 0


def test_pasted_lines_run_one_by_one_after_enter(shell: ShellTerminal, server: StandIn) -> None:
    shell.press(PASTED.format("# the nodes\rnode list\rnode info web-9\r"))
    shell.shows("node info web-9")
    assert not any(each.path.startswith("/api/v1/nodes") for each in server.requests)
    shell.press("\r")
    shell.shows("corral> node list\n")
    assert "web-1" in shell.shows("corral> node info web-9\n")
    assert "there is nothing" in shell.shows("corral> ")


def test_stop_ends_the_controller_after_a_yes_and_then_the_console(
    shell: ShellTerminal, server: StandIn
) -> None:
    at = ("POST", "/api/v1/cluster/shutdown")
    server.answers[at] = (200, {"holder": "c-1", "http": "127.0.0.1:8480"})
    shell.press("stop\n")
    shell.shows("end the controller at")
    assert "nothing was done" in shell.type("n")
    assert at not in [(each.method, each.path) for each in server.requests]
    shell.press("stop --reason moved\n")
    shell.shows("[y/N]")
    shell.press("y\n")
    shell.shows("the controller at 127.0.0.1:8480 ends; instances go on")
    assert shell.ends() == 0
    assert server.requests[-1].body == {"reason": "moved"}


def test_words_options_and_names_are_completed(shell: ShellTerminal, server: StandIn) -> None:
    shell.press("nod\tinf\tweb-\t")
    shell.shows("web-1")
    shell.shows("web-2")
    shell.shows("corral> node info web-")
    shell.press("\t")
    shell.shows("corral> node info web-")
    shell.press("2\n")
    shell.shows("corral> ")
    assert server.requests[-1].path == "/api/v1/nodes/web-2"
    lists = [each for each in server.requests if each.path == "/api/v1/nodes"]
    assert len(lists) == 1, "asked once, and kept for a moment"
    shell.press("node list --sta\tonl\t\n")
    shell.shows("corral> ")
    assert server.requests[-1].query["state"].upper() == "ONLINE"
    shell.press("\x15sta\t")
    shell.shows("stats ")


def test_interrupts_end_a_command_or_a_line_and_not_the_console(
    shell: ShellTerminal, server: StandIn
) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def slowly(request: Request) -> Answer:
        del request
        arrived.set()
        go_on.wait(30)
        return 200, NODE

    server.answers["GET", "/api/v1/nodes/slow"] = slowly
    try:
        shell.press("node info slow\n")
        assert arrived.wait(30)
        shell.press("\x03")
        shell.shows("corral> ")
    finally:
        go_on.set()
    for _ in range(20):
        shell.press("node remove we")
        shell.press("\x03")  # at any moment, also while the keys before it are looked at
        shell.shows("corral> ")
    assert "web-2" in shell.type("node list")
    shell.press("\x04")
    assert shell.ends() == 0


def test_a_controller_that_goes_and_returns_is_told(shell: ShellTerminal, server: StandIn) -> None:
    listed = server.answers["GET", "/api/v1/nodes"]
    server.answers["GET", "/api/v1/nodes"] = lambda request: None
    assert "error: " in shell.type("node list")
    shell.press("node info w\t")  # nothing to offer, and no error in the line
    shell.press("\x15")
    server.answers["GET", "/api/v1/nodes"] = listed
    assert "web-2" in shell.type("node list")


def test_long_output_comes_whole(shell: ShellTerminal, server: StandIn) -> None:
    many = [{**NODE, "id": f"node-{number}"} for number in range(3000)]
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": many, "next": None})
    assert shell.type("node list -o name").count("node-") == 3000


def test_history_is_kept_for_the_next_console_without_secrets_and_within_its_bound(
    pointed: dict[str, str], server: StandIn
) -> None:
    kept = history(pointed)
    kept.parent.mkdir(parents=True)
    kept.write_text("".join(f"node info old-{number}\n" for number in range(2 * LINES_MAX)))
    kept.chmod(0o644)
    with ShellTerminal(pointed) as shell:
        assert len(kept.read_text().splitlines()) == LINES_MAX
        shell.type("node info web-1")
        shell.type("user create bob --token corral_tok-abc")
        shell.type("instance exec x -- login password geheim")
        shell.type(" node info web-2")
        text = kept.read_text()
        assert "node info web-1" in text
        assert not any(word in text for word in ("geheim", "corral_tok", "web-2"))
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with ShellTerminal(pointed) as again:
        again.press("\x1b[A\n")
        again.shows("corral> ")
    assert server.requests[-1].path == "/api/v1/nodes/web-1"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("instance list", True),
        ("token list", True),
        ("login --token-file x", True),
        ("--token abc whoami", False),
        ("group scale a 3", True),
        ("instance start a --var KEY=x", False),
        ("module config a --set key=x", False),
        ("why " + "x" * 5000, False),
        ("  ", False),
    ],
)
def test_lines_that_may_hold_a_secret_are_not_kept(line: str, kept: bool) -> None:
    assert may_be_kept(line) is kept


@pytest.mark.system
def test_in_a_pipe_lines_run_one_after_the_other_and_the_last_failure_is_the_exit_code(
    corral: Corral, pointed: dict[str, str]
) -> None:
    done = corral("console", input="node list -o name\n# a comment\n\ninstances ls -o name; up\nstats show\n")
    assert "web-1\nweb-2\n" in done.stdout
    assert "7 starts" in done.stdout
    assert "corral> " not in done.stdout + done.stderr
    assert done.returncode in (1, 2)
    assert corral("console", input="node list\nexit\nnod list\n").returncode == 0
    helped = corral("console", input="stop -h\nup -h\nnode list -o name\n")
    assert (helped.returncode, helped.stdout.endswith("web-1\nweb-2\n")) == (0, True), helped
    assert corral("console", input="nod list\nnode list").returncode == 2
    assert corral("console", input="").returncode == 0
    assert not history(pointed).exists()
    closed = corral("console", input="node list\n", CORRAL_URL="http://127.0.0.1:1")
    assert (closed.returncode, "cannot reach" in closed.stderr) == (3, True)
