"""Windows of `tmux` and `screen`: what an operator sees, and what the run never notices."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.process.workload_context import runtime_of
from corral.runtimes.sessions.multiplexer import TmuxMultiplexer, session_name
from corral.runtimes.sessions.provider import SessionRuntime
from corral.runtimes.sessions.window_file import read_window
from corral.sdk.runtime import RunHandle, RunSpec
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import MULTIPLEXERS, ProcessHarness, SessionHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import read_numbered, shell


@pytest.fixture(params=MULTIPLEXERS)
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[SessionHarness]:
    async with SessionHarness(scratch / "node", multiplexer=request.param) as house:
        yield house


ONE_MULTIPLEXER = pytest.mark.parametrize("house", ["tmux"], indirect=True)
"""For what the program in a window does, whoever shows the window."""


def called(spec: RunSpec, instance_id: str, incarnation: int) -> RunSpec:
    return msgspec.structs.replace(spec, instance_id=instance_id, incarnation=incarnation)


def exact(house: SessionHarness, handle: RunHandle) -> str:
    """How the multiplexer's program is told of this very session."""
    session = session_name(handle.run_name)
    if house.multiplexer == "tmux":
        return f"={session}:"
    window = read_window(handle.run_directory)
    assert window is not None
    return f"{window.parent}.{session}"


def shown(house: SessionHarness, handle: RunHandle) -> str:
    """What stands in the window."""
    if house.multiplexer == "tmux":
        return house.call("capture-pane", "-p", "-S", "-", "-t", exact(house, handle)).stdout
    copy = house.data / "hardcopy"
    copy.unlink(missing_ok=True)
    house.call("-S", exact(house, handle), "-p", "0", "-X", "hardcopy", "-h", str(copy))
    deadline = time.monotonic() + 0.5  # it is written by the session's own process, a moment later
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if text := copy.read_bytes().decode(errors="replace"):
                return text
        time.sleep(0.01)
    return ""


def typed(house: SessionHarness, handle: RunHandle, text: str) -> None:
    if house.multiplexer == "tmux":
        house.call("send-keys", "-t", exact(house, handle), "-l", text)
        house.call("send-keys", "-t", exact(house, handle), "Enter")
    else:
        house.call("-S", exact(house, handle), "-p", "0", "-X", "stuff", f"{text}\r")


async def opened(house: SessionHarness, handle: RunHandle) -> int:
    """The pid of its window, once there is one."""

    def pid() -> int:
        window = read_window(handle.run_directory)
        return window.pid if window is not None and is_running(window.pid) else 0

    return await eventually(pid, state=lambda: (house.sessions(), handle.run_name))


async def ended(house: SessionHarness, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)


@contextlib.contextmanager
def attached(house: SessionHarness, handle: RunHandle) -> Iterator[tuple[int, int]]:
    """A client on a terminal of its own: its pid and our end of the terminal."""
    session = session_name(handle.run_name)
    tmux = ("tmux", "-S", "tmux.sock", "attach", "-t", f"={session}")
    command = tmux if house.multiplexer == "tmux" else ("screen", "-x", exact(house, handle))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    environment = {**house.operator_environment(), "TERM": "xterm"}
    client = subprocess.Popen(
        command,
        cwd=house.keeper_directory,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    os.set_blocking(master, False)
    try:
        yield client.pid, master
    finally:
        client.kill()
        client.wait()
        os.close(master)


def read_all(master: int, kept: list[bytes]) -> bytes:
    with contextlib.suppress(OSError):
        while piece := os.read(master, 65536):
            kept.append(piece)
    return b"".join(kept)


async def test_a_window_shows_the_console_and_what_is_typed_arrives(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=6)))
    await console_match(handle, b"up\n")
    await house.provider.send_command(handle, "one")
    await opened(house, handle)
    await eventually(lambda: "got one" in shown(house, handle), state=lambda: shown(house, handle))
    typed(house, handle, "two")
    await console_match(handle, b"got two\n")
    await eventually(lambda: "got two" in shown(house, handle), state=lambda: shown(house, handle))
    typed(house, handle, "stop")
    assert (await house.provider.wait_empty(handle)).code == 6
    assert console_bytes(handle.run_directory) == b"up\ngot one\ngot two\nbye\n"
    assert house.sessions() == set()
    assert read_window(handle.run_directory) is None
    assert (handle.runtime, runtime_of(handle.run_directory)) == (house.multiplexer, house.multiplexer)


