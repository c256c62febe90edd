"""How a run ends."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from corral.errors import Code, CorralError
from corral.sdk.runtime import RunHandle, RunLimits
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHouse, console_bytes, is_running, said
from corral.testing.waiting import DEADLINE, eventually
from corral.testing.workloads import shell


class Ending:
    """How a run ends."""

    @pytest.mark.trap("T47")
    async def test_exit_137_and_sigkill_are_told_apart(self, house: RuntimeHouse) -> None:
        provider = house.provider
        exits = await provider.start(house.spec(*workloads.crashing(code=137)))
        killed = await provider.start(house.spec(*workloads.crashing(signal=signal.SIGKILL)))
        first, second = await provider.wait_empty(exits), await provider.wait_empty(killed)
        assert (first.known, first.code, first.signal) == (True, 137, 0)
        assert (second.known, second.code, second.signal) == (True, 0, signal.SIGKILL)
        assert not second.oom_killed

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV, signal.SIGUSR1])
    async def test_the_signal_that_ended_it_is_known(self, house: RuntimeHouse, number: int) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        await house.provider.signal(handle, number)
        ended = await house.provider.wait_empty(handle)
        assert (ended.known, ended.code, ended.signal) == (True, 0, number)

    @pytest.mark.control_groups
    async def test_a_signal_reaches_every_process(self, house: RuntimeHouse) -> None:
        tree = shell(
            "for n in 1 2 3; do sh -c 'trap \"echo heard; exit\" TERM; echo up; while :; do sleep 0.05; done' & done; trap : TERM; wait; wait; wait; echo over"
        )
        handle = await house.provider.start(house.spec(*tree))
        await eventually(lambda: console_bytes(handle.run_directory).count(b"up\n") == 3)
        await house.provider.signal(handle, signal.SIGTERM)
        await house.provider.wait_empty(handle)
        assert console_bytes(handle.run_directory).count(b"heard\n") == 3

    @pytest.mark.control_groups
    async def test_what_ignores_signals_is_killed(self, house: RuntimeHouse) -> None:
        deaf = shell("trap '' TERM INT HUP QUIT USR1 USR2; echo up; while :; do sleep 0.05; done")
        handle = await house.provider.start(house.spec(*deaf))
        await said(handle, b"up\n")
        await house.provider.signal(handle, signal.SIGTERM)
        assert is_running(handle.pid)
        await house.provider.kill(handle)
        assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_a_grandchild_that_fled_is_part_of_the_run(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*workloads.double_forking(stays=False)))
        assert (await house.provider.wait_exit(handle)).code == 0
        grandchild = int((await said(handle, rb"grandchild (\d+)\n"))[1])
        emptied = asyncio.create_task(house.provider.wait_empty(handle), name="contract/wait-empty")
        await asyncio.wait([emptied], timeout=0.3)
        assert not emptied.done()
        assert is_running(grandchild)
        await house.provider.kill(handle)
        assert (await emptied).code == 0
        assert not is_running(grandchild)

    @pytest.mark.control_groups
    async def test_killing_what_is_gone_is_harmless(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec("true"))
        await house.provider.wait_empty(handle)
        await house.provider.kill(handle)
        await house.provider.signal(handle, signal.SIGTERM)
        assert (await house.provider.wait_empty(handle)).code == 0

    @pytest.mark.trap("T59")
    @pytest.mark.control_groups
    async def test_a_frozen_run_hears_signals_and_dies(self, house: RuntimeHouse) -> None:
        provider = house.provider
        polite = shell("trap 'echo bye; exit 6' TERM; echo up; while :; do sleep 0.05; done")
        first, second = [await provider.start(house.spec(*polite)) for _ in range(2)]
        if not provider.capabilities().freeze:
            with pytest.raises(CorralError) as caught:
                await provider.set_frozen(first, True)
            assert caught.value.code is Code.NOT_SUPPORTED
        for handle in (first, second):
            await said(handle, b"up\n")
            if provider.capabilities().freeze:
                await provider.set_frozen(handle, True)
        await provider.signal(first, signal.SIGTERM)
        await provider.kill(second)
        async with asyncio.timeout(DEADLINE):
            assert (await provider.wait_empty(first)).code == 6
            assert (await provider.wait_empty(second)).signal == signal.SIGKILL

    @pytest.mark.control_groups
    async def test_stats_count_what_runs(self, house: RuntimeHouse) -> None:
        handle = await house.provider.start(house.spec(*shell("sleep 3600 & sleep 3600")))
        stats = await eventually(lambda: _counted(house, handle, 3))
        assert stats.memory_bytes > 0
        found = await house.provider.processes(handle)
        assert found is None or (len(found) == 3 and handle.pid in found)
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
        assert not await house.provider.processes(handle)

    @pytest.mark.control_groups
    async def test_memory_beyond_the_limit_ends_it_with_the_reason(self, house: RuntimeHouse) -> None:
        if not house.provider.capabilities().memory_limit:
            pytest.skip("no memory limits on this node")
        spec = house.spec(*workloads.allocating(256), limits=RunLimits(memory_mb=64))
        handle = await house.provider.start(spec)
        ended = await house.provider.wait_exit(handle)
        assert (ended.signal, ended.oom_killed) == (signal.SIGKILL, True)
        assert await house.provider.wait_empty(handle) == ended


async def _counted(house: RuntimeHouse, handle: RunHandle, processes: int) -> Any:
    stats = await house.provider.stats(handle)
    return stats if stats.processes == processes else None
