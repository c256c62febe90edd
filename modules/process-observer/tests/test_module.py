"""Tests of process-observer. Run them with: corral module test modules/process-observer"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from process_observer.contract import NodeProcesses
from process_observer.module import ProcessObserver, percent_between
from process_observer.proc import Usage

from corral.testing.module_bench import ModuleBench

BUSY = "print(sum(range(3_000_000)), flush=True); input()"


@pytest.fixture
async def bench() -> AsyncIterator[ModuleBench]:
    async with ModuleBench(ProcessObserver, manifest="module.yaml", host="daemon") as bench:
        await bench.start()
        yield bench


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has used some of a CPU."""
    command = [sys.executable, "-I", "-S", "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        yield worker
        worker.kill()


def use(seconds: float) -> Usage:
    return Usage(cpu_seconds=seconds, resident_bytes=1, threads=1, processes=1)


def test_load_is_told_in_percent_of_a_core_and_never_below_nothing() -> None:
    assert percent_between(use(10), use(12.5), 5) == 50.0
    assert percent_between(use(10), use(9), 5) == 0.0
    assert percent_between(use(10), use(20), 0) == 0.0


async def test_an_instance_is_observed_until_it_ends(
    bench: ModuleBench, worker: subprocess.Popen[bytes]
) -> None:
    observed = bench.capability("corral.node.processes", NodeProcesses)
    await bench.node.started("lobby-1", pid=worker.pid)
    first = await observed.observe(instance_id="lobby-1")
    assert first is not None
    assert (first.instance_id, first.group, first.pid) == ("lobby-1", "lobby", worker.pid)
    assert first.cpu_seconds > 0
    assert first.cpu_percent is None
    assert first.resident_bytes > 1_000_000
    assert (first.threads, first.processes) == (1, 1)
    await bench.tick(5)
    (second,) = await observed.all()
    assert second.cpu_percent is not None
    assert second.at > first.at
    await bench.node.stopped("lobby-1")
    assert await observed.observe(instance_id="lobby-1") is None
    assert await observed.all() == []


async def test_figures_are_metrics_that_go_with_the_instance(
    bench: ModuleBench, worker: subprocess.Popen[bytes]
) -> None:
    await bench.node.started("lobby-1", pid=worker.pid)
    await bench.tick(10)
    shown = await bench.metrics()
    assert shown["instance_cpu_seconds"] > 0
    assert shown["instance_processes"] == 1
    assert {"instance_cpu_percent", "instance_resident_bytes", "instance_threads"} <= shown.keys()
    await bench.node.stopped("lobby-1")
    assert await bench.metrics() == {}


async def test_what_ran_before_the_module_did_is_observed_too(
    bench: ModuleBench, worker: subprocess.Popen[bytes]
) -> None:
    await bench.node.started("lobby-1", pid=worker.pid, adopted=True)
    await bench.tick(5)
    assert (await bench.metrics())["instance_cpu_seconds"] > 0


async def test_an_instance_that_has_ended_already_is_not_taken_for_another(
    bench: ModuleBench, worker: subprocess.Popen[bytes]
) -> None:
    observed = bench.capability("corral.node.processes", NodeProcesses)
    worker.kill()
    worker.wait()
    await bench.node.started("lobby-1", pid=worker.pid)
    await bench.tick(5)
    assert await observed.observe(instance_id="lobby-1") is None
    await bench.node.stopped("lobby-1")


async def test_the_end_of_a_run_does_not_end_the_observation_of_the_next(
    bench: ModuleBench, worker: subprocess.Popen[bytes]
) -> None:
    handle = await bench.node.started("lobby-1", pid=worker.pid)
    await bench.hook(
        "on_instance_stopped", handle={"instance_id": "lobby-1", "group": "lobby", "pid": 1}, exit={}
    )
    observed = bench.capability("corral.node.processes", NodeProcesses)
    usage = await observed.observe(instance_id="lobby-1")
    assert usage is not None
    assert usage.pid == handle.pid


async def test_a_new_interval_is_followed(bench: ModuleBench) -> None:
    await bench.reload({"intervalSeconds": 60})
    assert [task.schedule.every_ms for task in bench.tasks] == [60_000]
    assert await bench.tick(60) == 1