async def test_an_operator_attaches_sees_and_types(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=5)))
    await console_match(handle, b"up\n")
    await opened(house, handle)
    with attached(house, handle) as (_, master):
        kept: list[bytes] = []
        await eventually(lambda: b"up" in read_all(master, kept))
        os.write(master, b"hello there\r")
        await console_match(handle, b"got hello there\n")
        await eventually(lambda: b"got hello there" in read_all(master, kept))
        os.write(master, b"stop\r")
        assert (await house.provider.wait_empty(handle)).code == 5


async def test_keys_of_an_operator_do_not_end_a_run_without_a_terminal(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=5)))
    await opened(house, handle)
    with attached(house, handle) as (_, master):
        kept: list[bytes] = []
        await eventually(lambda: b"up" in read_all(master, kept))
        for key in (b"\x03", b"\x1c", b"\x1a", b"\x04", b"\x13"):
            os.write(master, key)
        os.write(master, b"alive\r")
        await console_match(handle, b"got alive\n")
        await eventually(lambda: b"got alive" in read_all(master, kept))
    await ended(house, handle)


@pytest.mark.system
@pytest.mark.trap("T39")
async def test_only_the_session_of_that_very_name_is_touched(house: SessionHarness) -> None:
    runs = [(name, 1024) for name in ("lobby", "lobby2", "lobby-1", "lobby-11", "lob.by", "lob_by")]
    runs += [("lobby", 102), ("lobby", 10240)]
    handles: dict[str, RunHandle] = {}
    for name, incarnation in runs:
        environment = {"PATH": "/usr/bin:/bin", "OWN": f"of {name}.{incarnation}; #{{x}} %y% 'z'\n\u00fc"}
        script = 'printf "%s\\n" "$OWN"; echo up; while read -r line; do echo "$line for $OWN"; done'
        spec = called(house.spec(*shell(script), environment=environment), name, incarnation)
        handles[spec.run_name] = await house.provider.start(spec)
    windows = {name: await opened(house, handle) for name, handle in handles.items()}
    assert house.sessions() == {session_name(name) for name in handles}
    typed(house, handles["lobby.102"], "hello")
    await console_match(handles["lobby.102"], b"hello for of lobby.102;")
    for name, handle in handles.items():
        own = f"of {name}; #{{x}} %y% 'z'\n\u00fc\n".encode()
        assert console_bytes(handle.run_directory).startswith(own + b"up\n")
        assert (b"hello" in console_bytes(handle.run_directory)) == (name == "lobby.102")
    for name in ("lobby.102", "lobby.1024", "lobby-1.1024", "lob.by.1024"):
        await ended(house, handles.pop(name))
        assert house.sessions() == {session_name(other) for other in handles}
    for name, handle in handles.items():
        assert is_running(handle.pid)
        assert is_running(windows[name])
        await ended(house, handle)


async def test_nothing_of_the_daemon_or_of_a_run_is_in_the_servers_environment(house: SessionHarness) -> None:
    os.environ["OF_THE_DAEMON"] = "secret"
    try:
        spec = house.spec(*workloads.silent(), environment={"PATH": "/usr/bin:/bin", "OF_THE_RUN": "secret"})
        handle = await house.provider.start(spec)
        pid = await opened(house, handle)
    finally:
        del os.environ["OF_THE_DAEMON"]
    window = read_window(handle.run_directory)
    assert window is not None
    for process in (pid, window.parent):
        environment = pathlib.Path(f"/proc/{process}/environ").read_bytes()
        assert b"OF_THE" not in environment
    await ended(house, handle)


