"""One suite over every kind of control groups; what a kind cannot do, it must say."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal

import pytest
from cgroup_runs import IDLE, KINDS, SPINNING, machine_of, root_paths

from corral.errors import Code, CorralError, Rejected
from corral.runtimes.cgroups.processes import alive_among, read_stat
from corral.sdk.runtime import RunLimits
from corral.testing.waiting import eventually

OF_CONTROLLERS = pytest.mark.parametrize(
    "machine", [kind for kind in KINDS if kind != "hybrid"], indirect=True
)
"""For limits and usage: of these `hybrid` has the controllers of `v1`."""

FAMILY = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('up', flush=True)
        signal.pause()
    os._exit(0)  # its child belongs to nobody of the family now
os.wait()
signal.pause()
"""
RUNNER = """
import os, time
print('up', flush=True)
ends = time.monotonic() + 30  # nobody could catch it if the code under test did not
while time.monotonic() < ends:
    if os.fork():
        os._exit(0)
"""
RUNNERS = """
import os, signal, time
ends = time.monotonic() + 30
for _ in range(24):
    if os.fork() == 0:
        while time.monotonic() < ends:
            if os.fork():
                os._exit(0)  # always new pids: whoever lists and then kills comes too late
        os._exit(0)
print('up', flush=True)
signal.pause()
"""
CROWD = """
import os, signal
for _ in range(40):
    if os.fork() == 0:
        while True:
            if os.fork() == 0:
                os._exit(0)
            os.wait()
print('up', flush=True)
signal.pause()
"""
POLITE = """
import os, signal, sys
def leave(*_):
    open(sys.argv[1], 'w').write('goodbye')
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
print('up', flush=True)
while True:
    signal.pause()
"""
GREEDY = "b'x' * (256 << 20); print('up', flush=True)"
FORKING_UNTIL_REFUSED = """
import os, signal
children = 0
try:
    while children < 50:
        if os.fork() == 0:
            signal.pause()
        children += 1
except OSError:
    pass
print('refused' if children < 50 else 'unlimited', flush=True)
signal.pause()
"""


async def test_what_runs_in_work_is_listed_and_the_shim_is_not(machine):
    run = await machine.run()
    pid = await run.start_and_wait(IDLE)
    assert machine.cgroups.pids(run.name) == [pid]
    assert machine.cgroups.exists(run.name)
    assert run.name in machine.cgroups.leftovers()


async def test_a_process_that_left_its_session_and_its_parents_is_still_of_the_run(machine):
    run = await machine.run()
    first = await run.start_and_wait(FAMILY)
    await eventually(lambda: len(machine.cgroups.pids(run.name)) == 2)
    assert first in machine.cgroups.pids(run.name)


async def test_a_signal_reaches_every_process_of_the_run_and_not_the_shim(machine):
    run = await machine.run()
    await run.start_and_wait(FAMILY)
    await machine.cgroups.signal(run.name, signal.SIGTERM)
    await run.emptied()
    assert run.shim.poll() is None


async def test_a_signal_to_a_run_of_which_nothing_is_left_is_harmless(machine):
    run = await machine.run()
    await machine.cgroups.signal(run.name, signal.SIGTERM)
    await machine.cgroups.signal("lobby-unheard-of.1024", signal.SIGTERM)
    await machine.cgroups.kill("lobby-unheard-of.1024")
    assert machine.cgroups.pids("lobby-unheard-of.1024") == []


@pytest.mark.system
@pytest.mark.parametrize("program", [FAMILY, CROWD, RUNNERS], ids=["family", "crowd", "runners"])
async def test_a_kill_leaves_nobody_whatever_the_run_does_to_escape(machine, program):
    for _ in range(3):
        run = await machine.run()
        await run.start_and_wait(program)
        await machine.cgroups.kill(run.name)
        await eventually(lambda run=run: not run.survivors(), state=run.survivors)
        await eventually(lambda run=run: machine.cgroups.pids(run.name) == [])  # the dead are still buried
        assert run.shim.poll() is None
        await machine.cgroups.kill(run.name)


async def test_a_run_that_always_forks_and_ends_is_never_taken_for_an_empty_one(grouped):
    run = await grouped.run()
    await run.start_and_wait(RUNNER)
    assert all(grouped.cgroups.pids(run.name) for _ in range(200))


async def test_a_killed_run_leaves_the_run_beside_it_alone(machine):
    killed, other = await machine.run(), await machine.run()
    await killed.start_and_wait(IDLE)
    pid = await other.start_and_wait(IDLE)
    await machine.cgroups.kill(killed.name)
    await killed.emptied()
    assert machine.cgroups.pids(other.name) == [pid]


