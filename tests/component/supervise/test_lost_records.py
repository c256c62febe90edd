"""Somebody removes or cuts the `record` of a live run, and the daemon is restarted: never a second copy, and it
can be stopped."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest
from supervised_node import SupervisedNode

from corral.runtimes.keeper import run_files
from corral.testing import workloads
from corral.testing.runtime_contract import is_running
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually

RECORDS = (run_files.RECORD, run_files.RECORD_COPY)


def damage(directory: pathlib.Path, how: str, *names: str) -> None:
    for name in names:
        if how == "removed":
            (directory / name).unlink()
        else:
            os.truncate(directory / name, 30 if how == "cut" else 0)


@pytest.mark.parametrize("how", ["removed", "cut", "emptied"])
@pytest.mark.parametrize("name", RECORDS)
async def test_one_of_both_files_is_enough_to_go_on(node: SupervisedNode, how: str, name: str) -> None:
    await node.start("a-1", workloads.reading_commands())
    await node.says("a-1", "up")
    pid, directory = node.run("a-1").pid, node.run("a-1").files.directory
    await node.close()
    damage(directory, how, name)
    await node.open()
    assert (node.run("a-1").pid, node.run("a-1").state) == (pid, "RUNNING")
    assert (directory / RECORDS[0]).read_bytes() == (directory / RECORDS[1]).read_bytes()
    assert (await node.stop("a-1")).accepted
    outcome = (await node.settled("a-1")).outcome
    assert outcome is not None
    assert (outcome.outcome, outcome.exit.code) == ("stopped", 0)


async def test_a_daemon_that_stays_writes_them_again(node: SupervisedNode) -> None:
    """Before it lets go, and before a killed shim is replaced."""
    await node.start("a-1", workloads.reading_commands())
    await node.says("a-1", "up")
    directory = node.run("a-1").files.directory
    record = run_files.read_record(str(directory))
    assert record is not None
    damage(directory, "removed", *RECORDS)
    os.kill(record.shim, 9)
    await eventually(lambda: (found := run_files.read_record(str(directory))) and found.shim != record.shim)
    damage(directory, "removed", *RECORDS)
    await node.reopen()
    assert (node.run("a-1").pid, node.run("a-1").state) == (record.pid, "RUNNING")


@pytest.mark.system
@pytest.mark.parametrize(
    ("shim", "how", "order"),
    [
        ("lives", "removed", "stop"),
        ("lives", "cut", "kill"),
        ("dead", "removed", "kill"),
        ("dead", "cut", "stop"),
        ("dead", "emptied", "stop"),
    ],
)
async def test_without_both_it_says_why_and_is_ended_by_its_name(
    node: SupervisedNode, how: str, order: str, shim: str
) -> None:
    await node.start("a-1", workloads.silent())
    directory = node.run("a-1").files.directory
    record = run_files.read_record(str(directory))
    assert record is not None
    await node.close()
    if shim == "dead":
        await end_minders(node, record)
    damage(directory, how, *RECORDS)
    await node.open()

    async def told() -> bool:
        return "are damaged" in (await node.last_status("a-1")).reason

    await eventually(told, state=lambda: node.run("a-1").reason)
    assert "stop or kill the instance" in node.run("a-1").reason
    assert is_running(record.pid)
    assert (await node.stop("a-1", force=order == "kill")).accepted
    run = await node.settled("a-1")
    assert run.state == "STOPPED"
    assert not is_running(record.pid)
    assert not node.supervision.supervisor.is_active("a-1")


async def end_minders(node: SupervisedNode, record: run_files.RunRecord) -> None:
    """The keeper first: it would replace the shim."""
    for pid in (keeper_pid(node.data), record.shim):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    await eventually(lambda: not is_running(record.shim))