async def test_a_server_is_nobodys_child_of_ours_and_far_from_our_directory(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    await opened(house, handle)
    window = read_window(handle.run_directory)
    assert window is not None
    keeper = keeper_pid(house.data)
    status = pathlib.Path(f"/proc/{window.parent}/status").read_text()
    assert f"PPid:\t{keeper}\n" in status
    assert os.getsid(window.parent) != os.getsid(0)
    await ended(house, handle)


@pytest.mark.parametrize("multiplexer", MULTIPLEXERS)
async def test_the_path_of_the_data_directory_may_be_long(
    scratch: pathlib.Path, reaper: Reaper, multiplexer: str
) -> None:
    data = scratch / ("deep" * 30) / "it's; a #{pane_id} %d $HOME \u00fc" / "node"
    async with SessionHarness(data, multiplexer=multiplexer) as house:
        handle = await house.provider.start(house.spec(*workloads.reading_commands(code=4)))
        await opened(house, handle)
        typed(house, handle, "hello")
        await console_match(handle, b"got hello\n")
        typed(house, handle, "stop")
        assert (await house.provider.wait_empty(handle)).code == 4
        assert house.sessions() == set()


async def test_a_killed_server_is_replaced_and_no_run_notices(house: SessionHarness) -> None:
    handles = [await house.provider.start(house.spec(*workloads.reading_commands(code=3))) for _ in range(3)]
    before = [await opened(house, handle) for handle in handles]
    for window in [read_window(handle.run_directory) for handle in handles]:
        assert window is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(window.parent, signal.SIGKILL)
    await eventually(lambda: not any(is_running(pid) for pid in before))
    after = [await opened(house, handle) for handle in handles]
    assert not set(before) & set(after)
    assert house.sessions() == {session_name(handle.run_name) for handle in handles}
    for handle in handles:
        assert is_running(handle.pid)
        typed(house, handle, "still there")
        await console_match(handle, b"got still there\n")
        await ended(house, handle)
    assert house.sessions() == set()


async def test_a_session_that_an_operator_ended_is_made_again(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands()))
    first = await opened(house, handle)
    if house.multiplexer == "tmux":
        house.call("kill-server")
    else:
        house.call("-S", exact(house, handle), "-X", "quit")
    await eventually(lambda: not is_running(first))
    second = await opened(house, handle)
    assert first != second
    assert is_running(handle.pid)
    await ended(house, handle)


async def test_what_an_operator_opened_beside_it_ends_with_the_run(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    await opened(house, handle)
    if house.multiplexer == "tmux":
        house.call("new-window", "-t", exact(house, handle), "sleep", "3600")
    else:
        house.call("-S", exact(house, handle), "-X", "screen", "sleep", "3600")
    await ended(house, handle)
    assert house.sessions() == set()


async def test_the_next_daemon_finds_the_window_that_there_is(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=8)))
    pid = await opened(house, handle)
    await house.provider.close()
    provider = await house.next_provider()
    adoption = await provider.adopt(handle.run_directory)
    assert adoption.handle == handle
    assert await opened(house, handle) == pid
    typed(house, handle, "stop")
    assert (await provider.wait_empty(handle)).code == 8
    assert house.sessions() == set()


async def test_the_next_daemon_opens_a_window_that_is_gone(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=8)))
    pid = await opened(house, handle)
    await house.provider.close()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: house.sessions() == set())
    provider = await house.next_provider()
    await provider.adopt(handle.run_directory)
    assert await opened(house, handle) != pid
    await ended(house, handle)


async def test_a_run_that_ends_without_a_daemon_takes_its_session_along(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=8)))
    pid = await opened(house, handle)
    await house.provider.close()
    typed(house, handle, "stop")
    await eventually(lambda: not is_running(pid))
    await eventually(lambda: house.sessions() == set())
    adoption = await (await house.next_provider()).adopt(handle.run_directory)
    assert adoption.exit is not None
    assert adoption.exit.code == 8
    assert read_window(handle.run_directory) is None


async def test_leftovers_of_a_killed_session_go_when_its_end_is_learnt(house: SessionHarness) -> None:
    """Daemon, session and run die at once: the next daemon finds a socket that nobody listens on."""
    handle = await house.provider.start(house.spec(*workloads.silent()))
    await opened(house, handle)
    window = read_window(handle.run_directory)
    assert window is not None
    await house.provider.close()
    os.kill(window.parent, signal.SIGKILL)
    os.kill(handle.pid, signal.SIGKILL)
    await eventually(lambda: not is_running(window.pid) and not is_running(handle.pid))
    provider = await house.next_provider()
    await provider.adopt(handle.run_directory)
    assert (await provider.wait_empty(handle)).signal == signal.SIGKILL
    assert house.sessions() == set()
    assert read_window(handle.run_directory) is None


