"""One inotify descriptor tells once for each console that was armed."""

from __future__ import annotations

import os
import shutil

from corral.daemon.console.growth_watch import GrowthWatch
from corral.runtimes.keeper.console_pump import Pump
from corral.testing.waiting import eventually


async def test_growth_is_told_once_until_it_is_armed_again(scratch):
    told: list[str] = []
    source, sink = os.pipe()
    pump = Pump(str(scratch), source, segment_bytes=1 << 20, quota_bytes=0)
    os.write(sink, b"before\n")
    pump.drain()
    with GrowthWatch[str](told.append) as watch:
        for number in range(1, 4):
            watch.arm("lobby-1", str(scratch))
            for _ in range(10):
                os.write(sink, b"splice tells, too\n")
                pump.drain()
            await eventually(lambda number=number: len(told) == number)
        assert told == ["lobby-1"] * 3
        assert watch._keys == {}
    pump.close()
    os.close(source)
    os.close(sink)


async def test_many_directories_share_a_descriptor(scratch):
    told: set[int] = set()
    descriptors = len(os.listdir("/proc/self/fd"))
    with GrowthWatch[int](told.add) as watch:
        for number in range(200):
            (scratch / str(number)).mkdir()
            watch.arm(number, str(scratch / str(number)))
        assert len(os.listdir("/proc/self/fd")) == descriptors + 1
        for number in range(0, 200, 2):
            (scratch / str(number) / "00000000000000000000.log").touch()
        await eventually(lambda: told == set(range(0, 200, 2)))
        watch.disarm(1)
        (scratch / "1" / "x").touch()
        (scratch / "3" / "x").touch()
        await eventually(lambda: 3 in told)
        assert 1 not in told


async def test_a_directory_that_goes_or_never_was_is_forgotten(scratch):
    told: list[str] = []
    (scratch / "here").mkdir()
    with GrowthWatch[str](told.append) as watch:
        watch.arm("gone", str(scratch / "nowhere"))
        watch.arm("here", str(scratch / "here"))
        shutil.rmtree(scratch / "here")
        await eventually(lambda: watch._keys == {})
    assert told == []
