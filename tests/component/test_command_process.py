"""The process of a command, with programs that misbehave, and with the real one whose controller is killed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from corral.controller.commands.command_process import (
    KILLED,
    OUTPUT_MAX,
    CommandEnd,
    CommandProgram,
    CommandRunner,
)
from corral.testing.waiting import eventually


async def run(tmp_path: pathlib.Path, script: str, *, seconds: float = 20) -> CommandEnd:
    program = CommandProgram(argv=(sys.executable, "-I", "-c", script), words=frozenset({"x"}))
    runner = CommandRunner(program, data=tmp_path)
    runner.clear()
    end = await runner.run(
        ["x"],
        credential="secret",
        request="req-1",
        seconds=seconds,
        closing=asyncio.get_running_loop().create_future(),
    )
    assert not list(runner.directory.iterdir())
    return end


RESULT = """
import json, os, sys
order = json.loads(sys.stdin.buffer.read())
os.write(2, b'{"exit_code": 0}')
"""


async def test_output_without_end_is_read_to_its_end_and_kept_to_its_bound(tmp_path: pathlib.Path) -> None:
    end = await run(tmp_path, RESULT + "for _ in range(100): os.write(1, b'0123456789' * 8000)")
    assert (end.exit_code, end.error) == (0, None)
    assert len(end.output[0]) == OUTPUT_MAX
    assert end.output[-1] == f"({100 * 80_000 - OUTPUT_MAX} bytes more are left out)"
    lines = await run(tmp_path, RESULT + "os.write(1, b'\\n' * 20_000)")
    assert (len(lines.output), lines.output[-1]) == (5001, "(15000 lines more are left out)")


async def test_what_would_steer_a_terminal_is_spelled_out(tmp_path: pathlib.Path) -> None:
    end = await run(tmp_path, RESULT + r"os.write(1, b'a\tb\x1b[2J\xff\r\nc')")
    assert end.output == ("a\tbU+001B[2J\ufffdU+000D", "c")


async def test_a_child_gets_no_environment_and_an_empty_directory_and_sees_no_terminal(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_TOKEN", "of-the-controller")
    end = await run(
        tmp_path,
        RESULT
        + "print(sorted(os.environ), os.listdir('.'), os.getsid(0) == os.getpid(), order['words'], order['credential'])\n"
        + "print(sorted(int(each) for each in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + each)))",
    )
    assert end.output == ("['LC_ALL'] [] True ['x'] secret", "[0, 1, 2]")


async def test_a_program_that_hangs_or_forks_is_gone_when_its_time_is_up(tmp_path: pathlib.Path) -> None:
    script = "import os, time\nprint(os.getpid(), flush=True)\npid = os.fork()\nprint('child', flush=True)\ntime.sleep(600)"
    end = await run(tmp_path, script, seconds=1)
    assert (end.exit_code, end.error is not None and end.error.code) == (KILLED, "TIMEOUT")
    group = int(end.output[0])

    def is_gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(is_gone)


async def test_a_program_that_ends_without_a_result_is_an_error(tmp_path: pathlib.Path) -> None:
    for script in (
        "import os; os.kill(os.getpid(), 9)",
        "raise ValueError('a secret')",
        RESULT + "os.write(2, b'x')",
    ):
        end = await run(tmp_path, script)
        assert end.exit_code != 0
        assert end.error is not None
        assert end.error.code == "INTERNAL"
        assert "a secret" not in str(end)


CONTROLLER = """
import asyncio, pathlib, socket, sys
from corral.cli.executed.program import PROGRAM
from corral.controller.commands.command_process import CommandRunner

async def main():
    runner = CommandRunner(PROGRAM, data=pathlib.Path(sys.argv[1]))
    runner.clear()
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(str(runner.socket_path))
    silent.listen()
    closing = asyncio.get_running_loop().create_future()
    asked = runner.run(["whoami"], credential="x", request="req-1", seconds=600, closing=closing)
    running = asyncio.ensure_future(asked)
    connection, _ = await asyncio.get_running_loop().run_in_executor(None, silent.accept)
    print("asked", flush=True)
    await running

asyncio.run(main())
"""


async def test_a_controller_that_is_killed_leaves_no_child(tmp_path: pathlib.Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        assert await asyncio.to_thread(controller.stdout.readline) == "asked\n"
        children = pathlib.Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text().split()
        assert len(children) == 1
        controller.kill()
        controller.wait()
    await eventually(lambda: not pathlib.Path(f"/proc/{children[0]}/exe").exists())
