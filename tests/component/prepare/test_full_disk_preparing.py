"""A disk that fills up while a directory is made."""

from __future__ import annotations

import pytest
from prepare_bench import Bench

from corral.daemon.node.disk_space import check_room
from corral.daemon.workload.start_stages import StageFailed
from corral.errors import Code, Retryable
from corral.testing.small_disk import small_disk


@pytest.fixture
def disk(scratch):
    with small_disk(scratch / "disk", size="2m") as mount:
        yield mount


async def test_a_disk_that_fills_up_meanwhile_leaves_the_old_directory_and_room_for_it(
    disk, scratch, make_plan, tree
):
    bench = Bench(disk, shelf=scratch / "elsewhere")
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
    check_room(disk, reserve_mb=1)


async def test_what_would_not_fit_is_not_begun(disk, scratch, make_plan):
    bench = Bench(disk, shelf=scratch / "elsewhere")
    large = bench.cache.template("t", {"large": bytes(3_000_000)})
    with pytest.raises(StageFailed, match="MB of files"):
        await bench.make(make_plan(templates=(large,)))
    assert not list((bench.data / "running").glob(".staging/*/large"))


async def test_what_lies_on_another_disk_goes_in_one_rename_too(disk, scratch):
    """Deleting a large tree takes long, and whoever drops it may be the event loop."""
    bench = Bench(scratch / "data")
    bench.directories.static.rmdir()
    bench.directories.static.symlink_to(disk)
    staged = bench.directories.staging("one.1024", static=True)
    (staged / "inner").mkdir(parents=True)
    inode = (staged / "inner").stat().st_ino
    bench.directories.drop(staged)
    [gone] = (disk / ".discarded").iterdir()
    assert (staged.exists(), (gone / "inner").stat().st_ino) == (False, inode)
    await bench.directories.empty_bin()
    assert not list((disk / ".discarded").iterdir())
