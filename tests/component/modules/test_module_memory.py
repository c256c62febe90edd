"""A module's memory is that of all its processes, shared pages included: bounded, and shown as it is bounded."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.modules.process import Limits, ProcessPool
from corral.modules.process.call_failures import ProcessGone
from corral.sdk.protocol.messages import HEALTH, HealthAnswer, Nothing
from corral.sdk.runner.limit_watch import memory_of
from corral.sdk.runner.proc_table import children
from corral.testing.module_processes import DEADLINE, Workbench, run_hook
from corral.testing.waiting import eventually

MIB = 1 << 20
SHARED = """
import mmap
def shared(mib):
    made = mmap.mmap(-1, mib << 20)
    for place in range(0, mib << 20, 4096):
        made[place] = 1
    return made
"""
CHILDREN = """
def child(work):
    pid = os.fork()
    if pid == 0:
        kept = work()
        time.sleep(1000)
    return pid
"""


@pytest.fixture
async def house(scratch: pathlib.Path) -> AsyncIterator[ProcessPool]:
    async with ProcessPool(directory=scratch / "house") as house:
        yield house


@pytest.fixture
def bench(house: ProcessPool, scratch: pathlib.Path) -> Workbench:
    return Workbench(house, scratch / "module")


@pytest.mark.trap("T83")
@pytest.mark.parametrize(
    "code",
    [
        SHARED + "module.kept = [shared(16) for _ in range(20)]\ntime.sleep(1000)",
        CHILDREN
        + "for _ in range(8): child(lambda: bytearray(os.urandom(1024)) * (16 << 10))\ntime.sleep(1000)",
        SHARED + CHILDREN + "for _ in range(8): child(lambda: shared(16))\ntime.sleep(1000)",
        "made = os.memfd_create('x')\nfor _ in range(100): os.write(made, bytes(1 << 20))\ntime.sleep(1000)",
    ],
    ids=["shared pages", "children", "shared pages of children", "files in memory"],
)
async def test_what_goes_over_the_limit_by_any_way_is_ended_with_the_reason(
    bench: Workbench, code: str
) -> None:
    other = await bench.start(module_id="other")
    process = await bench.start(code, limits=Limits(memory_mb=80, processes=40))
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process, deadline=60.0)
    death = gone.value.death
    assert death.reason == "memory_limit"
    assert death.sample is not None
    assert death.sample.memory_bytes > 80 * MIB
    assert await other.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
    zygote = bench.pool.zygote_pid
    assert zygote is not None
    await eventually(lambda: children(zygote) == [other.pid])


@pytest.mark.trap("T83")
async def test_a_file_in_memory_that_is_mapped_counts_once(bench: Workbench) -> None:
    code = "import mmap\nmade = os.memfd_create('x')\nos.ftruncate(made, 64 << 20)\n"
    code += "module.kept = mmap.mmap(made, 64 << 20)\nmodule.kept.write(bytes(64 << 20))"
    process = await bench.start(code, limits=Limits(memory_mb=256, processes=40))
    await run_hook(process)
    await eventually(lambda: (process.memory_bytes or 0) > 64 * MIB)
    assert memory_of([process.pid]) < 128 * MIB
    await process.kill()


@pytest.mark.trap("T83")
async def test_shared_pages_are_shown(bench: Workbench) -> None:
    process = await bench.start(
        SHARED + "module.kept = shared(64)", limits=Limits(memory_mb=256, processes=40)
    )
    await run_hook(process)
    await eventually(
        lambda: (sample := process.sample()) is not None and 64 * MIB <= sample.memory_bytes < 128 * MIB,
        state=process.sample,
    )


@pytest.mark.trap("T83")
async def test_pages_that_children_share_with_the_module_count_once(bench: Workbench) -> None:
    code = (
        CHILDREN
        + "module.kept = bytearray(os.urandom(1024)) * (48 << 10)\n"
        + "module.children = [child(lambda: None) for _ in range(6)]"
    )
    process = await bench.start(code, limits=Limits(memory_mb=128, processes=40))
    await run_hook(process)
    await eventually(
        lambda: (
            (sample := process.sample()) is not None
            and sample.processes == 7
            and 48 * MIB <= sample.memory_bytes < 128 * MIB
        ),
        state=process.sample,
    )
    assert not process.death.done()
