"""`corral up` and `corral down` with the real controller and daemon."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import select
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from certificate_files import PairFiles
from people import OTHER, PASSWORD, Person
from stand_in_controller import PROGRAM
from up_process import Up

from corral.pki.keys import new_key
from corral.testing.ports import free_addresses, free_range
from corral.testing.reaper import Reaper
from corral.testing.waiting import eventually

Corral = Callable[..., subprocess.CompletedProcess[str]]
Ports = tuple[str, ...]
Begin = Callable[..., Up]


@pytest.fixture
def ports() -> Ports:
    """Flags with three ports of this test alone; a killed controller finds them free again."""
    http, grpc, bootstrap = free_addresses(3)
    return ("--http", http, "--grpc", grpc, "--bootstrap", bootstrap)


@pytest.fixture
def demo() -> Ports:
    """Flags for a demo on ports of this test alone: another may run on this machine."""
    first, last = free_range(12)
    return ("--demo", "--demo-ports", str(first), str(last))


@pytest.fixture
def up(home: dict[str, str], tmp_path: pathlib.Path, ports: Ports) -> Iterator[Begin]:
    begun: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> Up:
        begun.append(
            subprocess.Popen(
                [*PROGRAM, "up", "--data", str(tmp_path / "d"), *ports, *flags],
                env=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return Up(begun[-1])

    yield start
    for process in begun:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def access(tmp_path: pathlib.Path) -> Callable[[Up], dict[str, str]]:
    """Environment of a command that talks to this `up` as its administrator."""
    return lambda up: {
        "CORRAL_URL": up.url,
        "CORRAL_TOKEN": (tmp_path / "d" / "admin.token").read_text().strip(),
    }


def gone(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)


@pytest.mark.system
def test_at_a_terminal_the_progress_is_cleared_before_the_announcement(
    home: dict[str, str], tmp_path: pathlib.Path, ports: Ports
) -> None:
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "up", "--data", str(tmp_path / "d"), *ports]
    with subprocess.Popen(command, env=home, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while b"ready: " not in seen:
                seen += os.read(ours, 65_536)
        finally:
            process.terminate()
            process.wait(timeout=60)
            os.close(ours)
    assert b"starting the controller\r\x1b[Kfirst-admin: http" in seen


@pytest.mark.system
def test_a_token_that_is_void_is_named_with_what_helps(
    up: Begin, corral: Corral, home: dict[str, str], tmp_path: pathlib.Path, ports: Ports
) -> None:
    first = up()
    first.process.terminate()
    assert first.process.wait(timeout=60) == 0
    for place in ("d", "d/controller"):
        (tmp_path / place / "admin.token").write_text("corral_" + "a" * 43)
    again = corral("up", "--data", str(tmp_path / "d"), *ports)
    assert again.returncode == 1
    assert f"the administrator's token in {tmp_path / 'd' / 'admin.token'} is not accepted" in again.stderr
    assert f"corral controller admin-token --data {tmp_path / 'd' / 'controller'}; then" in again.stderr
    made = corral("controller", "admin-token", "--data", str(tmp_path / "d" / "controller"))
    assert made.returncode == 0, made.stderr
    assert up().url


@pytest.mark.system
@pytest.mark.parametrize("mode", ["cluster", "files"])
def test_a_cluster_with_tls_prints_what_a_login_needs(
    up: Begin, corral: Corral, home: dict[str, str], tmp_path: pathlib.Path, mode: str
) -> None:
    home["CORRAL_HTTP_TLS_MODE"] = mode
    if mode == "files":
        pair = PairFiles(tmp_path)
        pair.write(new_key(), 1)
        home |= {
            "CORRAL_HTTP_TLS_CERTIFICATE": str(pair.certificate),
            "CORRAL_HTTP_TLS_KEY": str(pair.key),
        }
    first = up()
    assert first.url.startswith("https://127.0.0.1:")
    command = shlex.split(first.printed["login"])
    assert command[:3] == ["corral", "login", first.url]
    if mode == "files":  # who has such a certificate knows how it is trusted, and under which name
        command[2] = first.url.replace("127.0.0.1", "localhost")
        command += ["--ca", str(pair.certificate)]
    free: dict[str, Any] = {"CORRAL_URL": None, "CORRAL_TOKEN": None}
    done = corral(*command[1:], **free)
    assert done.returncode == 0, done.stderr
    assert corral("node", "list", "-o", "name", **free).stdout.strip()


@pytest.mark.system
async def test_a_whole_cluster_comes_up_survives_deaths_and_goes_down(
    up: Begin, corral: Corral, access: Callable[[Up], dict[str, str]], tmp_path: pathlib.Path, ports: Ports
) -> None:
    data = tmp_path / "d"
    first = up()
    token = data / "admin.token"
    assert first.printed["login"] == f"corral login {first.url} --token-file {token}"
    assert token.stat().st_mode & 0o777 == 0o600
    at = access(first)
    node = corral("node", "list", "-o", "name", **at).stdout.strip()
    assert corral("node", "info", node, "--wait", "ONLINE", "--timeout", "30s", **at).returncode == 0

    again = corral("up", "--data", str(data), *ports)
    assert again.returncode == 1
    assert f"is in use by another up (pid {first.process.pid})" in again.stderr

    for role in ("daemon", "controller"):
        os.kill(first.children()[role], signal.SIGKILL)
        first.expect(f"the {role} died (killed by SIGKILL)")
        await eventually(lambda: set(first.children()) == {"controller", "daemon"})
        await eventually(lambda: corral("node", "info", node, "--wait", "ONLINE", **at).returncode == 0)

    done = corral("down", "--data", str(data))
    assert (done.returncode, done.stdout) == (0, f"ended 'up' (pid {first.process.pid})\n")
    assert first.process.wait(timeout=30) == 0
    first.expect("detached: no instance runs")
    assert not (data / "up.pid").exists()


@pytest.mark.system
async def test_the_printed_address_makes_the_first_administrator_once(
    up: Begin, tmp_path: pathlib.Path
) -> None:
    root, late = Person(tmp_path / "root"), Person(tmp_path / "late")
    first = up()
    printed = first.printed["first-admin"]
    assert printed.startswith(f"{first.url}/first-admin#")
    os.kill(first.children()["controller"], signal.SIGKILL)
    anew = first.next_printed("first-admin")
    assert anew.startswith(f"{first.url}/first-admin#")
    given = ("login", "--first-admin", "-", "--user", "ada", "--password-file")
    void = await late.run(*given, late.file("password", OTHER), input=printed)
    assert (void.returncode, "the code is unknown, used or expired" in void.stderr) == (1, True)
    done = await root.run(*given, root.file("password", PASSWORD), input=f"first-admin: {anew}\n")
    assert done.returncode == 0, done.stderr
    assert (await root.run("user", "list", "-o", "name")).stdout.split() == ["ada", "admin"]
    used = await late.run(*given, late.file("password", OTHER), input=anew)
    assert used.returncode == 1
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0
    second = up()
    assert "first-admin" not in second.printed
    assert (await root.run("whoami")).returncode == 0, "the session is still there"


@pytest.mark.system
def test_a_controller_that_was_shut_down_ends_up_and_leaves_what_runs(
    up: Begin, corral: Corral, access: Callable[[Up], dict[str, str]]
) -> None:
    first = up()
    children = [os.pidfd_open(pid) for pid in first.children().values()]
    assert corral("cluster", "shutdown", "--yes", **access(first)).returncode == 0
    first.expect("the controller has ended with 0, as 'corral cluster shutdown' orders it")
    first.expect("detached: no instance runs")
    assert first.process.wait(timeout=60) == 0
    assert all(gone(each) for each in children)


@pytest.mark.system
def test_a_daemon_that_was_shut_down_is_not_started_again(
    up: Begin, corral: Corral, access: Callable[[Up], dict[str, str]]
) -> None:
    first = up()
    at = access(first)
    node = corral("node", "list", "-o", "name", **at).stdout.strip()
    assert corral("node", "shutdown", node, "--wait", "--yes", "--timeout", "60s", **at).returncode == 0
    first.expect("the daemon has ended with 0, as 'corral node shutdown' orders it, and is not started again")
    assert set(first.children()) == {"controller"}
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0
    second = up()
    at = access(second)
    assert corral("node", "info", node, "--wait", "ONLINE", **at).returncode == 0
    assert "drained" in corral("node", "list", **at).stdout
    assert corral("node", "undrain", node, **at).stdout == f"node '{node}' takes new instances\n"
    assert set(second.children()) == {"controller", "daemon"}, "it is not ended again"


@pytest.mark.system
def test_what_was_enrolled_comes_up_again_and_ends_when_up_is_killed(
    up: Begin, corral: Corral, tmp_path: pathlib.Path, reaper: Reaper
) -> None:
    first = up()
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0
    second = up()
    assert second.url.startswith("http://127.0.0.1:")
    children = {role: os.pidfd_open(pid) for role, pid in second.children().items()}
    assert set(children) == {"controller", "daemon"}
    second.process.kill()
    for role, pidfd in children.items():
        assert gone(pidfd), f"the {role} outlived 'up'"
    assert corral("down", "--data", str(tmp_path / "d")).stdout == "nothing runs here\n"


@pytest.mark.system
def test_a_restored_database_is_taken_with_the_flag_that_is_named(
    up: Begin, corral: Corral, access: Callable[[Up], dict[str, str]], tmp_path: pathlib.Path, ports: Ports
) -> None:
    def ended(running: Up) -> None:
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=60) == 0

    ended(up())
    database = tmp_path / "d" / "controller" / "corral.db"
    copy = database.read_bytes()
    second = up()
    assert corral("token", "create", "lost", "--role", "VIEWER", **access(second)).returncode == 0
    ended(second)
    database.write_bytes(copy)
    refused = corral("up", "--data", str(tmp_path / "d"), *ports)
    assert refused.returncode == 1
    assert "--accept-older-store" in refused.stderr
    taken = up("--accept-older-store")
    assert "lost" not in corral("token", "list", **access(taken)).stdout
    ended(taken)


def running(corral: Corral, at: dict[str, str]) -> dict[str, int]:
    """Process id by instance of those that run."""
    listed = corral("instance", "list", "-o", "json", **at)
    assert listed.returncode == 0, listed.stderr
    items = json.loads(listed.stdout)["items"]
    return {item["id"]: item["pid"] for item in items if item["state"] == "RUNNING"}


@pytest.mark.system
async def test_the_demo_outlives_up_is_minded_again_and_goes_down(
    up: Begin,
    corral: Corral,
    access: Callable[[Up], dict[str, str]],
    tmp_path: pathlib.Path,
    reaper: Reaper,
    demo: Ports,
) -> None:
    data = str(tmp_path / "d")
    first = up(*demo)
    assert first.printed["demo"].startswith("group 'lobby' with 2 of 2 instances: lobby-")
    assert first.printed["module"].startswith("'stats-aggregator' 1.0.0 is ACTIVE")
    before = running(corral, access(first))
    assert len(before) == 2
    pidfds = [os.pidfd_open(pid) for pid in before.values()]

    os.kill(int((tmp_path / "d" / "daemon" / "daemon.lock").read_text()), signal.SIGKILL)
    first.expect("the daemon died (killed by SIGKILL)")
    await eventually(lambda: running(corral, access(first)) == before)

    first.process.send_signal(signal.SIGINT)
    told = first.expect("detached: ")
    assert told == f"detached: 2 instances keep running ({', '.join(sorted(before))})"
    first.expect(f"'corral down --data {data}' stops them")
    assert first.process.wait(timeout=60) == 0
    assert select.select(pidfds, [], [], 0)[0] == []

    second = up(*demo)
    assert "2 of 2 instances" in second.printed["demo"]
    await eventually(lambda: running(corral, access(second)) == before)

    done = corral("down", "--data", data)
    assert done.returncode == 0, done.stderr
    names = ", ".join(sorted(before))
    assert done.stdout == f"ended 'up' (pid {second.process.pid}); stopped 2 instances: {names}\n"
    for pidfd in pidfds:
        assert gone(pidfd)
    assert second.process.wait(timeout=30) == 0
    assert reaper.survivors() == []

    third = up(*demo)
    fresh = running(corral, access(third))
    assert all(f"{id} on port" in third.printed["demo"] for id in fresh)
    assert set(fresh.values()).isdisjoint(before.values())
    assert corral("down", "--data", data).returncode == 0
    assert reaper.survivors() == []


@pytest.mark.system
def test_down_stops_what_an_interrupted_up_left(
    up: Begin, corral: Corral, tmp_path: pathlib.Path, reaper: Reaper, demo: Ports
) -> None:
    first = up(*demo)
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0
    done = corral("down", "--data", str(tmp_path / "d"), "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["pid"], len(answer["stopped"])) == (None, 2)
    assert reaper.survivors() == []
    assert corral("down", "--data", str(tmp_path / "d")).stdout == "nothing runs here\n"