async def test_a_frozen_run_stands_still_while_its_neighbour_runs_and_goes_on_when_thawed(grouped, tmp_path):
    counters = [tmp_path / "frozen", tmp_path / "neighbour"]
    runs = [await grouped.run(), await grouped.run()]
    for run, counter in zip(runs, counters, strict=True):
        counter.write_bytes(bytes(8))
        await run.start_and_wait(SPINNING, str(counter))

    def count(counter):
        return int.from_bytes(counter.read_bytes(), "little")

    await grouped.cgroups.set_frozen(runs[0].name, True)
    stood, neighbour = count(counters[0]), count(counters[1])
    await eventually(lambda: count(counters[1]) > neighbour + 100_000)
    assert count(counters[0]) == stood
    await grouped.cgroups.set_frozen(runs[0].name, False)
    await eventually(lambda: count(counters[0]) > stood)


async def test_a_frozen_run_is_killed(grouped):
    run = await grouped.run()
    await run.start_and_wait(CROWD)
    await grouped.cgroups.set_frozen(run.name, True)
    await grouped.cgroups.kill(run.name)
    await run.emptied()


@pytest.mark.trap("T59")
async def test_a_frozen_run_ends_by_its_own_handler_after_a_thaw(grouped, tmp_path):
    run = await grouped.run()
    said = tmp_path / "said"
    await run.start_and_wait(POLITE, str(said))
    await grouped.cgroups.set_frozen(run.name, True)
    await grouped.cgroups.set_frozen(run.name, False)
    await grouped.cgroups.signal(run.name, signal.SIGTERM)
    await run.emptied()
    assert said.read_text() == "goodbye"


async def test_freezing_without_control_groups_is_refused_and_a_thaw_is_fine():
    async with machine_of("none") as machine:
        run = await machine.run()
        with pytest.raises(Rejected) as refused:
            await machine.cgroups.set_frozen(run.name, True)
        assert refused.value.code is Code.NOT_SUPPORTED
        await machine.cgroups.set_frozen(run.name, False)


@OF_CONTROLLERS
async def test_usage_counts_processes_memory_and_processor_time(machine, tmp_path):
    run = await machine.run()
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    await run.start_and_wait(SPINNING, str(counter))
    await run.start_and_wait("b = b'x' * (40 << 20); print('up', flush=True); import signal; signal.pause()")
    usage = await eventually(lambda: (u := machine.cgroups.usage(run.name)).cpu_seconds > 0.05 and u)
    assert usage.processes == 2
    assert usage.memory_bytes > 40 << 20


@OF_CONTROLLERS
async def test_a_run_over_its_memory_is_killed_and_the_reason_is_known(machine):
    if not machine.limits("memory"):
        pytest.skip("no memory controller for this kind of control groups here")
    run = await machine.run(RunLimits(memory_mb=48))
    assert not machine.cgroups.oom_killed(run.name)
    await run.start(GREEDY)
    await run.emptied()
    assert machine.cgroups.oom_killed(run.name)
    assert "oom_kill 0" not in pathlib.Path(machine.cgroups.oom_file(run.name)).read_text()


@OF_CONTROLLERS
async def test_a_run_that_was_killed_by_us_did_not_run_out_of_memory(machine):
    run = await machine.run(RunLimits(memory_mb=48))
    await run.start_and_wait(IDLE)
    await machine.cgroups.kill(run.name)
    await run.emptied()
    assert not machine.cgroups.oom_killed(run.name)


@OF_CONTROLLERS
async def test_a_run_over_its_number_of_processes_gets_no_more(machine):
    if not machine.limits("pids"):
        pytest.skip("no pids controller for this kind of control groups here")
    run = await machine.run(RunLimits(pids=20))
    await run.start(FORKING_UNTIL_REFUSED)
    await run.said("refused")


@OF_CONTROLLERS
async def test_a_run_over_its_processor_share_is_throttled(machine, tmp_path):
    if not machine.limits("cpu"):
        pytest.skip("no cpu controller for this kind of control groups here")
    run = await machine.run(RunLimits(cpu_cores=0.1))
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    await run.start_and_wait(SPINNING, str(counter))
    stats = [pathlib.Path(file).with_name("cpu.stat") for file in run.files]

    def throttled():
        text = "\n".join(path.read_text() for path in stats if path.exists())
        return [
            line for line in text.splitlines() if line.startswith("nr_throttled") and line.split()[1] != "0"
        ]

    await eventually(throttled)


