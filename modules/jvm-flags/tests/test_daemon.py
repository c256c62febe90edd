"""Tests of the part on a node, with a controller's part that the test speaks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from jvm_flags.contract import GroupFlags, JvmFlags
from jvm_flags.daemon import MEMORY, AddedFlags

from corral.sdk import CapabilityBinding
from corral.testing.module_bench import ModuleBench

CAPABILITY = "corral.jvm.flags"


class Controller:
    """What the part there would tell, and how often it was asked."""

    def __init__(self) -> None:
        self.rows = [GroupFlags(group="lobby", flags=["-Da=1"]), GroupFlags(group="*", flags=["-Dall=1"])]
        self.asked = 0
        self.hangs = False

    async def all(self) -> list[GroupFlags]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return self.rows

    def set(self, group: str, *flags: str) -> None:
        self.rows = [GroupFlags(group=group, flags=list(flags))]


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
async def bench(controller: Controller) -> AsyncIterator[ModuleBench]:
    """Not started yet."""
    told: CapabilityBinding[Any] = CapabilityBinding(CAPABILITY, JvmFlags, lambda: controller)
    async with ModuleBench(AddedFlags, manifest="module.yaml", host="daemon", capabilities=[told]) as bench:
        yield bench


async def started_with(bench: ModuleBench, instance: str, *jvm_args: str, **more: Any) -> list[str]:
    return (await bench.node.starting(instance, jvm_args=jvm_args, **more)).jvm_args


async def test_a_start_gets_the_flags_of_its_group_and_of_every_group(bench: ModuleBench) -> None:
    await bench.start()
    assert await started_with(bench, "lobby-1", "-Xss2m") == ["-Xss2m", "-Dall=1", "-Da=1"]
    assert await started_with(bench, "arena-1") == ["-Dall=1"]


async def test_what_the_plan_has_already_is_not_added_again(bench: ModuleBench) -> None:
    await bench.start()
    assert await started_with(bench, "lobby-1", "-Da=1") == ["-Da=1", "-Dall=1"]


async def test_programs_that_are_no_java_are_left_alone(bench: ModuleBench) -> None:
    await bench.start()
    assert await started_with(bench, "lobby-1", is_java=False) == []


@pytest.mark.parametrize("type", ["jvm-flags/FLAGS_CHANGED", "EVENTS_MISSED"])
async def test_changes_are_followed_and_so_is_word_that_some_were_missed(
    bench: ModuleBench, controller: Controller, type: str
) -> None:
    await bench.start()
    controller.set("lobby", "-Dnew=1")
    await bench.emit(type, subject="lobby")
    bench.set_available(CAPABILITY, False)
    assert await started_with(bench, "lobby-1") == ["-Dnew=1"]


async def test_it_asks_again_only_when_the_controller_was_away_and_is_back(
    bench: ModuleBench, controller: Controller
) -> None:
    await bench.start()
    await bench.tick(60)
    assert controller.asked == 1
    bench.set_available(CAPABILITY, False)
    await bench.tick(10)
    controller.set("lobby", "-Dnew=1")
    bench.set_available(CAPABILITY, True)
    await bench.tick(60)
    assert controller.asked == 2
    bench.set_available(CAPABILITY, False)
    assert await started_with(bench, "lobby-1") == ["-Dnew=1"]


async def test_a_start_does_not_wait_for_word_of_a_change(bench: ModuleBench, controller: Controller) -> None:
    await bench.start()
    controller.set("lobby", "-Dnew=1")
    assert await started_with(bench, "lobby-1") == ["-Dnew=1"]


async def test_a_controller_that_does_not_answer_costs_a_moment_and_no_flags(
    bench: ModuleBench, controller: Controller
) -> None:
    await bench.start()
    controller.hangs = True
    assert await started_with(bench, "lobby-1") == ["-Dall=1", "-Da=1"]


async def test_without_a_controller_it_goes_on_with_what_it_knows(
    bench: ModuleBench, controller: Controller
) -> None:
    await bench.start()
    bench.set_available(CAPABILITY, False)
    await bench.tick(10)
    controller.rows = []
    assert await started_with(bench, "lobby-1") == ["-Dall=1", "-Da=1"]


async def test_booted_without_a_controller_an_instance_gets_what_it_had_the_last_time(
    bench: ModuleBench,
) -> None:
    bench.set_available(CAPABILITY, False)
    await bench.start()
    assert await started_with(bench, "lobby-1") == []
    (bench.node.path("lobby-1") / MEMORY).write_text('["-Dlast=1"]')
    assert await started_with(bench, "lobby-1") == ["-Dlast=1"]
    bench.set_available(CAPABILITY, True)
    assert await started_with(bench, "lobby-1") == ["-Dall=1", "-Da=1"]
    assert (bench.node.path("lobby-1") / MEMORY).read_text() == '["-Dall=1","-Da=1"]'


async def test_nothing_is_remembered_where_there_are_no_flags(
    bench: ModuleBench, controller: Controller
) -> None:
    await bench.start()
    await started_with(bench, "lobby-1")
    controller.rows = []
    await bench.emit("jvm-flags/FLAGS_CHANGED")
    assert await started_with(bench, "lobby-1") == []
    assert list(bench.node.path("lobby-1").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"[" * 5000])
async def test_a_memory_that_somebody_else_wrote_is_no_obstacle(bench: ModuleBench, content: bytes) -> None:
    bench.set_available(CAPABILITY, False)
    await bench.start()
    await started_with(bench, "lobby-1")
    (bench.node.path("lobby-1") / MEMORY).write_bytes(content)
    assert await started_with(bench, "lobby-1") == []
    (bench.node.path("lobby-1") / MEMORY).unlink()
    (bench.node.path("lobby-1") / MEMORY).mkdir()
    assert await started_with(bench, "lobby-1") == []


async def test_flags_that_cannot_be_remembered_are_added_all_the_same(bench: ModuleBench) -> None:
    await bench.start()
    await started_with(bench, "lobby-1")
    memory = bench.node.path("lobby-1") / MEMORY
    memory.unlink()
    memory.mkdir()
    (memory / "in the way").touch()
    assert await started_with(bench, "lobby-1") == ["-Dall=1", "-Da=1"]
    assert any("cannot be remembered" in line.message for line in await bench.logs())
