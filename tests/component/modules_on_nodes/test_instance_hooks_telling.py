"""What modules hear of runs: in order, once, and truly; also of what ended while nobody looked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import time

import pytest
from hooked_node import FIRST, HEARS, WAITS_TO_COME_BACK, HookedNode, when_told

from corral.domain.groups.group import RestartSpec
from corral.domain.modules.verbs import Verb
from corral.testing import workloads
from corral.testing.waiting import eventually

HANGS_AT_STOPPING = """
class Demo(DaemonModule):
    async def on_instance_stopping(self, handle):
        await asyncio.Event().wait()
"""
LOOKS_AT_STOPPING = """
class Demo(DaemonModule):
    def on_load(self, ctx):
        self.heard = ctx.config["heard"]
    async def on_instance_stopping(self, handle):
        say(self.heard, "stopping", handle)
        while not os.path.exists(self.heard + ".go"):
            await asyncio.sleep(0.01)
        say(self.heard, "looked", handle, alive=os.path.exists(f"/proc/{handle.pid}"))
"""
DIES_AT_STOPPED = """
class Demo(DaemonModule):
    def on_load(self, ctx):
        self.heard = ctx.config["heard"]
    def on_instance_stopped(self, handle, exit):
        say(self.heard, "stopped", handle)
        os.kill(os.getpid(), signal.SIGKILL)
