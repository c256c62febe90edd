"""The contract of input and console."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from corral.errors import Code, CorralError, Rejected
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHarness, console_bytes, console_match, is_running
from corral.testing.waiting import eventually
from corral.testing.workloads import read_numbered, shell


class Talking:
    """Input and console."""

    async def test_commands_arrive_in_order(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.reading_commands(code=4)))
        for n in range(50):
            await house.provider.send_command(handle, f"line {n}")
        await house.provider.send_command(handle, "x" * 4095)
        await house.provider.send_command(handle, "stop")
        assert (await house.provider.wait_empty(handle)).code == 4
        lines = console_bytes(handle.run_directory).decode().splitlines()
        assert lines == ["up", *(f"got line {n}" for n in range(50)), "got " + "x" * 4095, "bye"]

    async def test_a_command_is_one_line_of_bounded_length(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.reading_commands()))
        for line in ("x" * 4096, "two\nlines", "\u00e4" * 2048):
            with pytest.raises(Rejected) as caught:
                await house.provider.send_command(handle, line)
            assert caught.value.code is Code.INVALID_FIELD
        await house.provider.send_command(handle, "stop")
        await house.provider.wait_empty(handle)
        assert console_bytes(handle.run_directory) == b"up\nbye\n"

    async def test_without_input_there_is_an_end_of_file_at_once(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.reading_commands(), stdin="none"))
        assert (await house.provider.wait_empty(handle)).code == 3
        with pytest.raises(CorralError) as caught:
            await house.provider.send_command(handle, "hello")
        assert caught.value.code is Code.INPUT_CLOSED

    async def test_input_that_is_not_read_is_refused_with_its_size(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.not_reading()))

        async def flood() -> None:
            for _ in range(1000):
                await house.provider.send_command(handle, "x" * 4095)

        with pytest.raises(CorralError) as caught:
            await flood()
        assert caught.value.code is Code.INPUT_NOT_READ
        waiting = re.search(r"(\d+) bytes", str(caught.value))
        assert waiting is not None
        assert int(waiting[1]) >= 4096
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)

    async def test_a_workload_that_closes_everything_lives_on(self, house: RuntimeHarness) -> None:
        closing = shell("echo up; exec 0<&- 1>&- 2>&-; while :; do sleep 3600; done")
        handle = await house.provider.start(house.spec(*closing))
        await console_match(handle, b"up\n")

        async def refusal() -> Code | None:
            try:
                await house.provider.send_command(handle, "hello")
            except CorralError as error:
                return error.code
            return None

        await eventually(lambda: _is(refusal(), Code.INPUT_CLOSED))
        assert is_running(handle.pid)
        await house.provider.kill(handle)
        assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL

    @pytest.mark.trap("T16")
    async def test_every_byte_of_a_short_life_is_in_the_console(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.megabyte_then_exit(code=1)))
        assert (await house.provider.wait_empty(handle)).code == 1
        output = console_bytes(handle.run_directory)
        assert len(output) == 1 << 20
        read_numbered(output).check(last=16_384)

    @pytest.mark.trap("T16")
    async def test_a_burst_right_after_a_first_line_and_the_end(self, house: RuntimeHarness) -> None:
        """A reader that waits for the first line meets the end before it reads again."""
        burst = shell("echo first; head -c 50000 /dev/zero | tr '\\0' x; exit 1")
        for _ in range(12):
            handle = await house.provider.start(house.spec(*burst))
            assert (await house.provider.wait_empty(handle)).code == 1
            assert console_bytes(handle.run_directory) == b"first\n" + b"x" * 50_000

    @pytest.mark.trap("T43")
    async def test_writing_to_dev_stderr_appends(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.to_dev_stderr(1000)))
        await console_match(handle, b"last\n")
        assert console_bytes(handle.run_directory).count(b"\n") == 1001
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)

    async def test_hostile_bytes_are_stored_as_they_are(self, house: RuntimeHarness) -> None:
        handle = await house.provider.start(house.spec(*workloads.hostile_bytes()))
        await console_match(handle, b"up\n")
        assert console_bytes(handle.run_directory) == workloads.HOSTILE + b"up\n"
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)


async def _is(answer: Any, expected: object) -> bool:
    return await answer is expected