async def test_a_session_of_that_name_without_a_window_makes_way(house: SessionHarness) -> None:
    """As after a daemon that was killed between two steps, and an operator who opened more windows."""
    spec = house.spec(*workloads.reading_commands(code=2))
    session = session_name(spec.run_name)
    if house.multiplexer == "tmux":
        house.call("new-session", "-d", "-s", session, "sleep", "3600")
    else:
        house.call("-d", "-m", "-S", session, "sleep", "3600")
    await eventually(lambda: house.sessions() == {session})
    handle = await house.provider.start(spec)
    await opened(house, handle)
    assert house.sessions() == {session}
    typed(house, handle, "stop")
    assert (await house.provider.wait_empty(handle)).code == 2
    assert house.sessions() == set()


async def test_a_window_that_stands_still_is_ended_with_the_run(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    os.kill(await opened(house, handle), signal.SIGSTOP)
    await ended(house, handle)
    assert house.sessions() == set()


@pytest.mark.system
async def test_a_client_that_does_not_read_holds_up_nothing(house: SessionHarness) -> None:
    """Attached and stopped, scrolled back, and the window itself stopped: every line is in the console."""
    lines = 120_000
    flood = workloads.chatty(lines=lines, padding=60, then="echo over; read -r x; exit 2")
    script = shell('read -r x; exec "$@"', *flood)
    handle = await house.provider.start(house.spec(*script))
    pid = await opened(house, handle)
    with attached(house, handle) as (client, _):
        if house.multiplexer == "tmux":
            house.call("copy-mode", "-t", exact(house, handle))
        os.kill(client, signal.SIGSTOP)
        await house.provider.send_command(handle, "go")
        await console_match(handle, b"over\n")
        os.kill(pid, signal.SIGSTOP)
        await house.provider.send_command(handle, "end")
        assert (await house.provider.wait_empty(handle)).code == 2
        os.kill(client, signal.SIGCONT)
    output = console_bytes(handle.run_directory).removesuffix(b"over\n")
    read_numbered(output).check(last=lines)


async def test_escape_codes_are_exact_on_disk_and_harmless_in_a_window(house: SessionHarness) -> None:
    """A terminal answers some codes by typing; nobody types commands by writing into a console."""
    codes = "\\033[31mred\\033[0m \\033[6n\\033[c\\033]0;op me\\a\\033[21t\\033P+q544e\\033\\\\ \\302\\233c"
    script = f"printf '{codes} up\\n'; while read -r line; do echo \"got $line\"; done"
    handle = await house.provider.start(house.spec(*shell(script)))
    await opened(house, handle)
    await eventually(lambda: "up" in shown(house, handle), state=lambda: shown(house, handle))
    typed(house, handle, "plain")
    await console_match(handle, b"got plain\n")
    wanted = b"\x1b[31mred\x1b[0m \x1b[6n\x1b[c\x1b]0;op me\x07\x1b[21t\x1bP+q544e\x1b\\ \xc2\x9bc up\n"
    assert console_bytes(handle.run_directory) == wanted + b"got plain\n"
    assert "red ^[[6n^[[c^[]0;op me^G" in shown(house, handle)
    await ended(house, handle)


async def test_hostile_bytes_do_not_end_a_window(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.hostile_bytes()))
    pid = await opened(house, handle)
    await console_match(handle, b"up\n")
    await eventually(lambda: re.search(r"^up", shown(house, handle), re.MULTILINE))
    assert is_running(pid)
    assert console_bytes(handle.run_directory) == workloads.HOSTILE + b"up\n"
    await ended(house, handle)


