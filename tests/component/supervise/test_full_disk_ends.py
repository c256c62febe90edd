"""Ends on a full disk: told at once, written, and the directory that fills it is freed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal

import msgspec
import pytest
from supervised_node import FIRST, SETTINGS, SupervisedNode

from corral.errors import Retryable
from corral.system.daemon_config import DaemonConfig, DiskSection
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import InstanceState

MEBI = 1 << 20
HOG = "dd if=/dev/zero of=world bs=4096 2>/dev/null; echo full; exec sleep 1000"
"""Fills its disk, and lives on."""


@pytest.fixture
async def node(scratch):
    """On a disk of its own."""
    with small_disk(scratch / "disk", size="8m") as mount:
        node = SupervisedNode(
            mount / "node",
            settings=msgspec.structs.replace(SETTINGS, console_segment_bytes=MEBI),
            config=DaemonConfig(disk=DiskSection(reserve_mb=1)),
        )
        await node.open()
        yield node
        fill(node).unlink()
        await node.clear()


def free(node: SupervisedNode) -> int:
    found = os.statvfs(node.data)
    return found.f_bavail * found.f_frsize


def fill(node: SupervisedNode) -> pathlib.Path:
    """Somebody else takes every block that is left."""
    path = node.data.parent / "somebody-else"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path


async def fill_spool(node: SupervisedNode) -> None:
    """Until neither the disk nor the spool, in the room that it has, takes anything. What the spool gives back of a
    record that it could not write is taken, too."""
    while free(node):
        fill(node)
        with contextlib.suppress(Retryable):
            while True:
                await node.spool.put(b"")


def live_states(node: SupervisedNode, id: str) -> list[str]:
    """What went over the live link, without a spool."""
    told = [message.instance_status for message in node.sent if message.HasField("instance_status")]
    return [
        InstanceState.Name(status.state).removeprefix("INSTANCE_STATE_")
        for status in told
        if status.instance_id == id and not status.stage
    ]


@pytest.mark.trap("T72")
@pytest.mark.parametrize("force", [False, True])
async def test_what_fills_the_disk_with_its_own_files_is_stopped_and_they_go(node, force):
    await node.start("hog", ["/bin/sh", "-c", HOG])
    await eventually(lambda: free(node) == 0)
    assert (await node.stop("hog", force=force)).accepted
    run = await node.settled("hog")
    assert run.state == "STOPPED"
    await eventually(lambda: free(node) > 2 * MEBI)
    assert (await node.start("next", ["/bin/sleep", "1000"])).accepted, "a replacement comes"
    assert (await node.told("hog"))[-1] == "STOPPED:0"


@pytest.mark.trap("T72")
async def test_a_crash_on_a_full_disk_is_told_at_once_and_kept_when_there_is_room(node):
    ack = await node.start("one", ["/bin/sleep", "1000"])
    await node.until("one", "RUNNING")
    await fill_spool(node)
    os.kill(ack.pid, signal.SIGKILL)
    run = await node.settled("one")
    assert run.state == "CRASHED"
    assert run.files.outcome() is not None, "its room was there before it started"
    assert "disk" in run.reason
    assert "full" in run.reason
    reporter = node.supervision.services.reporter
    await eventually(lambda: not reporter.waiting or "CRASHED" in live_states(node, "one"))
    fill(node).unlink()
    story = await node.told("one")
    assert story[-2:] == ["crash:0", "CRASHED:0"]
    assert len(story) == len(set(story)), "nothing is told twice"


@pytest.mark.trap("T72")
async def test_what_crashes_because_it_filled_the_disk_is_restarted_in_a_new_directory(node):
    once = "test -e /proc/self/fd && if mkdir ../../../filled 2>/dev/null; then dd if=/dev/zero of=world bs=4096; exit 3; fi; exec sleep 1000"
    await node.start("hog", ["/bin/sh", "-c", once], attempts=2)
    run = await node.until("hog", "RUNNING", incarnation=FIRST + 1)
    assert run.state == "RUNNING"
    assert free(node) > MEBI
    assert not (node.data / "running" / "hog" / "world").exists()


@pytest.mark.trap("T72")
async def test_an_end_without_room_that_was_made_for_it_is_told_and_written_later(node):
    """A run of a daemon that made none."""
    ack = await node.start("old", ["/bin/sleep", "1000"], attempts=2)
    run = await node.until("old", "RUNNING")
    (run.files.directory / ".outcome.json.room").unlink()
    await fill_spool(node)
    os.kill(ack.pid, signal.SIGKILL)
    await eventually(lambda: "CRASHED" in live_states(node, "old"))
    assert "not written" in node.run("old").reason
    assert not run.files.has_outcome()
    await node.stop("old")
    assert node.run("old").state == "CRASHED"
    fill(node).unlink()
    ended = await node.settled("old")
    assert ended.order.incarnation == FIRST, "what was told as an end is not begun again"
    assert ended.files.outcome() is not None
    assert (await node.told("old"))[-2:] == ["crash:0", "CRASHED:0"]


@pytest.mark.trap("T72")
async def test_an_end_that_can_neither_be_written_nor_told_takes_an_order_to_stop(node):
    """Without a controller; and it is not begun again when there is room."""
    ack = await node.start("old", ["/bin/sleep", "1000"], attempts=2)
    run = await node.until("old", "RUNNING")
    (run.files.directory / ".outcome.json.room").unlink()
    await fill_spool(node)
    node.connected = False
    os.kill(ack.pid, signal.SIGKILL)
    await eventually(lambda: run.handle is None)
    stopped = await node.stop("old")
    assert (stopped.accepted, stopped.error_message) == (True, "")
    fill(node).unlink()
    ended = await node.settled("old")
    assert (ended.state, ended.order.incarnation) == ("CRASHED", FIRST)
    assert ended.files.outcome() is not None
