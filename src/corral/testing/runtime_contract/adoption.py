"""The contract of adoption: a run is found again after the provider's host was killed."""

from __future__ import annotations

import signal

import pytest

from corral.sdk.runtime import Adoption, AdoptionKind, RunSpec
from corral.testing import workloads
from corral.testing.runtime_contract.house import RuntimeHarness, console_bytes, console_match, is_running


class Adopting:
    """Finding a run again after the provider's host was killed."""

    @pytest.mark.control_groups
    async def test_a_live_run_is_adopted_and_obeys(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.reading_commands(code=9))
        handle = await house.provider.start(spec)
        await house.provider.send_command(handle, "one")
        adopted = await _adopted(house, spec, AdoptionKind.ALIVE)
        assert adopted.exit is None
        assert adopted.handle is not None
        assert (adopted.handle.pid, adopted.handle.run_name) == (handle.pid, handle.run_name)
        await house.provider.send_command(adopted.handle, "two")
        await house.provider.send_command(adopted.handle, "stop")
        assert (await house.provider.wait_exit(adopted.handle)).code == 9
        assert (await house.provider.wait_empty(adopted.handle)).code == 9
        assert console_bytes(spec.run_directory) == b"up\ngot one\ngot two\nbye\n"

    async def test_adopting_twice_changes_nothing(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.silent())
        handle = await house.provider.start(spec)
        first = await _adopted(house, spec, AdoptionKind.ALIVE)
        second = await house.provider.adopt(spec.run_directory)
        assert first == second
        await house.provider.kill(handle)
        assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL

    @pytest.mark.control_groups
    async def test_an_adopted_run_can_be_killed_with_all_its_descendants(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.double_forking(stays=True))
        handle = await house.provider.start(spec)
        grandchild = int((await console_match(handle, rb"grandchild (\d+)\n"))[1])
        adopted = await _adopted(house, spec, AdoptionKind.ALIVE)
        assert adopted.handle is not None
        await house.provider.kill(adopted.handle)
        assert (await house.provider.wait_empty(adopted.handle)).signal == signal.SIGKILL
        assert not is_running(grandchild)

    @pytest.mark.trap("T8")
    async def test_what_ended_meanwhile_is_known_exactly(self, house: RuntimeHarness) -> None:
        specs = [
            house.spec(*workloads.crashing(code=5, says="last words")),
            house.spec(*workloads.crashing(signal=signal.SIGABRT)),
        ]
        handles = [await house.provider.start(spec) for spec in specs]
        for handle in handles:
            await house.provider.wait_empty(handle)
        first = await _adopted(house, specs[0], AdoptionKind.ENDED)
        second = await house.provider.adopt(specs[1].run_directory)
        assert first.exit is not None
        assert (first.exit.known, first.exit.code, first.exit.signal) == (True, 5, 0)
        assert second.exit is not None
        assert (second.exit.known, second.exit.signal) == (True, signal.SIGABRT)
        assert console_bytes(specs[0].run_directory) == b"last words\n"

    @pytest.mark.control_groups
    async def test_a_run_of_which_only_a_grandchild_is_left(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.double_forking(stays=False))
        handle = await house.provider.start(spec)
        await house.provider.wait_exit(handle)
        adopted = await _adopted(house, spec, AdoptionKind.ALIVE)
        assert adopted.exit is not None
        assert adopted.exit.code == 0
        assert adopted.handle is not None
        await house.provider.kill(adopted.handle)
        assert (await house.provider.wait_empty(adopted.handle)).code == 0

    async def test_what_was_never_started_may_be_started(self, house: RuntimeHarness) -> None:
        spec = house.spec(*workloads.crashing(code=2))
        adoption = await house.provider.adopt(spec.run_directory)
        assert adoption == Adoption(kind=AdoptionKind.NEVER_STARTED)
        handle = await house.provider.start(spec)
        assert (await house.provider.wait_empty(handle)).code == 2


async def _adopted(house: RuntimeHarness, spec: RunSpec, kind: AdoptionKind) -> Adoption:
    """By the next provider."""
    provider = await house.next_provider()
    adoption = await provider.adopt(spec.run_directory)
    assert adoption.kind is kind
    return adoption