"""
SLOW = HEARS.replace(
    "def on_instance_started(self, handle):",
    "def on_instance_started(self, handle):\n        time.sleep(0.1)",
)


AN_HOUR = 3600
"""Longer than any test may take."""


@pytest.fixture
async def node(scratch):
    node = HookedNode(scratch / "node")
    await node.open()
    yield node
    await node.clear()


async def test_a_module_hears_of_start_and_stop_in_order(node):
    await node.install("ears", SLOW)
    run = await node.start("one-1", workloads.silent())
    pid, began = run.pid, run.started_at_ms
    await node.stop("one-1")
    started, stopping, stopped = await node.hears("ears", "started", "stopping", "stopped")
    assert {line["pid"] for line in (started, stopping, stopped)} == {pid}
    assert {line["at"] for line in (started, stopping, stopped)} == {began / 1000}
    assert (started["adopted"], stopping["state"], stopped["state"]) == (False, "STOPPING", "STOPPED")
    assert (stopped["code"], stopped["signal"], stopped["crashed"]) == (None, "SIGTERM", False)
    await eventually(run.files.modules_notified)


@pytest.mark.trap("T8")
async def test_ends_are_told_with_their_true_code_signal_and_duration(node):
    await node.install("ears", HEARS)
    await node.start("old-1", workloads.silent(), max_lifetime_seconds=1)
    await node.start("never-1", ("/no/such/program",))
    await node.start("code-1", workloads.shell("sleep 0.3; exit 137"))
    await node.start("signal-1", workloads.shell("kill -KILL $$"))
    await node.start("clean-1", workloads.shell("exit 0"), restart_on="never")
    for id in ("code-1", "signal-1", "clean-1"):
        await node.settled(id)
    code = (await node.hears("ears", "started", "stopped", about="code-1"))[-1]
    assert (code["code"], code["signal"], code["crashed"]) == (137, "", True)
    assert 300 <= code["ms"] < 5000
    assert code["summary"].startswith("exited with code 137 after 0.")
    killed = (await node.hears("ears", "started", "stopped", about="signal-1"))[-1]
    assert (killed["code"], killed["signal"], killed["crashed"]) == (None, "SIGKILL", True)
    clean = (await node.hears("ears", "started", "stopped", about="clean-1"))[-1]
    assert (clean["code"], clean["signal"]) == (0, "")
    await eventually(
        lambda: node.story("ears", "old-1")[:3] == ["started", "stopping", "stopped"]
    )  # then it runs again
    old = node.heard("ears", "old-1")[2]
    assert (old["signal"], old["crashed"]) == ("SIGTERM", False)
    assert (await node.settled("never-1")).outcome is not None
    assert node.heard("ears", "never-1") == [], "what had no process never began"


@pytest.mark.trap("T8")
async def test_what_ended_while_no_daemon_was_there_is_told_by_the_next_one(node):
    await node.install("ears", HEARS)
    untold = await node.start("zero-1", workloads.shell("exit 3"))
    await eventually(untold.files.modules_notified)
    run = await node.start("one-1", when_told(42))
    killed = await node.start("two-1", workloads.silent())
    lives = await node.start("three-1", workloads.silent())
    for id in ("one-1", "two-1", "three-1"):
        await node.hears("ears", "started", about=id)
    await node.close()
    os.kill(killed.pid, signal.SIGKILL)
    node.let_go("one-1")
    await eventually(lambda: not pathlib.Path(f"/proc/{run.pid}").exists())
    lived_ms = time.time() * 1000 - run.started_at_ms
    (untold.files.directory / "told").unlink()  # it died before it could write that
    await node.open(settled=False)
    await node.install("ears", HEARS)
    node.gate.open.set()
    code = (await node.hears("ears", "started", "stopped", about="one-1"))[-1]
    assert (code["code"], code["signal"], code["crashed"]) == (42, "", True)
    assert 0 < code["ms"] <= lived_ms
    ended = (await node.hears("ears", "started", "stopped", about="two-1"))[-1]
    assert (ended["code"], ended["signal"]) == (None, "SIGKILL")
    again = (await node.hears("ears", "started", "started", about="three-1"))[-1]
    assert again["adopted"]
    assert again["pid"] == lives.pid
    assert (await node.hears("ears", "started", "stopped", "stopped", about="zero-1"))[-1]["code"] == 3
    await eventually(untold.files.modules_notified)


async def test_what_is_stopped_without_a_daemon_is_told_by_the_next_one(node):
    await node.start("one-1", workloads.silent())
    await node.close()
    await node.open(hooks=False)
    await node.stop("one-1")
    await node.close()
    await node.open(settled=False)
    await node.install("ears", HEARS)
    node.gate.open.set()
    told = await node.hears("ears", "stopped")
    assert told[0]["signal"] == "SIGTERM"


async def test_a_module_that_comes_later_or_again_hears_of_every_run_that_lives_once(node):
    await node.start("one-1", workloads.silent())
    await node.start("two-1", workloads.silent())
    await node.install("ears", HEARS)
    for id in ("one-1", "two-1"):
        assert (await node.hears("ears", "started", about=id))[0]["adopted"]
    await node.stop("two-1")
    await node.hears("ears", "started", "stopping", "stopped", about="two-1")
    scope = node.engine.scope("ears")
    assert scope is not None
    os.kill(scope.process.pid, signal.SIGKILL)
    await node.hears("ears", "started", "started", about="one-1")
    await node.engine.act("ears", Verb.DEACTIVATE)
    await node.engine.act("ears", Verb.ACTIVATE)
    await node.hears("ears", "started", "started", "started", about="one-1")
    assert len(node.heard("ears", "two-1")) == 3


async def test_restarts_by_the_node_are_runs_of_their_own_and_come_in_order(node):
    await node.install("ears", SLOW)
    often = workloads.shell("echo >> here; [ $(wc -l < here) -gt 4 ] && exec sleep 3600; exit 9")
    restart = RestartSpec(attempts=5, delay_ms=1, max_delay_ms=1)
    await node.start("one-1", often, restart=restart)
    await node.until_run("one-1", FIRST + 4)
    told = await node.hears("ears", *("started", "stopped") * 4, "started")
    for started, ended in zip(told[::2], told[1::2], strict=False):
        assert (ended["code"], ended["pid"]) == (9, started["pid"])
    assert len({line["pid"] for line in told}) == 5
    assert not any(line["adopted"] for line in told)


@contextlib.asynccontextmanager
async def opened(scratch, *, budget):
    node = HookedNode(scratch / "node", budget=budget)
    await node.open()
    try:
        yield node
    finally:
        await node.clear()


async def test_a_hook_that_hangs_delays_a_stop_by_the_budget(scratch):
    async with opened(scratch, budget=0.4) as node:
        await node.install("hangs", HANGS_AT_STOPPING, hook_ms=AN_HOUR * 1000)
        await node.start("one-1", workloads.silent())
        await node.stop("one-1")


async def test_a_hook_that_hangs_delays_neither_a_kill_nor_the_end_of_the_daemon(scratch):
    async with opened(scratch, budget=AN_HOUR) as node:
        await node.install("hangs", HANGS_AT_STOPPING, hook_ms=AN_HOUR * 1000)
        await node.install("ears", HEARS)
        for id in ("one-1", "two-1"):
            await node.start(id, workloads.silent())
        await node.stop("one-1", force=True)
        await node.hears("ears", "started", "stopping", "stopped", about="one-1")
        stopping = asyncio.create_task(node.stop("two-1"))
        await eventually(lambda: "stopping" in node.story("ears", "two-1"))
        await node.stop("two-1", force=True)  # overtakes the waiting
        await stopping
        await node.hooks.close()


async def test_what_is_stopped_runs_until_the_modules_are_done(scratch):
    async with opened(scratch, budget=AN_HOUR) as node:
        await node.install("looks", LOOKS_AT_STOPPING, hook_ms=AN_HOUR * 1000)
        await node.start("one-1", workloads.silent())
        stopping = asyncio.create_task(node.stop("one-1"))
        await node.hears("looks", "stopping")
        assert not stopping.done()
        (node.archives / "looks.heard.go").touch()
        await stopping
        (_, looked) = await node.hears("looks", "stopping", "looked")
        assert looked["alive"]


async def test_a_module_that_is_away_for_a_moment_hears_of_what_ended_meanwhile(node):
    await node.install("ears", WAITS_TO_COME_BACK)
    hold = node.archives / "ears.heard.hold"
    for id in ("one-1", "two-1"):
        await node.start(id, workloads.silent())
        await node.hears("ears", "started", about=id)
    scope = node.engine.scope("ears")
    assert scope is not None
    hold.touch()
    os.kill(scope.process.pid, signal.SIGKILL)
    await eventually(lambda: not scope.serving)
    run = await node.stop("one-1", force=True)
    await eventually(lambda: run.files.pending_modules() == ("ears",))
    hold.unlink()
    told = await node.hears("ears", "started", "stopped", about="one-1")
    assert told[-1]["signal"] == "SIGKILL"
    await node.hears("ears", "started", "started", about="two-1")
    await eventually(run.files.modules_notified)


async def test_an_end_at_which_a_module_dies_is_told_to_it_once(node):
    await node.install("dies", DIES_AT_STOPPED)
    await node.start("one-1", workloads.silent())
    run = await node.stop("one-1", force=True)
    await eventually(run.files.modules_notified)
    await eventually(lambda: (scope := node.engine.scope("dies")) is not None and scope.serving)
    assert node.story("dies") == ["stopped"]
