"""Steps that were stored though nobody was told: what led to them is over, and must not strike again."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import EngineBench, manifest, package
from stand_in_house import Script, StandInProcess

from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import CorralError
from corral.system.config_sections import ActivationSection
from corral.system.controller_config import ModulesSection
from corral.testing.waiting import eventually


def breaking_off(bench: EngineBench, *, raises: bool) -> Script:
    """A module during whose start the store stops answering, and then does what it was told all the same."""
    script = Script()

    async def unplug(process: StandInProcess, values: dict[str, Any]) -> None:
        bench.book.fail_next(1, after=True)
        if raises:
            raise ValueError("no")

    script.does["on_start"] = unplug
    return script


@pytest.mark.parametrize("way_out", ["recover", "upgrade"])
async def test_a_failure_whose_answer_was_lost_does_not_fail_the_next_attempt(way_out: str) -> None:
    async with EngineBench() as bench:
        with pytest.raises(CorralError):
            await bench.install(package(manifest("a")), breaking_off(bench, raises=True))
        await bench.until("a", ModulePhase.FAILED)
        bench.script(bench.record("a")).does.clear()
        if way_out == "recover":
            record = await bench.engine.act("a", Verb.RECOVER)
        else:
            wanted = package(manifest("a", "1.1.0"))
            bench.script(wanted)
            record = (await bench.engine.upgrade(wanted)).record
        assert (record.phase, record.reason) == (ModulePhase.ACTIVE, "")


async def test_a_wait_whose_end_was_not_told_is_over_all_the_same() -> None:
    config = ModulesSection(activation=ActivationSection(wait_timeout_seconds=3600))
    async with EngineBench(config=config) as bench:
        with pytest.raises(CorralError):
            await bench.install(package(manifest("a")), breaking_off(bench, raises=False))
        await eventually(lambda: (scope := bench.engine.scope("a")) is not None and scope.serving)
        life = bench.engine._actors["a"].life
        await eventually(lambda: life.due() is None)  # else it would be looked at without a pause
        assert bench.phase("a") is ModulePhase.ACTIVE