async def test_a_group_with_a_process_left_is_not_removed_and_an_empty_one_is(grouped):
    run = await grouped.run()
    pid = await run.start_and_wait(IDLE)
    with pytest.raises(CorralError) as refused:
        await grouped.cgroups.remove(run.name)
    assert str(pid) in str(refused.value) or str(run.shim.pid) in str(refused.value)
    assert alive_among([pid]) == [pid]
    await grouped.cgroups.kill(run.name)
    run.end_shim()
    await run.emptied()
    await grouped.cgroups.remove(run.name)
    assert not grouped.cgroups.exists(run.name)
    assert run.name not in grouped.cgroups.leftovers()
    await grouped.cgroups.remove(run.name)


async def test_groups_that_a_workload_made_itself_are_counted_killed_and_removed(grouped):
    run = await grouped.run()
    pid = await run.start_and_wait(IDLE)
    for file in run.files:
        inner = pathlib.Path(file).with_name("inner")
        inner.mkdir()
        (inner / "cgroup.procs").write_text(str(pid))
    assert grouped.cgroups.pids(run.name) == [pid]
    await grouped.cgroups.kill(run.name)
    await run.emptied()


async def test_a_group_is_never_used_twice(grouped):
    run = await grouped.run()
    pid = await run.start_and_wait(IDLE)
    with pytest.raises(CorralError):
        await grouped.cgroups.create(run.name, shim_pid=run.shim.pid, limits=RunLimits())
    assert grouped.cgroups.pids(run.name) == [pid]


async def test_a_shim_that_died_meanwhile_leaves_no_group(grouped):
    run = grouped.new_run()
    run.end_shim()
    with pytest.raises(CorralError):
        await run.create()
    assert not grouped.cgroups.exists(run.name)


async def test_another_daemon_finds_and_ends_what_the_first_one_started(machine):
    """All that an adapter knows it finds again: nothing is in its memory alone."""
    run = await machine.run()
    pid = await run.start_and_wait(IDLE)
    successor = type(machine.cgroups).__new__(type(machine.cgroups))
    successor.__dict__.update(machine.cgroups.__dict__)
    if machine.kind == "none":
        successor.__init__(machine.cgroups._owner)
    assert run.name in successor.leftovers()
    assert successor.pids(run.name) == [pid]
    await successor.kill(run.name)
    await run.emptied()


async def test_what_is_proven_is_what_this_machine_can_do(machine):
    facts = await machine.cgroups.prove()
    grouped = machine.kind != "none"
    assert (facts.kill, facts.freeze) == (grouped, grouped)
    assert facts.memory_limit == machine.limits("memory")
    assert facts.cpu_limit == machine.limits("cpu")
    assert facts.pids_limit == machine.limits("pids")
    assert bool(facts.notes) == (not facts.memory_limit)
    assert machine.cgroups.leftovers() == []


async def test_a_keeper_is_housed_in_a_group_of_its_own_and_the_group_of_a_dead_one_goes(machine):
    run = machine.new_run()  # its process is a keeper here
    before = pathlib.Path(f"/proc/{run.shim.pid}/cgroup").read_text()
    await machine.cgroups.place_keeper(run.shim.pid, "n1")
    await machine.cgroups.place_keeper(run.shim.pid, "n1")
    after = pathlib.Path(f"/proc/{run.shim.pid}/cgroup").read_text()
    assert (before != after) == (machine.kind != "none")
    assert machine.cgroups.leftovers() == []
    assert read_stat(run.shim.pid) is not None


async def test_a_keeper_that_was_told_to_end_leaves_no_group_when_the_adapter_is_closed(grouped):
    run = grouped.new_run()
    await grouped.cgroups.place_keeper(run.shim.pid, "n1")
    asyncio.get_running_loop().call_later(0.1, run.shim.kill)  # it takes its time
    await grouped.cgroups.close()
    if grouped.kind != "systemd":  # which removes a scope by itself
        assert not any(path.exists() for path in root_paths(grouped.root))


async def test_many_runs_are_killed_at_once(machine):
    runs = [await machine.run() for _ in range(8)]
    for run in runs:
        await run.start_and_wait(FAMILY)
    await asyncio.gather(*(machine.cgroups.kill(run.name) for run in runs))
    for run in runs:
        await run.emptied()


async def test_after_the_death_of_the_shim_the_mark_in_the_environment_finds_the_run():
    async with machine_of("none") as machine, machine_of("none") as other:
        run = await machine.run()
        await run.start_and_wait(FAMILY)
        run.end_shim()
        await eventually(lambda: len(machine.cgroups.pids(run.name)) == 2)
        assert other.cgroups.pids(run.name) == []
        assert run.name not in other.cgroups.leftovers()
        await other.cgroups.kill(run.name)
        assert len(machine.cgroups.pids(run.name)) == 2
        await machine.cgroups.kill(run.name)
        await run.emptied()
        assert os.getpid() not in machine.cgroups.pids(run.name)
