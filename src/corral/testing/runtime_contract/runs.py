"""The contract of runs: how they start, and how they end."""

from __future__ import annotations

import asyncio
import pathlib
import signal
from typing import Any

import pytest

from corral.errors import Code, CorralError, Rejected
from corral.sdk.runtime import RunHandle, RunLimits
from corral.testing import workloads
from corral.testing.runtime_contract.house import (
    C_LIBRARY_SIGNALS,
    RuntimeHarness,
    console_bytes,
    console_match,
    is_running,
    refused,
)
from corral.testing.waiting import DEADLINE, eventually
from corral.testing.workloads import shell


class Starting:
    """How a run begins."""

    @pytest.mark.control_groups
    async def test_a_workload_is_started_and_its_exit_code_known(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.crashing(code=7)))
        ended = await house.provider.wait_exit(handle)
        assert (ended.known, ended.code, ended.signal) == (True, 7, 0)
        assert ended.ended_at_ms >= handle.started_at_ms
        assert await house.provider.wait_empty(handle) == ended

    async def test_the_environment_is_what_was_given_and_nothing_else(self, house: RuntimeHarness) -> None:
        environment = {"PATH": "/usr/bin:/bin", "GREETING": "h\u00e4llo = w\u00f6rld", "EMPTY": ""}
        handle = await house.provider.start(house.spec("env", environment=environment))
        await house.provider.wait_empty(handle)
        lines = console_bytes(handle.run_directory).decode().splitlines()
        found = {name: value for name, _, value in (line.partition("=") for line in lines)}
        ours = {name for name in found if name.startswith("CORRAL_RUN")}
        assert {name: value for name, value in found.items() if name not in ours} == environment

    async def test_it_runs_in_its_directory(self, house: RuntimeHarness) -> None:
        spec = house.spec("pwd")
        handle = await house.provider.start(spec)
        await house.provider.wait_empty(handle)
        assert console_bytes(handle.run_directory).decode() == spec.directory + "\n"

    async def test_arguments_arrive_byte_for_byte(self, house: RuntimeHarness) -> None:
        arguments = ("", " a  b ", "$HOME", "'\"\\", "new\nline", "\u00fc\U0001f40e", "\udcff\udcfe")
        handle = await house.provider.start(house.spec("printf", "%s|", *arguments))
        await house.provider.wait_empty(handle)
        expected = "".join(f"{argument}|" for argument in arguments).encode("utf-8", "surrogateescape")
        assert console_bytes(handle.run_directory) == expected

    async def test_signals_and_privileges_are_a_fresh_process_own(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec("cat", "/proc/self/status"))
        await house.provider.wait_empty(handle)
        status = dict(
            line.split(":\t", 1)
            for line in console_bytes(handle.run_directory).decode().splitlines()
            if ":\t" in line
        )
        assert [int(status[name], 16) for name in ("SigBlk", "SigCgt", "CapAmb")] == [0, 0, 0]
        assert int(status["SigIgn"], 16) & ~C_LIBRARY_SIGNALS == 0
        assert (status["NoNewPrivs"], status["Umask"]) == ("1", "0027")

    @pytest.mark.control_groups
    async def test_many_start_at_once(self, house: RuntimeHarness) -> None:
        specs = [house.spec(*shell("echo up $1; exec sleep 3600", str(n))) for n in range(20)]
        handles = await asyncio.gather(*(house.provider.start(spec) for spec in specs))
        assert len({handle.pid for handle in handles}) == 20
        await asyncio.gather(*(house.provider.kill(handle) for handle in handles))
        ends = await asyncio.gather(*(house.provider.wait_empty(handle) for handle in handles))
        assert {ended.signal for ended in ends} == {signal.SIGKILL}

    async def test_one_run_is_started_once_however_many_try(self, house: RuntimeHarness) -> None:
        spec = house.spec(*shell("echo up; exec sleep 3600"))
        starts = (house.provider.start(spec) for _ in range(10))
        results = await asyncio.gather(*starts, return_exceptions=True)
        handles = [result for result in results if isinstance(result, RunHandle)]
        refusals = [result.code for result in results if isinstance(result, Rejected)]
        assert (len(handles), refusals) == (1, [Code.ALREADY_EXISTS] * 9)
        await console_match(handles[0], b"up\n")
        await house.provider.kill(handles[0])
        await house.provider.wait_empty(handles[0])
        assert console_bytes(spec.run_directory) == b"up\n"

    async def test_a_command_that_is_not_there(self, house: RuntimeHarness) -> None:
        assert (await refused(house, "no-such-command")).code is Code.COMMAND_NOT_FOUND
        assert (await refused(house, "/no/such/command")).code is Code.COMMAND_NOT_FOUND

    async def test_a_file_that_is_no_program(self, house: RuntimeHarness, tmp_path: pathlib.Path) -> None:
        program = tmp_path / "program"
        program.write_bytes(b"no program\n")
        assert (await refused(house, str(program))).code is Code.NOT_EXECUTABLE
        program.chmod(0o755)
        error = await refused(house, str(program))
        assert error.code is Code.BAD_FORMAT
        assert str(program) in str(error)

    async def test_a_script_without_its_interpreter(
        self, house: RuntimeHarness, tmp_path: pathlib.Path
    ) -> None:
        script = tmp_path / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        error = await refused(house, str(script))
        assert error.code is Code.COMMAND_NOT_FOUND
        assert "interpreter" in str(error)

    async def test_arguments_that_the_kernel_does_not_take(self, house: RuntimeHarness) -> None:
        assert (await refused(house, "true", "x" * 200_000)).code is Code.ARGUMENTS_TOO_LONG
        assert (await refused(house, "true", *["x" * 100_000] * 200)).code is Code.ARGUMENTS_TOO_LONG

    async def test_a_directory_that_is_not_there(self, house: RuntimeHarness) -> None:
        error = await refused(house, "true", directory="/no/such/directory")
        assert error.code is Code.DIRECTORY_REFUSED
        assert "/no/such/directory" in str(error)

    async def test_a_user_that_is_not_there(self, house: RuntimeHarness) -> None:
        error = await refused(house, "true", run_as="no-such-user")
        assert error.code is Code.RUN_AS_REFUSED
        assert "no-such-user" in str(error)

    @pytest.mark.control_groups
    async def test_a_refused_run_can_be_started_when_the_reason_is_gone(self, house: RuntimeHarness) -> None:
        spec = house.spec("./program")
        program = pathlib.Path(spec.directory, "program")
        with pytest.raises(Rejected):
            await house.provider.start(spec)
        program.write_text("#!/bin/sh\necho started\n")
        program.chmod(0o755)
        handle = await house.provider.start(spec)
        assert (await house.provider.wait_empty(handle)).code == 0
        assert console_bytes(spec.run_directory) == b"started\n"


