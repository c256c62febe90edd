"""A disk that fills up while a directory is made."""

from __future__ import annotations

import ctypes
import os

import pytest
from prepare_bench import Bench

from corral.daemon.disk import check_room
from corral.daemon.prepare.stages import StageFailed
from corral.errors import Code, Retryable

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2


@pytest.fixture
def small_disk(scratch):
    """2 MiB of disk of its own; only root can have one."""
    mount = scratch / "disk"
    mount.mkdir()
    if _LIBC.mount(b"tmpfs", bytes(mount), b"tmpfs", 0, b"size=2m"):
        pytest.skip(f"no small disk to be had: {os.strerror(ctypes.get_errno())}")
    yield mount
    assert _LIBC.umount2(bytes(mount), _DETACH) == 0


async def test_a_disk_that_fills_up_meanwhile_leaves_the_old_directory_and_room_for_it(
    small_disk, scratch, make_plan, tree
):
    bench = Bench(small_disk, shelf=scratch / "elsewhere")
    made = await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"old"}),)))
    # By their sizes they fit; by the blocks they take they do not.
    many = bench.cache.template("t", {f"f{n}": b"%d" % n for n in range(800)})
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(many,)), incarnation=2048)
    error = failed.value.error
    assert (failed.value.stage, error.code) == ("TEMPLATE_APPLY", Code.DISK_FULL)
    assert isinstance(error, Retryable)
    assert error.retry_after == 30.0
    assert tree(made) == {"a": b"old"}
    assert bench.staged() == []
    await bench.directories.empty_bin()
    check_room(small_disk, reserve_mb=1)


async def test_what_would_not_fit_is_not_begun(small_disk, scratch, make_plan):
    bench = Bench(small_disk, shelf=scratch / "elsewhere")
    large = bench.cache.template("t", {"large": bytes(3_000_000)})
    with pytest.raises(StageFailed, match="MB of files"):
        await bench.make(make_plan(templates=(large,)))
    assert not list((bench.data / "running").glob(".staging/*/large"))


async def test_what_lies_on_another_disk_goes_in_one_rename_too(small_disk, scratch):
    """Deleting a large tree takes long, and whoever drops it may be the event loop."""
    bench = Bench(scratch / "data")
    bench.directories.static.rmdir()
    bench.directories.static.symlink_to(small_disk)
    staged = bench.directories.staging("one.1024", static=True)
    (staged / "inner").mkdir(parents=True)
    inode = (staged / "inner").stat().st_ino
    bench.directories.drop(staged)
    [gone] = (small_disk / ".discarded").iterdir()
    assert (staged.exists(), (gone / "inner").stat().st_ino) == (False, inode)
    await bench.directories.empty_bin()
    assert not list((small_disk / ".discarded").iterdir())
