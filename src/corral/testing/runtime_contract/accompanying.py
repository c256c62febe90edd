"""Programs that stay beside a workload."""

from __future__ import annotations

import asyncio
import pathlib
import signal

import pytest

from corral.errors import Code, CorralError
from corral.sdk.runtime import RunHandle, SideRun
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHouse, console_bytes, is_running
from corral.testing.waiting import eventually
from corral.testing.workloads import shell


async def _side(house: RuntimeHouse, handle: RunHandle, name: str) -> SideRun | None:
    return next((side for side in await house.provider.list_beside(handle) if side.name == name), None)


async def _when_ended(house: RuntimeHouse, handle: RunHandle, name: str) -> SideRun:
    while (side := await _side(house, handle, name)) is None or side.running:
        await asyncio.sleep(0.01)
    return side


async def _spawned(house: RuntimeHouse, handle: RunHandle, *command: str, name: str = "side") -> SideRun:
    return await house.provider.spawn_beside(handle, name, command, {})


async def _refusals(house: RuntimeHouse, handle: RunHandle) -> list[Code]:
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
    async def test_a_companion_runs_as_the_workload_does_and_its_end_is_told(
        self, house: RuntimeHouse
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
        wanted = f"{spec.directory}\nhé yes\n"
        assert ended.output.startswith(wanted)
        if house.provider.capabilities().kill_tree:
            assert ended.output == wanted + groups
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
        self, house: RuntimeHouse
    ) -> None:
        spec = house.spec(*workloads.reading_commands(code=9))
        handle = await house.provider.start(spec)
        long = shell("setsid sleep 3600 & echo $! > fled; wait")
        sides = await asyncio.gather(*(_spawned(house, handle, *long) for _ in range(3)))
        assert {side.pid for side in sides} == {sides[0].pid}
        await house.next_provider()  # which has not started it, and knows no less
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