class Ending:
    """How a run ends."""

    @pytest.mark.trap("T47")
    async def test_exit_137_and_sigkill_are_told_apart(self, house: RuntimeHarness) -> None:
        provider = house.provider
        exits = await provider.start(house.spec(*workloads.crashing(code=137)))
        killed = await provider.start(house.spec(*workloads.crashing(signal=signal.SIGKILL)))
        first, second = await provider.wait_empty(exits), await provider.wait_empty(killed)
        assert (first.known, first.code, first.signal) == (True, 137, 0)
        assert (second.known, second.code, second.signal) == (True, 0, signal.SIGKILL)
        assert not second.oom_killed

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV, signal.SIGUSR1])
    async def test_the_signal_that_ended_it_is_known(self, house: RuntimeHarness, number: int) -> None:
        handle = await house.provider.start(house.spec(*workloads.silent()))
        await house.provider.signal(handle, number)
        ended = await house.provider.wait_empty(handle)
        assert (ended.known, ended.code, ended.signal) == (True, 0, number)

    @pytest.mark.control_groups
    async def test_a_signal_reaches_every_process(self, house: RuntimeHarness) -> None:
        tree = shell(
            "for n in 1 2 3; do sh -c 'trap \"echo heard; exit\" TERM; echo up; while :; do sleep 0.05; done' & done; trap : TERM; wait; wait; wait; echo over"
        )
        handle = await house.provider.start(house.spec(*tree))
        await eventually(lambda: console_bytes(handle.run_directory).count(b"up\n") == 3)
        await house.provider.signal(handle, signal.SIGTERM)
        await house.provider.wait_empty(handle)
        assert console_bytes(handle.run_directory).count(b"heard\n") == 3

    @pytest.mark.control_groups
    async def test_what_ignores_signals_is_killed(self, house: RuntimeHarness) -> None:
        deaf = shell("trap '' TERM INT HUP QUIT USR1 USR2; echo up; while :; do sleep 0.05; done")
        handle = await house.provider.start(house.spec(*deaf))
        await console_match(handle, b"up\n")
        await house.provider.signal(handle, signal.SIGTERM)
        assert is_running(handle.pid)
        await house.provider.kill(handle)
        assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL

    @pytest.mark.trap("T19")
    @pytest.mark.control_groups
    async def test_a_grandchild_that_fled_is_part_of_the_run(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.double_forking(stays=False)))
        assert (await house.provider.wait_exit(handle)).code == 0
        grandchild = int((await console_match(handle, rb"grandchild (\d+)\n"))[1])
        emptied = asyncio.create_task(house.provider.wait_empty(handle), name="contract/wait-empty")
        await asyncio.wait([emptied], timeout=0.3)
        assert not emptied.done()
        assert is_running(grandchild)
        await house.provider.kill(handle)
        assert (await emptied).code == 0
        assert not is_running(grandchild)

    @pytest.mark.control_groups
    async def test_killing_what_is_gone_is_harmless(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec("true"))
        await house.provider.wait_empty(handle)
        await house.provider.kill(handle)
        await house.provider.signal(handle, signal.SIGTERM)
        assert (await house.provider.wait_empty(handle)).code == 0

    @pytest.mark.trap("T59")
    @pytest.mark.control_groups
    async def test_a_frozen_run_receives_signals_and_dies(self, house: RuntimeHarness) -> None:
        provider = house.provider
        polite = shell("trap 'echo bye; exit 6' TERM; echo up; while :; do sleep 0.05; done")
        first, second = [await provider.start(house.spec(*polite)) for _ in range(2)]
        if not provider.capabilities().freeze:
            with pytest.raises(CorralError) as caught:
                await provider.set_frozen(first, True)
            assert caught.value.code is Code.NOT_SUPPORTED
        for handle in (first, second):
            await console_match(handle, b"up\n")
            if provider.capabilities().freeze:
                await provider.set_frozen(handle, True)
        await provider.signal(first, signal.SIGTERM)
        await provider.kill(second)
        async with asyncio.timeout(DEADLINE):
            assert (await provider.wait_empty(first)).code == 6
            assert (await provider.wait_empty(second)).signal == signal.SIGKILL

    @pytest.mark.control_groups
    async def test_stats_count_what_runs(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*shell("sleep 3600 & sleep 3600")))
        stats = await eventually(lambda: _counted(house, handle, 3))
        assert stats.memory_bytes > 0
        found = await house.provider.processes(handle)
        assert found is None or (len(found) == 3 and handle.pid in found)
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
        assert not await house.provider.processes(handle)

    @pytest.mark.control_groups
    async def test_memory_beyond_the_limit_ends_it_with_the_reason(self, house: RuntimeHarness) -> None:
        if not house.provider.capabilities().memory_limit:
            pytest.skip("no memory limits on this node")
        spec = house.spec(*workloads.allocating(256), limits=RunLimits(memory_mb=64))
        handle = await house.provider.start(spec)
        ended = await house.provider.wait_exit(handle)
        assert (ended.signal, ended.oom_killed) == (signal.SIGKILL, True)
        assert await house.provider.wait_empty(handle) == ended


async def _counted(house: RuntimeHarness, handle: RunHandle, processes: int) -> Any:
    stats = await house.provider.stats(handle)
    return stats if stats.processes == processes else None
