"""The contract of programs beside a workload: those that are executed once, and those that stay."""

from __future__ import annotations

import asyncio
import pathlib
import signal

import pytest

from corral.errors import Code, CorralError
from corral.sdk.runtime import RunHandle, SideRun
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHarness, console_bytes, console_match, is_running
from corral.testing.waiting import eventually
from corral.testing.workloads import shell


async def _code(house: RuntimeHarness, handle: RunHandle, *command: str, timeout: float = 20.0) -> Code:
    """The code of a refused execution."""
    with pytest.raises(CorralError) as caught:
        await house.provider.execute(handle, command, timeout=timeout)
    return caught.value.code


async def _ended(house: RuntimeHarness, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL


def _pid_in(path: pathlib.Path) -> int:
    return int(path.read_text().strip() or 0) if path.exists() else 0


class Executing:
    """Its user, directory, environment and limits are the run's; its exit and its end are its own."""

    async def test_code_and_output_are_reported(self, house: RuntimeHarness) -> None:
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

    async def test_it_runs_as_the_workload_does(self, house: RuntimeHarness) -> None:
        value = "a 'quoted'\nvalue; #{pane_id} %PORT% \u00fc\U0001f40e"
        environment = {"PATH": "/usr/bin:/bin", "GREETING": value}
        spec = house.spec(*workloads.silent(), environment=environment)
        handle = await house.provider.start(spec)
        look = (
            "sh",
            "-c",
            'pwd; umask; id -u; grep NoNewPrivs /proc/self/status; printf %s "$GREETING"; cat',
        )
        expected = (await house.provider.execute(handle, look, timeout=20)).output
        assert expected.startswith(f"{spec.directory}\n0027\n")
        assert expected.endswith(f"NoNewPrivs:\t1\n{value}")
        await house.next_provider()  # which has not started it, and has the same state
        assert (await house.provider.execute(handle, look, timeout=20)).output == expected
        await _ended(house, handle)

    async def test_of_much_output_the_last_part_is_kept(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        flood = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo the end")
        execution = await house.provider.execute(handle, flood, timeout=20)
        assert (execution.code, len(execution.output)) == (0, 4096)
        assert execution.output.endswith("xxxthe end\n")
        await _ended(house, handle)

    async def test_what_cannot_be_executed_is_reported(
        self, house: RuntimeHarness, tmp_path: pathlib.Path
    ) -> None:
        program = tmp_path / "program"
        program.write_bytes(b"no program\n")
        handle = await house.provider.start(house.spec(*workloads.silent()))
        assert await _code(house, handle, "no-such-command") is Code.COMMAND_NOT_FOUND
        assert await _code(house, handle, str(program)) is Code.NOT_EXECUTABLE
        assert await _code(house, handle, "true", "x" * 200_000) is Code.ARGUMENTS_TOO_LONG
        assert await _code(house, handle, "") is Code.INVALID_FIELD
        assert is_running(handle.pid)
        await _ended(house, handle)

    async def test_many_at_once(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        runs = [
            house.provider.execute(handle, shell("echo $1; exit $1", str(n)), timeout=20) for n in range(20)
        ]
        executions = await asyncio.gather(*runs)
        assert [(e.code, e.output) for e in executions] == [(n, f"{n}\n") for n in range(20)]
        await _ended(house, handle)

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_one_that_takes_too_long_is_killed_with_all_it_started(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        fleeing = shell("trap '' TERM; (setsid sh -c 'echo $$ > fled; exec sleep 3600' &); sleep 3600")
        for timeout in (1.0, 4.0, 16.0):  # on a busy machine it takes longer to get so far
            assert await _code(house, handle, *fleeing, timeout=timeout) is Code.TIMEOUT
            if fled := _pid_in(pathlib.Path(spec.directory, "fled")):
                break
        assert fled
        assert not is_running(fled)
        assert is_running(handle.pid)
        await _ended(house, handle)

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_what_it_leaves_behind_ends_with_it(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        leaving = shell("setsid sleep 3600 & echo $!; exit 4")
        execution = await house.provider.execute(handle, leaving, timeout=20)
        assert execution.code == 4
        assert not is_running(int(execution.output))
        await _ended(house, handle)

    @pytest.mark.control_groups
    async def test_it_ends_with_the_run_and_neither_is_taken_for_the_other(
        self, house: RuntimeHarness
    ) -> None:
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
    async def test_a_kill_of_the_run_ends_it(self, house: RuntimeHarness) -> None:
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
    async def test_a_caller_who_gives_up_ends_it(self, house: RuntimeHarness) -> None:
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

    async def test_beside_a_run_that_has_ended_nothing_is_executed(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.double_forking(stays=False)))
        await house.provider.wait_exit(handle)
        await console_match(handle, rb"grandchild (\d+)\n")
        assert await _code(house, handle, "true") is Code.NOT_RUNNING
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
        assert await _code(house, handle, "true") is Code.NOT_RUNNING

    @pytest.mark.control_groups
    async def test_the_limits_of_the_run_hold_for_it(self, house: RuntimeHarness) -> None:
        """The program counts among the processes of the run, where control groups count them."""
        if not house.provider.capabilities().kill_tree:
            pytest.skip("no control groups on this node")
        handle = await house.provider.start(house.spec(*workloads.silent()))
        own = ("sh", "-c", "cat /proc/self/cgroup")
        groups = (await house.provider.execute(handle, own, timeout=20)).output
        assert groups == pathlib.Path(f"/proc/{handle.pid}/cgroup").read_text()
        await _ended(house, handle)


async def _side(house: RuntimeHarness, handle: RunHandle, name: str) -> SideRun | None:
    return next((side for side in await house.provider.list_beside(handle) if side.name == name), None)


async def _when_ended(house: RuntimeHarness, handle: RunHandle, name: str) -> SideRun:
    while (side := await _side(house, handle, name)) is None or side.running:
        await asyncio.sleep(0.01)
    return side


async def _spawned(house: RuntimeHarness, handle: RunHandle, *command: str, name: str = "side") -> SideRun:
    return await house.provider.spawn_beside(handle, name, command, {})


async def _refusals(house: RuntimeHarness, handle: RunHandle) -> list[Code]:
    codes = []
    for name, command in (("side", "no-such-command"), ("Side", "true"), ("../side", "true"), ("side", "")):
        with pytest.raises(CorralError) as caught:
            await _spawned(house, handle, command, name=name)
        codes.append(caught.value.code)
    return codes


class Accompanying:
    """Its user, directory, environment and limits are the run's. It ends with the run, and how it ends is
    its own."""

    @pytest.mark.control_groups
    async def test_a_companion_runs_as_the_workload_does_and_its_end_is_reported(
        self, house: RuntimeHarness
    ) -> None:
        spec = house.spec(*workloads.silent(), environment={"PATH": "/usr/bin:/bin", "GREETING": "hé"})
        handle = await house.provider.start(spec)
        look = ("sh", "-c", 'pwd; printf "%s %s\\n" "$GREETING" "$MORE"; cat /proc/self/cgroup >&2; exit 7')
        side = await house.provider.spawn_beside(handle, "look", look, {"MORE": "yes"})
        assert (side.name, side.command) == ("look", look)
        assert side.pid not in (0, handle.pid)
        async with asyncio.timeout(20):
            ended = await _when_ended(house, handle, "look")
        assert ended.exit is not None
        assert (ended.exit.known, ended.exit.code, ended.exit.signal) == (True, 7, 0)
        groups = pathlib.Path(f"/proc/{handle.pid}/cgroup").read_text()
        expected = f"{spec.directory}\nhé yes\n"
        assert ended.output.startswith(expected)
        if house.provider.capabilities().kill_tree:
            assert ended.output == expected + groups
        assert await _refusals(house, handle) == [Code.COMMAND_NOT_FOUND, *[Code.INVALID_FIELD] * 3]
        assert [side.name for side in await house.provider.list_beside(handle)] == ["look"]
        assert is_running(handle.pid)
        await house.provider.kill(handle)
        async with asyncio.timeout(20):
            assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL
        assert console_bytes(handle.run_directory) == b""

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_there_is_one_of_a_name_and_it_ends_with_the_run_and_all_it_started(
        self, house: RuntimeHarness
    ) -> None:
        spec = house.spec(*workloads.reading_commands(code=9))
        handle = await house.provider.start(spec)
        long = shell("setsid sleep 3600 & echo $! > fled; wait")
        sides = await asyncio.gather(*(_spawned(house, handle, *long) for _ in range(3)))
        assert {side.pid for side in sides} == {sides[0].pid}
        await house.next_provider()  # which has not started it, and has the same state
        assert (await _spawned(house, handle, *long)).pid == sides[0].pid
        assert await house.provider.stop_beside(handle, "other", grace=1) is None
        stopped = await house.provider.stop_beside(handle, "side", grace=20)
        assert stopped is not None
        assert stopped.exit is not None
        assert stopped.exit.signal == signal.SIGTERM
        assert not is_running(sides[0].pid)
        fled_file = pathlib.Path(spec.directory, "fled")
        fled_file.unlink(missing_ok=True)
        again = await _spawned(house, handle, *long)
        assert again.pid != sides[0].pid
        fled = await eventually(lambda: int(fled_file.read_text() or 0) if fled_file.exists() else 0)
        await house.provider.send_command(handle, "stop")
        async with asyncio.timeout(20):
            assert (await house.provider.wait_exit(handle)).code == 9
            assert (await house.provider.wait_empty(handle)).code == 9
        assert not is_running(again.pid)
        assert not is_running(fled)
        (last,) = await house.provider.list_beside(handle)
        assert last.exit is not None
        assert last.exit.signal == signal.SIGTERM
        with pytest.raises(CorralError) as caught:
            await _spawned(house, handle, "true")
        assert caught.value.code is Code.NOT_RUNNING
