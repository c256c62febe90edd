"""Ends that modules were not there to hear: they hear each of them once, however long they were away."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import signal

import pytest
from hooked_node import FIRST, HEARS, UNLESS_BROKEN, WAITS_TO_COME_BACK, HookedNode, when_told

from corral.daemon.runs.run import Run
from corral.domain.groups.group import RestartSpec
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.testing import workloads
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually

ONLY_STARTS = UNLESS_BROKEN.partition("    async def on_instance_stopping")[0]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def node(scratch, clock):
    node = HookedNode(scratch / "node", keeps_modules=True, clock=clock)
    await node.open()
    yield node
    await node.clear()


async def fail(node: HookedNode, id: str) -> None:
    """Its process dies, and the next one does not come up."""
    (node.archives / f"{id}.heard.broken").touch()
    scope = node.engine.scope(id)
    assert scope is not None
    os.kill(scope.process.pid, signal.SIGKILL)
    await stands(node, id, ModulePhase.FAILED)


async def stands(node: HookedNode, id: str, phase: ModulePhase) -> None:
    await eventually(lambda: (found := node.record(id)) is not None and found.phase is phase)


async def recover(node: HookedNode, id: str) -> None:
    (node.archives / f"{id}.heard.broken").unlink()
    assert (await node.engine.act(id, Verb.RECOVER)).phase is ModulePhase.ACTIVE


async def is_owed(run: Run, *modules: str) -> None:
    await eventually(lambda: run.files.pending_modules() == modules, state=run.files.pending_modules)


@pytest.mark.trap("T8")
async def test_a_failed_module_hears_each_end_once_when_it_is_recovered_under_the_next_daemon(node):
    await node.install("ears", UNLESS_BROKEN)
    before = await node.start("before-1", when_told(42))
    between = await node.start("between-1", workloads.silent())
    after = await node.start("after-1", when_told(7))
    for id in ("before-1", "between-1", "after-1"):
        await node.hears("ears", "started", about=id)
    await fail(node, "ears")
    node.let_go("before-1")
    await node.settled("before-1")
    await is_owed(before, "ears")
    await node.close()
    os.kill(between.pid, signal.SIGKILL)
    await eventually(lambda: not pathlib.Path(f"/proc/{between.pid}").exists())
    await node.open()
    await is_owed(between, "ears")
    node.let_go("after-1")
    await node.settled("after-1")
    await is_owed(after, "ears")
    later = await node.start("later-1", when_told(5))
    node.let_go("later-1")
    await node.settled("later-1")
    await eventually(later.files.modules_notified)
    assert len(node.heard("ears")) == 3, "it is away"

    await recover(node, "ears")
    outcomes = {}
    for run in (before, between, after):
        told = (await node.hears("ears", "started", "stopped", about=run.order.instance_id))[-1]
        outcome = run.files.outcome()
        assert outcome is not None
        assert (told["ms"], told["pid"]) == (outcome.uptime_ms, outcome.pid)
        outcomes[run.order.instance_id] = (told["code"], told["signal"])
        await eventually(run.files.modules_notified)
    assert outcomes == {"before-1": (42, ""), "between-1": (None, "SIGKILL"), "after-1": (7, "")}
    assert node.heard("ears", "later-1") == [], "it was never ACTIVE in the life of this run"

    await node.close()
    await node.open()
    fence = await node.start("fence-1", workloads.silent())
    await node.hears("ears", "started", about=fence.order.instance_id)
    assert len(node.heard("ears")) == 7, "once is enough"


async def test_a_module_that_is_down_at_the_boot_is_told_as_soon_as_it_is_up(node):
    await node.install("ears", UNLESS_BROKEN)
    run = await node.start("one-1", when_told(3))
    await node.hears("ears", "started")
    await node.close()
    (node.archives / "ears.heard.broken").touch()
    await node.open()
    await stands(node, "ears", ModulePhase.FAILED)
    node.let_go("one-1")
    await node.settled("one-1")
    await is_owed(run, "ears")
    await recover(node, "ears")
    assert (await node.hears("ears", "started", "stopped"))[-1]["code"] == 3


async def test_what_ended_during_a_long_upgrade_is_told_to_the_new_version_in_order(node, clock):
    await node.install("ears", HEARS)
    again = workloads.shell(
        "echo >> here; [ $(wc -l < here) -gt 1 ] && exec sleep 3600; until [ -e go ]; do sleep 0.02; done; exit 9"
    )
    first = await node.start("one-1", again, restart=RestartSpec(attempts=1, delay_ms=1, max_delay_ms=1))
    await node.start("two-1", workloads.silent())
    for id in ("one-1", "two-1"):
        await node.hears("ears", "started", about=id)
    clock.step(-7200)  # what time it was has nothing to do with who was there
    hold = node.archives / "ears.heard.hold"
    hold.touch()
    new = node.package("ears", WAITS_TO_COME_BACK, version="2.0.0", hook_ms=30_000)
    upgrade = asyncio.create_task(node.engine.upgrade(new))
    await stands(node, "ears", ModulePhase.INSTALLED)
    node.let_go("one-1")
    await node.until_run("one-1", FIRST + 1)
    await is_owed(first, "ears")
    clock.step(86_400)
    hold.unlink()
    await upgrade
    told = await node.hears("ears", "started", "stopped", "started", about="one-1")
    assert (told[1]["code"], told[1]["pid"]) == (9, told[0]["pid"])
    assert told[2]["adopted"]
    await node.hears("ears", "started", "started", about="two-1")
    await eventually(first.files.modules_notified)


async def test_one_that_is_away_keeps_no_other_from_hearing_and_hears_nothing_of_what_was_swept(node):
    await node.install("ears", UNLESS_BROKEN)
    await node.install("here", HEARS)
    runs = [await node.start(f"one-{number}", when_told(number)) for number in (1, 2)]
    for module in ("ears", "here"):
        for run in runs:
            await node.hears(module, "started", about=run.order.instance_id)
    await fail(node, "ears")
    for number, run in enumerate(runs, 1):
        node.let_go(f"one-{number}")
        told = await node.hears("here", "started", "stopped", about=f"one-{number}")
        assert told[-1]["code"] == number
        await is_owed(run, "ears")
    shutil.rmtree(runs[0].files.directory)
    await recover(node, "ears")
    await node.hears("ears", "started", "stopped", about="one-2")
    await eventually(runs[1].files.modules_notified)
    assert node.story("ears", "one-1") == ["started"]
    assert not runs[0].files.directory.exists()
    assert len(node.heard("here")) == 4


async def test_a_module_that_has_no_hook_for_ends_is_owed_none(node):
    await node.install("deaf", ONLY_STARTS)
    known = await node.start("known-1", when_told(1))
    later = await node.start("later-1", when_told(2))
    for id in ("known-1", "later-1"):
        await node.hears("deaf", "started", about=id)
    await fail(node, "deaf")
    node.let_go("known-1")
    await node.settled("known-1")
    await eventually(known.files.modules_notified)

    await node.close()
    await node.open()  # from here on nobody knows what it has
    node.let_go("later-1")
    await node.settled("later-1")
    await is_owed(later, "deaf")
    await recover(node, "deaf")
    await eventually(later.files.modules_notified)
    assert node.story("deaf") == ["started", "started"]
