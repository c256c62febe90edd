"""Commands with an id: into a run's input once, over the ends of daemons and of runs."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import sys

import pytest
from supervised_node import FIRST, SupervisedNode

from corral.daemon.runs.command_ids import FILE, REMEMBERED, CommandIds, Fate, Known
from corral.errors import Retryable
from corral.testing import workloads
from corral.testing.small_disk import small_disk

HERE = pathlib.Path(__file__).parent


async def reading(node: SupervisedNode, id: str = "i") -> None:
    await node.start(id, workloads.reading_commands())
    await node.says(id, "up\n")


async def flushed(node: SupervisedNode, id: str = "i") -> str:
    """What it answered, after everything that was sent before."""
    assert (await node.command(id, "last")).accepted
    await node.says(id, "got last\n")
    return node.console(id)


@pytest.mark.trap("T70")
async def test_a_command_that_is_sent_again_arrives_once_also_by_the_next_daemon(node):
    await reading(node)
    first = await node.command("i", "give 1000", incarnation=FIRST, command_id="c-1")
    assert (first.accepted, first.repeated) == (True, False)
    for _ in range(2):
        again = await node.command("i", "give 1000", incarnation=FIRST, command_id="c-1", repeated=True)
        assert (again.accepted, again.repeated) == (True, True)
        await node.reopen()
    assert (await node.command("i", "other", incarnation=FIRST, command_id="c-2")).accepted
    console = await flushed(node)
    assert console.count("got give 1000\n") == 1
    assert console.count("got other\n") == 1


@pytest.mark.trap("T70")
@pytest.mark.parametrize(("moment", "arrived"), [("before", 0), ("after", 1)])
async def test_a_daemon_killed_around_the_line_leaves_one_that_may_have_arrived(node, moment, arrived):
    await reading(node)
    await node.close()
    killed = await asyncio.create_subprocess_exec(
        sys.executable, HERE / "killed_commander.py", node.data, "i", "give 1000", "c-1", moment
    )
    assert await killed.wait() == -signal.SIGKILL
    await node.open()
    for _ in range(2):
        answer = await node.command("i", "give 1000", incarnation=FIRST, command_id="c-1", repeated=True)
        assert (answer.accepted, answer.error_code) == (False, "MAY_HAVE_ARRIVED")
        assert "look at the console" in answer.error_message
    assert (await flushed(node)).count("got give 1000\n") == arrived


@pytest.mark.trap("T70")
async def test_a_command_is_for_its_run_and_a_former_run_still_tells_whether_it_arrived(node):
    await reading(node)
    assert (await node.command("i", "one", incarnation=FIRST, command_id="c-1")).accepted
    await node.stop("i")
    await node.settled("i")
    await node.start("i", workloads.reading_commands(), incarnation=FIRST + 1000)
    await node.says("i", "up\n")
    arrived = await node.command("i", "one", incarnation=FIRST, command_id="c-1", repeated=True)
    assert (arrived.accepted, arrived.repeated) == (True, True)
    never = await node.command("i", "two", incarnation=FIRST, command_id="c-2", repeated=True)
    assert (never.accepted, never.error_code) == (False, "STALE_INCARNATION")
    assert "nothing was done" in never.error_message
    (node.data / "runs" / "i" / str(FIRST) / FILE).unlink()
    unknown = await node.command("i", "two", incarnation=FIRST, command_id="c-2", repeated=True)
    assert (unknown.accepted, unknown.error_code) == (False, "MAY_HAVE_ARRIVED")
    gone = await node.command("nobody", "two", incarnation=FIRST, command_id="c-2", repeated=True)
    assert gone.error_code == "MAY_HAVE_ARRIVED"
    console = await flushed(node)
    assert "got one" not in console
    assert "got two" not in console


async def test_a_command_that_the_run_did_not_take_is_tried_again(node):
    await node.start("i", workloads.not_reading())
    await node.says("i", "up\n")
    filler = "x" * 4095
    answers = [await node.command("i", filler, command_id=f"c-{n}") for n in range(17)]
    assert [answer.accepted for answer in answers[:16]] == [True] * 16
    assert answers[-1].error_code == "INPUT_NOT_READ"
    again = await node.command("i", filler, command_id="c-16", repeated=True)
    assert again.error_code == "INPUT_NOT_READ", "nothing of it had been sent, and that is known"
    wrong = await node.command("i", "x", command_id="ü" * 10)
    assert wrong.error_code == "INVALID_FIELD"


async def test_a_run_of_a_daemon_without_ids_takes_commands_and_tells_what_it_cannot_know(node):
    await reading(node)
    (node.data / "runs" / "i" / str(FIRST) / FILE).unlink()
    doubtful = await node.command("i", "old", incarnation=FIRST, command_id="c-1", repeated=True)
    assert doubtful.error_code == "MAY_HAVE_ARRIVED"
    assert (await node.command("i", "new", incarnation=FIRST, command_id="c-2")).accepted
    again = await node.command("i", "new", incarnation=FIRST, command_id="c-2", repeated=True)
    assert (again.accepted, again.repeated) == (True, True)
    doubtful = await node.command("i", "old", incarnation=FIRST, command_id="c-1", repeated=True)
    assert doubtful.error_code == "MAY_HAVE_ARRIVED"
    console = await flushed(node)
    assert (console.count("got new\n"), console.count("got old\n")) == (1, 0)


def test_the_last_thousand_ids_are_remembered_and_an_older_one_is_in_doubt(tmp_path):
    ids = CommandIds(tmp_path, boot_id="boot")
    ids.make()
    size = (tmp_path / FILE).stat().st_size
    for number in range(REMEMBERED):
        ids.settle(ids.begin(f"c-{number}"), Fate.ARRIVED)
    assert ids.find("another") == Known(Fate.WITHDRAWN, certain=True)
    assert ids.find("c-0") == Known(Fate.ARRIVED, certain=True)
    ids.begin("c-1000")
    assert ids.find("c-0") == Known(Fate.WITHDRAWN, certain=False)
    assert ids.find("c-1").fate is Fate.ARRIVED
    assert ids.find("c-1000").fate is Fate.BEGUN
    assert (tmp_path / FILE).stat().st_size == size


def test_what_a_host_that_went_down_may_have_forgotten_is_in_doubt(tmp_path):
    CommandIds(tmp_path, boot_id="before").make()
    assert CommandIds(tmp_path, boot_id="before").find("c").certain
    assert not CommandIds(tmp_path, boot_id="after").find("c").certain


@pytest.mark.parametrize("content", [b"", b"\0" * 40_000, b"garbage", b"corcmds1"], ids=len)
def test_a_damaged_file_of_ids_is_in_doubt_and_replaced(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    ids = CommandIds(tmp_path, boot_id="boot")
    assert ids.find("c") == Known(Fate.WITHDRAWN, certain=False)
    ids.settle(ids.begin("c"), Fate.ARRIVED)
    assert ids.find("c") == Known(Fate.ARRIVED, certain=True)
    assert not ids.find("another").certain


@pytest.fixture
def disk(scratch):
    with small_disk(scratch / "disk", size="1m") as mount:
        yield mount


def test_ids_are_written_on_a_disk_that_became_full_and_refused_where_none_are_kept(disk):
    there = disk / "there"
    there.mkdir()
    absent = disk / "absent"
    absent.mkdir()
    ids = CommandIds(there, boot_id="boot")
    ids.make()
    with (
        (disk / "ballast").open("wb", buffering=0) as ballast,
        pytest.raises(OSError, match="No space left"),
    ):
        while True:
            ballast.write(b"x" * 4096)
    for number in range(100):
        ids.settle(ids.begin(f"c-{number}"), Fate.ARRIVED)
    assert ids.find("c-99").fate is Fate.ARRIVED
    with pytest.raises(Retryable, match="No space left"):
        CommandIds(absent, boot_id="boot").begin("c")
    assert list(absent.iterdir()) == []
