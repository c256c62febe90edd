"""Runs that end without being asked to: what is told, what is kept, what is started again."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from supervised_node import FIRST, SupervisedNode

from corral.system.entropy import SystemEntropy
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import RestartPolicy, StopInstance
from corral.wire.v1.link_pb2 import ControllerMessage


@pytest.mark.trap("T8")
async def test_the_exit_code_is_exact_and_in_every_report(node):
    await node.start("one", workloads.crashing(code=42, after_seconds=0.1))
    run = await node.settled("one")
    assert (run.state, run.outcome.exit.code, run.outcome.exit.signal) == ("CRASHED", 42, 0)
    assert run.outcome.uptime_ms >= 100
    assert (await node.told("one"))[-2:] == ["crash:0", "CRASHED:0"]
    crash, status = await node.crash("one"), await node.last_status("one")
    assert (crash.exit_code, crash.exit.code, status.exit.code) == (42, 42, 42)
    assert crash.uptime_ms == status.uptime_ms == run.outcome.uptime_ms


@pytest.mark.trap("T47")
async def test_exit_137_and_a_kill_are_told_apart(node):
    await node.start("code", workloads.crashing(code=137))
    await node.start("signal", workloads.crashing(signal=9))
    await node.settled("code")
    await node.settled("signal")
    by_code, by_signal = await node.crash("code"), await node.crash("signal")
    assert (by_code.exit.code, by_code.exit.signal) == (137, 0)
    assert by_signal.exit.signal == signal.SIGKILL
    assert by_signal.crash_class == "signal"
    assert by_code.signature != by_signal.signature


@pytest.mark.trap("T16")
async def test_the_last_lines_of_a_quick_death_are_in_the_report(node):
    await node.start("one", workloads.megabyte_then_exit(code=1))
    await node.settled("one")
    crash = await node.crash("one")
    assert len(crash.log_tail) == 100
    assert crash.log_tail[-1].startswith("line 16384 ")
    assert crash.log_tail_offset == (16_384 - 100) * 64
    assert len(node.console("one")) == 16_384 * 64


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "oom"),
        ("**** FAILED TO BIND TO PORT!", "port_in_use"),
        ("Error: Could not find or load main class Server", "missing_class"),
        ("python3: can't open file 'x.py': [Errno 2] No such file or directory", "missing_file"),
        ("Exception in thread main java.lang.StackOverflowError", "stack_overflow"),
        ("it just did not feel well", "unknown"),
    ],
)
async def test_a_crash_is_classified_by_its_last_words(node, says, kind):
    await node.start("one", workloads.crashing(code=1, says=says))
    await node.settled("one")
    assert (await node.crash("one")).crash_class == kind


async def test_an_end_with_zero_that_nobody_asked_for_is_a_crash_of_its_own_kind(node):
    await node.start("one", workloads.crashing(code=0))
    run = await node.settled("one")
    crash = await node.crash("one")
    assert (run.state, crash.crash_class, crash.exit.outcome) == ("CRASHED", "clean_exit", "clean")


async def test_a_crash_is_restarted_here_as_the_next_run_and_told_as_such(node):
    script = "test -e seen && { echo again; exec sleep 3600; }; touch seen; exit 3"
    await node.start("one", workloads.shell(script), attempts=1)
    run = await node.until("one", "RUNNING", incarnation=FIRST + 1)
    await node.says("one", "again")
    crash = await node.crash("one")
    assert (crash.restarted_as, crash.exit.code) == (FIRST + 1, 3)
    story = await node.told("one")
    begin = story.index("crash:0")
    assert story[begin:] == ["crash:0", "SCHEDULED:1", "PREPARING:1", "STARTING:1", "RUNNING:1"]
    assert "CRASHED:0" not in story
    assert run.order.incarnation == FIRST + 1


async def test_restarts_are_counted_and_the_last_crash_is_left_to_the_controller(node):
    policy = RestartPolicy(attempts=3, interval_ms=300_000, delay_ms=20, max_delay_ms=100)
    await node.start("one", workloads.crashing(code=3), restart_policy=policy)
    run = await node.settled("one")
    assert run.order.incarnation == FIRST + 3
    story = await node.told("one")
    assert [entry for entry in story if entry.startswith("crash:")] == [f"crash:{n}" for n in range(4)]
    assert story[-1] == "CRASHED:3"
    assert (await node.crash("one")).restarted_as == 0


async def test_the_count_of_restarts_survives_the_daemon(node):
    policy = RestartPolicy(attempts=2, interval_ms=300_000, delay_ms=10, max_delay_ms=20)
    await node.start("one", workloads.reading_commands(), restart_policy=policy)
    for restart in range(2):
        await node.says("one", "up")
        await node.command("one", "die")
        await node.until("one", "RUNNING", incarnation=FIRST + restart + 1)
        await node.reopen()
    await node.says("one", "up")
    await node.command("one", "die")
    run = await node.settled("one")
    assert (run.state, run.order.incarnation) == ("CRASHED", FIRST + 2)


@pytest.mark.trap("T20")
async def test_a_stop_while_a_restart_waits_its_turn_stays_stopped(node):
    policy = RestartPolicy(attempts=5, interval_ms=300_000, delay_ms=3_600_000, max_delay_ms=3_600_000)
    await node.start("one", workloads.crashing(code=3), restart_policy=policy)
    await node.until("one", "SCHEDULED", incarnation=FIRST + 1)
    late = await node.stop("one", incarnation=FIRST)
    assert late.error_code == "STALE_INCARNATION"
    answer = await node.stop("one", incarnation=FIRST + 1)
    assert answer.accepted
    run = await node.settled("one")
    assert (run.state, run.outcome.outcome) == ("STOPPED", "never_started")
    await node.reopen()
    assert node.run("one").state == "STOPPED"


class StopInTheMiddle(SystemEntropy):
    """Orders a stop at the moment when the delay of a restart is drawn: the crash is judged by then, and
    its outcome neither written nor told."""

    node: SupervisedNode

    def fraction(self) -> float:
        stop = StopInstance(instance_id="one", incarnation=FIRST, reason="in the middle")
        asyncio.get_running_loop().call_soon(self.node.give, ControllerMessage(stop_instance=stop))
        return super().fraction()


@pytest.mark.trap("T20")
async def test_a_stop_in_the_middle_of_handling_a_crash_stays_stopped(scratch):
    entropy = StopInTheMiddle()
    entropy.node = node = SupervisedNode(scratch / "node", entropy=entropy)
    await node.open()
    try:
        await node.start("one", workloads.crashing(code=3), attempts=5)
        run = await node.settled("one")
        assert (run.state, run.order.incarnation, run.outcome.restarted_as) == ("CRASHED", FIRST, None)
        assert (await node.told("one"))[-2:] == ["crash:0", "CRASHED:0"]
        assert (await node.crash("one")).restarted_as == 0
        await eventually(lambda: any(answer.HasField("stop_instance_ack") for answer in node.answers))
        await node.reopen()
        assert node.run("one").ended
    finally:
        await node.clear()


async def test_what_outlives_a_crashed_main_process_is_ended_before_the_crash_is_told(node):
    await node.start("one", workloads.double_forking(stays=False, deaf=False))
    run = await node.settled("one")
    grandchild = int(node.console("one").split()[1])
    assert run.state == "CRASHED"
    with pytest.raises(ProcessLookupError):
        os.kill(grandchild, 0)


async def test_equal_crashes_have_equal_signatures(node):
    for id, address in (("one", "0x7fab12"), ("two", "0x55cd00")):
        says = f"segfault at {address} in /srv/data/{id}/lib.so line 12"
        await node.start(id, workloads.crashing(code=1, says=says))
        await node.settled(id)
    assert (await node.crash("one")).signature == (await node.crash("two")).signature
