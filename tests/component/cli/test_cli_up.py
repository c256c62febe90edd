"""`corral up` and `corral down` with the real controller and daemon."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from stand_in_controller import PROGRAM

from corral.testing.ports import free_addresses
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

Corral = Callable[..., subprocess.CompletedProcess[str]]
HTTP, GRPC = free_addresses(2)
ANY_PORTS = ("--http", HTTP, "--grpc", GRPC)
"""Below the range for outgoing connections: a killed controller must find its ports free again."""


class Up:
    """A running `up`: what it printed, and the processes below it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.login = process.stdout.readline()
        self.ready = process.stdout.readline()

    @property
    def url(self) -> str:
        return self.ready.removeprefix("ready: ").strip()

    def children(self) -> dict[str, int]:
        """Process id by role."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found: dict[str, int] = {}
        for pid in tasks.read_text().split():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            found[command[command.index("corral.cli") + 1]] = int(pid)
        return found


@pytest.fixture
def up(home: dict[str, str], tmp_path: pathlib.Path) -> Iterator[Callable[[], Up]]:
    begun: list[subprocess.Popen[str]] = []

    def start() -> Up:
        begun.append(
            subprocess.Popen(
                [*PROGRAM, "up", "--data", str(tmp_path / "d"), *ANY_PORTS],
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


def gone(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)


async def test_a_whole_cluster_comes_up_survives_deaths_and_goes_down(
    up: Callable[[], Up], corral: Corral, tmp_path: pathlib.Path
) -> None:
    data = tmp_path / "d"
    first = up()
    token = data / "admin.token"
    assert first.login == f"login: corral login {first.url} --token $(cat {token})\n"
    assert token.stat().st_mode & 0o777 == 0o600
    at = {"CORRAL_URL": first.url, "CORRAL_TOKEN": token.read_text().strip()}
    node = corral("node", "list", "-o", "name", **at).stdout.strip()
    assert corral("node", "info", node, "--wait", "ONLINE", "--timeout", "30s", **at).returncode == 0

    again = corral("up", "--data", str(data), *ANY_PORTS)
    assert again.returncode == 1
    assert f"is in use by another up (pid {first.process.pid})" in again.stderr

    assert first.process.stderr is not None
    for role in ("daemon", "controller"):
        os.kill(first.children()[role], signal.SIGKILL)
        assert f"the {role} died (killed by SIGKILL)" in first.process.stderr.readline()
        await eventually(lambda: set(first.children()) == {"controller", "daemon"})
        await eventually(lambda: corral("node", "info", node, "--wait", "ONLINE", **at).returncode == 0)

    done = corral("down", "--data", str(data))
    assert (done.returncode, done.stdout) == (0, f"ended 'up' (pid {first.process.pid})\n")
    assert first.process.wait(timeout=30) == 0
    assert "detached: instances keep running" in first.process.stderr.read()
    assert not (data / "up.pid").exists()


def test_what_was_enrolled_comes_up_again_and_ends_when_up_is_killed(
    up: Callable[[], Up], corral: Corral, tmp_path: pathlib.Path
) -> None:
    first = up()
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(timeout=60) == 0
    second = up()
    assert second.ready.startswith("ready: http://127.0.0.1:")
    children = {role: os.pidfd_open(pid) for role, pid in second.children().items()}
    assert set(children) == {"controller", "daemon"}
    second.process.kill()
    for role, pidfd in children.items():
        assert gone(pidfd), f"the {role} outlived 'up'"
    assert corral("down", "--data", str(tmp_path / "d")).stdout == "nothing runs here\n"