async def test_a_run_with_a_terminal_gets_keys_and_size(house: SessionHarness) -> None:
    script = shell(
        "trap 'echo heard' INT; stty -echo; echo up; "
        'while :; do if read -r line; then stty size; echo "got $line"; fi; done'
    )
    handle = await house.provider.start(house.spec(*script, tty=True))
    await console_match(handle, b"up\r\n")
    await opened(house, handle)
    with attached(house, handle) as (_, master):
        kept: list[bytes] = []
        await eventually(lambda: b"up" in read_all(master, kept))
        os.write(master, b"\x03")
        await console_match(handle, b"heard\r\n")
        os.write(master, b"hello\r")
        await console_match(handle, rb"3[01] 97\r\ngot hello\r\n")  # tmux takes a line for itself
        await house.provider.send_command(handle, "by order")
        await eventually(lambda: b"got by order" in read_all(master, kept))
    await ended(house, handle)
    assert house.sessions() == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_a_run_of_another_user_is_shown_and_typed_to(house: SessionHarness) -> None:
    for directory in (house.data.parent, house.data, house.data / "running"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    script = shell('id -un; while read -r line; do echo "got $line"; done')
    spec = house.spec(*script, run_as="nobody")
    pathlib.Path(spec.directory).chmod(0o755)
    handle = await house.provider.start(spec)
    pid = await opened(house, handle)
    typed(house, handle, "hello")
    await console_match(handle, b"^nobody\ngot hello\n")
    assert pathlib.Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    await ended(house, handle)


@ONE_MULTIPLEXER
async def test_typing_into_a_run_without_input_is_answered(house: SessionHarness) -> None:
    spec = house.spec(*shell("echo up; exec sleep 3600"), stdin="none")
    handle = await house.provider.start(spec)
    await opened(house, handle)
    typed(house, handle, "hello")
    await eventually(lambda: "has no input" in shown(house, handle), state=lambda: shown(house, handle))
    assert console_bytes(handle.run_directory) == b"up\n"
    await ended(house, handle)


@ONE_MULTIPLEXER
async def test_a_window_that_falls_behind_leaves_out_and_says_so(house: SessionHarness) -> None:
    flood = "yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -n 50000"
    script = shell(f"read -r x; {flood}; echo the end; exec sleep 3600")
    handle = await house.provider.start(house.spec(*script))
    pid = await opened(house, handle)
    os.kill(pid, signal.SIGSTOP)
    await house.provider.send_command(handle, "go")
    await console_match(handle, b"the end\n")
    os.kill(pid, signal.SIGCONT)
    await eventually(lambda: "the end" in shown(house, handle), state=lambda: shown(house, handle)[-300:])
    assert re.search(r"corral: \d+ bytes of the console are left out here", shown(house, handle))
    await ended(house, handle)


async def test_many_sessions_come_and_go_at_once(house: SessionHarness) -> None:
    handles = await asyncio.gather(
        *(house.provider.start(house.spec(*workloads.reading_commands(code=1))) for _ in range(12))
    )
    for handle in handles:
        await opened(house, handle)
    assert len(house.sessions()) == 12
    for handle in handles:
        await house.provider.send_command(handle, "stop")
    ends = await asyncio.gather(*(house.provider.wait_empty(handle) for handle in handles))
    assert {end.code for end in ends} == {1}
    assert house.sessions() == set()


async def test_a_window_that_never_comes_does_not_hold_up_the_end_of_its_run(
    scratch: pathlib.Path, reaper: Reaper
) -> None:
    """As when it is ended with its session before it could say that it is there."""
    asked = scratch / "asked"
    program = scratch / "tmux"
    program.write_text(f'#!/bin/sh\necho "$5" >> {asked}\n')  # the verb comes after socket and file
    program.chmod(0o755)
    node = ProcessHarness(scratch / "node")
    runtime = SessionRuntime(
        ProcessRuntime(node.data, node.cgroups(), name="tmux"), TmuxMultiplexer(program=str(program))
    )
    await runtime.open()
    handle = await runtime.start(node.spec(*workloads.silent()))
    await eventually(lambda: asked.exists() and asked.read_text() == "new-session\n")
    await runtime.kill(handle)
    async with asyncio.timeout(10):
        assert (await runtime.wait_empty(handle)).signal == signal.SIGKILL
    assert asked.read_text() == "new-session\nkill-session\n"
    await runtime.close()
