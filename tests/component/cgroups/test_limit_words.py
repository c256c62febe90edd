"""The words of the v2 files. Machines whose controllers are v1's cannot try them on the kernel."""

from __future__ import annotations

import pytest

from corral.runtimes.cgroups import unified
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.sdk.runtime import RunLimits

DEFAULTS = {
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.oom.group": "0\n",
    "cpu.max": "max 100000\n",
    "pids.max": "max\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 0\noom_group_kill 0\n",
}


@pytest.fixture
def work(tmp_path):
    for name, text in DEFAULTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def written(work, name):
    """The first line: the kernel takes one write whole, a plain file keeps what lay behind it."""
    return (work / name).read_text().splitlines()[0]


def test_limits_are_written_and_told_in_force(work):
    assert unified.limits_in_force(str(work)) == frozenset()
    for name in DEFAULTS:
        (work / name).write_text("")
    unified.set_limits(str(work), RunLimits(memory_mb=512, cpu_cores=1.5, pids=300))
    assert written(work, "memory.max") == str(512 * 1024 * 1024)
    assert written(work, "memory.swap.max") == "0"
    assert written(work, "memory.oom.group") == "1"
    assert written(work, "cpu.max") == "150000 100000"
    assert written(work, "pids.max") == "300"
    assert unified.limits_in_force(str(work)) == {"memory", "cpu", "pids"}


def test_no_limit_leaves_the_kernels_own(work):
    unified.set_limits(str(work), RunLimits())
    assert (work / "memory.max").read_text() == DEFAULTS["memory.max"]
    assert (work / "cpu.max").read_text() == DEFAULTS["cpu.max"]
    assert unified.limits_in_force(str(work)) == frozenset()


def test_a_file_that_the_kernel_does_not_have_is_not_made(tmp_path):
    unified.set_limits(str(tmp_path), RunLimits(memory_mb=512, cpu_cores=1, pids=10))
    assert list(tmp_path.iterdir()) == []


def test_only_a_kill_for_want_of_memory_counts_as_one(work):
    assert not oom_kill_counted(str(work / "memory.events"))
    (work / "memory.events").write_text("oom 3\noom_kill 1\noom_group_kill 0\n")
    assert oom_kill_counted(str(work / "memory.events"))


def test_memory_of_files_that_can_be_dropped_is_not_counted(work):
    (work / "memory.current").write_text("50000000\n")
    (work / "memory.stat").write_text("anon 1\ninactive_file 20000000\n")
    (work / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    usage = unified.usage(str(work))
    assert (usage.memory_bytes, usage.cpu_seconds, usage.processes) == (30_000_000, 2.5, 0)
