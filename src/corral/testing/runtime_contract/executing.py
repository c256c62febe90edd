"""Programs that are run beside a workload."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import time

import pytest

from corral.errors import Code, CorralError
from corral.sdk.runtime import RunHandle
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHouse, console_bytes, is_running, said
from corral.testing.waiting import eventually
from corral.testing.workloads import shell


async def _code(house: RuntimeHouse, handle: RunHandle, *command: str, timeout: float = 20.0) -> Code:
    """How an execution is refused."""
    with pytest.raises(CorralError) as caught:
        await house.provider.execute(handle, command, timeout=timeout)
    return caught.value.code


async def _ended(house: RuntimeHouse, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL


def _pid_in(path: pathlib.Path) -> int:
    return int(path.read_text().strip() or 0) if path.exists() else 0


class Executing:
    """Its user, directory, environment and limits are the run's; its exit and its end are its own."""

    async def test_code_and_output_are_told(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        for script, code in (
            ("echo out; echo err >&2; exit 7", 7),
            ("echo out; echo err >&2; kill -9 $$", 137),
        ):
            execution = await house.provider.execute(handle, shell(script), timeout=20)
            assert (execution.code, execution.output) == (code, "out\nerr\n")
        assert is_running(handle.pid)
        await _ended(house, handle)
        assert console_bytes(handle.run_directory) == b""

    async def test_it_runs_as_the_workload_does(self, house: RuntimeHouse) -> None:
        value = "a 'quoted'\nvalue; #{pane_id} %PORT% \u00fc\U0001f40e"
        environment = {"PATH": "/usr/bin:/bin", "GREETING": value}
        spec = house.spec(*workloads.silent(), environment=environment)
        handle = await house.provider.start(spec)
        look = (
            "sh",
            "-c",
            'pwd; umask; id -u; grep NoNewPrivs /proc/self/status; printf %s "$GREETING"; cat',
        )
        wanted = (await house.provider.execute(handle, look, timeout=20)).output
        assert wanted.startswith(f"{spec.directory}\n0027\n")
        assert wanted.endswith(f"NoNewPrivs:\t1\n{value}")
        await house.next_provider()  # which has not started it, and knows no less
        assert (await house.provider.execute(handle, look, timeout=20)).output == wanted
        await _ended(house, handle)

    async def test_of_much_output_the_last_part_is_kept(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        flood = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo the end")
        execution = await house.provider.execute(handle, flood, timeout=20)
        assert (execution.code, len(execution.output)) == (0, 4096)
        assert execution.output.endswith("xxxthe end\n")
        await _ended(house, handle)

    async def test_what_cannot_be_executed_is_said(self, house: RuntimeHouse, tmp_path: pathlib.Path) -> None:
        program = tmp_path / "program"
        program.write_bytes(b"no program\n")
        handle = await house.provider.start(house.spec(*workloads.silent()))
        assert await _code(house, handle, "no-such-command") is Code.COMMAND_NOT_FOUND
        assert await _code(house, handle, str(program)) is Code.NOT_EXECUTABLE
        assert await _code(house, handle, "true", "x" * 200_000) is Code.ARGUMENTS_TOO_LONG
        assert await _code(house, handle, "") is Code.INVALID_FIELD
        assert is_running(handle.pid)
        await _ended(house, handle)

    async def test_many_at_once(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        runs = [
            house.provider.execute(handle, shell("echo $1; exit $1", str(n)), timeout=20) for n in range(20)
        ]
        executions = await asyncio.gather(*runs)
        assert [(e.code, e.output) for e in executions] == [(n, f"{n}\n") for n in range(20)]
        await _ended(house, handle)

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_one_that_takes_too_long_is_killed_with_all_it_started(self, house: RuntimeHouse) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        fleeing = shell("trap '' TERM; (setsid sh -c 'echo $$ > fled; exec sleep 3600' &); sleep 3600")
        began = time.monotonic()
        assert await _code(house, handle, *fleeing, timeout=1.0) is Code.TIMEOUT
        assert time.monotonic() - began < 10
        fled = _pid_in(pathlib.Path(spec.directory, "fled"))
        assert fled
        assert not is_running(fled)
        assert is_running(handle.pid)
        await _ended(house, handle)

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_what_it_leaves_behind_ends_with_it(self, house: RuntimeHouse) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        leaving = shell("setsid sleep 3600 & echo $!; exit 4")
        execution = await house.provider.execute(handle, leaving, timeout=20)
        assert execution.code == 4
        assert not is_running(int(execution.output))
        await _ended(house, handle)

    @pytest.mark.control_groups
    async def test_it_ends_with_the_run_and_neither_is_taken_for_the_other(self, house: RuntimeHouse) -> None:
        spec = house.spec(*workloads.reading_commands(code=9))
        handle = await house.provider.start(spec)
        long = shell("trap '' TERM HUP INT; echo $$ > pid; while :; do sleep 0.1; done")
        execution = asyncio.create_task(_code(house, handle, *long, timeout=60), name="contract/execute")
        pid = await eventually(lambda: _pid_in(pathlib.Path(spec.directory, "pid")))
        assert handle.pid != pid
        await house.provider.send_command(handle, "stop")
        assert (await house.provider.wait_empty(handle)).code == 9
        assert not is_running(pid)
        assert await execution is Code.NOT_RUNNING

    @pytest.mark.control_groups
    async def test_a_kill_of_the_run_ends_it(self, house: RuntimeHouse) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        execution = asyncio.create_task(
            _code(house, handle, *shell("echo $$ > pid; exec sleep 3600"), timeout=60),
            name="contract/execute",
        )
        pid = await eventually(lambda: _pid_in(pathlib.Path(spec.directory, "pid")))
        await _ended(house, handle)
        assert not is_running(pid)
        assert await execution is Code.NOT_RUNNING

    @pytest.mark.control_groups
    async def test_a_caller_who_gives_up_ends_it(self, house: RuntimeHouse) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        execution = asyncio.create_task(
            house.provider.execute(handle, shell("echo $$ > pid; exec sleep 3600"), timeout=60),
            name="contract/execute",
        )
        pid = await eventually(lambda: _pid_in(pathlib.Path(spec.directory, "pid")))
        execution.cancel()
        await asyncio.gather(execution, return_exceptions=True)
        await eventually(lambda: not is_running(pid))
        assert is_running(handle.pid)
        await _ended(house, handle)

    async def test_beside_a_run_that_has_ended_nothing_is_executed(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*workloads.double_forking(stays=False)))
        await house.provider.wait_exit(handle)
        await said(handle, rb"grandchild (\d+)\n")
        assert await _code(house, handle, "true") is Code.NOT_RUNNING
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
        assert await _code(house, handle, "true") is Code.NOT_RUNNING

    @pytest.mark.control_groups
    async def test_the_limits_of_the_run_hold_for_it(self, house: RuntimeHouse) -> None:
        """It is counted among the processes of the run, where something counts them."""
        if not house.provider.capabilities().kill_tree:
            pytest.skip("no control groups on this node")
        handle = await house.provider.start(house.spec(*workloads.silent()))
        own = ("sh", "-c", "cat /proc/self/cgroup")
        groups = (await house.provider.execute(handle, own, timeout=20)).output
        assert groups == pathlib.Path(f"/proc/{handle.pid}/cgroup").read_text()
        await _ended(house, handle)
