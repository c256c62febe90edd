"""A disk that takes no more: the workload goes on, what was lost is told, and storing begins again."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import select
import shutil

import pytest

from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper.console_pump import RETRY_SECONDS, Pump
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually


@pytest.fixture
def disk(scratch):
    with small_disk(scratch / "disk", size="1m") as mount:
        yield mount


class Workload:
    """Writes to its console and would notice if that made it wait."""

    def __init__(self, mount: pathlib.Path, *, segment_bytes: int = 128 * 1024) -> None:
        self.directory = mount / "console"
        self.directory.mkdir(exist_ok=True)
        self._segment_bytes = segment_bytes
        self.source, self.sink = os.pipe()
        self.pump = self._new_pump()
        self.written = b""

    def _new_pump(self) -> Pump:
        return Pump(str(self.directory), self.source, segment_bytes=self._segment_bytes, quota_bytes=0)

    def write(self, data: bytes) -> None:
        """As a workload does, with a pump beside it; a full pipe would be a wait, so it never fills."""
        for start in range(0, len(data), 4096):
            assert select.select([], [self.sink], [], 0)[1], "the workload would have to wait"
            os.write(self.sink, data[start : start + 4096])
            self.pump.move()
        self.written += data

    def replace_pump(self) -> None:
        """Another pump takes over, as after a death; what the first one held is closed with it."""
        self.pump.drain()
        old, self.pump = self.pump, self._new_pump()
        old.close()

    def stored(self) -> dict[int, bytes]:
        with ConsoleLog(self.directory) as log:
            return {block.offset: block.data for block in log.blocks(0, log.end_offset)}

    def gaps(self) -> list[tuple[int, int, str]]:
        with ConsoleLog(self.directory) as log:
            return [(g.from_offset, g.to_offset, g.reason) for g in log.gaps(0, log.end_offset)]

    def close(self) -> None:
        self.pump.close()
        os.close(self.source)
        os.close(self.sink)

    def check(self) -> None:
        """What is stored is what was written there, and what is not stored is told as a gap."""
        pieces = [(offset, offset + len(data)) for offset, data in self.stored().items()]
        for offset, data in self.stored().items():
            assert self.written[offset : offset + len(data)] == data
        covered = sorted(pieces + [(start, end) for start, end, _ in self.gaps()])
        assert covered[0][0] == 0
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(covered))
        assert covered[-1][1] == len(self.written)


@pytest.fixture
def workload(disk):
    made = Workload(disk)
    yield made
    made.close()


def fill(mount: pathlib.Path) -> pathlib.Path:
    """Somebody else takes every block that is left."""
    path = mount / "somebody-else"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path


@pytest.mark.trap("T44")
async def test_on_a_full_disk_the_oldest_segments_go_then_bytes_are_discarded_and_later_stored_again(
    workload, disk
):
    workload.write(os.urandom(500_000))
    hog = fill(disk)
    workload.write(os.urandom(300_000))
    workload.check()
    assert not workload.pump.discarding, "giving up old segments is enough as long as there are some"
    while not workload.pump.discarding:
        fill(disk)
        workload.write(os.urandom(50_000))
    workload.write(os.urandom(2_000_000))
    workload.check()
    assert workload.gaps()[-1][2] == "disk-full"
    assert workload.gaps()[-1][1] == len(workload.written)

    hog.unlink()

    def stores_again() -> bool:
        workload.write(b"is there room again?\n")
        return not workload.pump.discarding

    await eventually(stores_again, deadline=RETRY_SECONDS * 10)
    workload.write(b"the last line\n")
    workload.check()
    *_, last = workload.stored().values()
    assert last.endswith(b"the last line\n")
    assert "disk-full" in {reason for *_, reason in workload.gaps()}


@pytest.mark.trap("T44")
def test_a_pump_that_takes_over_while_bytes_are_discarded_goes_on_behind_them(workload, disk):
    workload.write(os.urandom(100_000))
    fill(disk)
    while not workload.pump.discarding:
        workload.write(os.urandom(50_000))
    for _ in range(5):
        workload.replace_pump()
        workload.write(os.urandom(20_000))
        workload.check()
    (disk / "somebody-else").unlink()
    workload.replace_pump()
    workload.write(b"stored\n")
    workload.check()
    assert max(workload.stored().items())[1].endswith(b"stored\n")


@pytest.mark.trap("T44")
def test_offsets_never_step_back_whoever_dies_behind_a_gap(workload, disk):
    """A pump that finds a gap ends it; if it dies before it stored a byte, the next one begins there, too:
    whoever has read up to the end of the gap would miss what is stored before."""
    workload.write(os.urandom(100_000))
    hog = fill(disk)
    while not workload.pump.discarding:
        workload.write(os.urandom(50_000))
    hog.unlink()
    for _ in range(3):
        workload.replace_pump()
        assert workload.pump.end_offset == len(workload.written)
    workload.write(b"stored\n")
    workload.check()
    assert max(workload.stored().items())[1].endswith(b"stored\n")


@pytest.mark.trap("T44")
def test_the_directory_tells_the_offset_at_every_step_of_giving_up_segments(
    workload, disk, scratch, monkeypatch
):
    """A pump may be killed after any file it removes, its only segment included."""
    copies: list[pathlib.Path] = []
    unlink = os.unlink

    def watched(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        fill(disk)  # somebody else is quicker than the pump
        copies.append(scratch / f"copy-{len(copies)}")
        shutil.copytree(workload.directory, copies[-1])

    workload.write(os.urandom(3 * 128 * 1024))
    fill(disk)
    before = workload.pump.end_offset
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", watched)
        while not workload.pump.discarding:
            workload.write(os.urandom(50_000))
    assert copies
    for copy in copies:
        successor = Pump(str(copy), workload.source, segment_bytes=4096, quota_bytes=0)
        assert successor.end_offset >= before
        successor.close()


def test_a_disk_that_is_full_from_the_beginning_holds_up_nobody(disk):
    (disk / "console").mkdir()
    fill(disk)
    workload = Workload(disk)
    try:
        workload.write(os.urandom(500_000))
        assert workload.pump.discarding
        assert workload.stored() == {}
    finally:
        workload.close()


def test_a_disk_that_takes_a_little_now_and_then_leaves_no_litter(workload, disk):
    workload.write(os.urandom(100_000))
    hog = fill(disk)
    while not workload.pump.discarding:
        workload.write(os.urandom(50_000))
    for _ in range(5):
        os.truncate(hog, max(0, hog.stat().st_size - 4096))
        workload.pump._retry_at = 0.0  # a second has passed
        workload.write(os.urandom(10_000))
        fill(disk)
    workload.check()
    assert len(list(workload.directory.glob("*.log"))) <= 2
