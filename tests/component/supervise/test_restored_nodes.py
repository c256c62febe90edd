"""A node whose data directory was put back to an earlier copy: no run is taken for another, nothing healthy is ended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest
from supervised_node import FIRST, SupervisedNode, start_frame, with_settings

from corral.daemon.supervise.supervisor import running_instances
from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper.run_files import read_record
from corral.runtimes.process.workload_context import RuntimeMark, write_mark
from corral.system.accounts import RunUser
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import RestartPolicy, RunName
from corral.wire.v1.node_pb2 import HandshakeAck

LASTING = ["/bin/sleep", "1000"]
TALKING = [
    "/bin/sh",
    "-c",
    "echo before; trap 'echo heard' USR1; trap 'exit 7' TERM; while :; do sleep 0.05; done",
]


class Snapshot:
    """A copy of a node's data directory, made while its daemon was away."""

    def __init__(self, node: SupervisedNode, place: pathlib.Path) -> None:
        self._node = node
        self._place = place

    async def take(self) -> None:
        await self._node.close()
        subprocess.run(["cp", "-a", str(self._node.data), str(self._place)], check=True)
        await self._node.open()

    async def put_back(self, *, kill: int = 0) -> None:
        """With the daemon away; `kill`: this process ends meanwhile. The keeper of the former directory goes."""
        keeper = await self._node.runtime.runtime.start_keeper()
        await self._node.close()
        if kill:
            os.kill(kill, signal.SIGKILL)
            await eventually(lambda: not pathlib.Path(f"/proc/{kill}").exists())
        if pathlib.Path(f"/proc/{keeper.pid}").exists():
            os.kill(keeper.pid, signal.SIGKILL)
        self._node.data.rename(self._node.data.with_name("newer"))
        self._place.rename(self._node.data)
        await self._node.open()


@pytest.fixture
def snapshot(node, scratch):
    return Snapshot(node, scratch / "older")


async def restarted(node: SupervisedNode, pid: int, number: int) -> int:
    """End it by its process, and wait until its node has started it again; the new process."""
    os.kill(pid, signal.SIGKILL)
    run = await node.until("one", "RUNNING", incarnation=number)
    return run.pid


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_a_number_that_is_used_again_without_a_controller_is_another_run(node, snapshot):
    ack = await node.start("one", LASTING, attempts=9)
    await node.until("one", "RUNNING")
    await snapshot.take()
    pid = await restarted(node, ack.pid, FIRST + 1)
    first = node.run("one").nonce
    await snapshot.put_back(kill=pid)
    again = await node.until("one", "RUNNING", incarnation=FIRST + 1)
    assert again.nonce
    assert again.nonce != first
    (listed,) = running_instances(node.supervision.supervisor, lambda _: False)
    assert (listed.incarnation, listed.nonce) == (FIRST + 1, again.nonce)
    assert (await node.last_status("one")).nonce == again.nonce
    assert (await node.crash("one")).nonce not in ("", first, again.nonce), "that of the run before"


@pytest.mark.trap("T73")
async def test_numbers_that_the_controller_knows_are_not_used_again(node, snapshot):
    ack = await node.start("one", LASTING, attempts=9)
    await node.until("one", "RUNNING")

    class Session:
        ack = HandshakeAck(known_runs=[RunName(instance_id="one", incarnation=FIRST + 5)])

    node.supervision.services.known_runs.on_connected(Session())
    await restarted(node, ack.pid, FIRST + 6)


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_a_run_that_the_copy_does_not_know_lives_on_alone_until_somebody_ends_it(node, snapshot):
    ack = await node.start("one", LASTING, attempts=9)
    await node.until("one", "RUNNING")
    await snapshot.take()
    pid = await restarted(node, ack.pid, FIRST + 1)
    await snapshot.put_back()
    ended = await node.until("one", "CRASHED", incarnation=FIRST)
    assert "lives here without its run directory" in ended.reason
    await node.supervision.housekeeping.tidy()
    assert pathlib.Path(f"/proc/{pid}").exists(), "it is healthy, and nobody asked for its end"
    listed = {run.incarnation: run for run in running_instances(node.supervision.supervisor, lambda _: False)}
    assert listed[FIRST + 1].pid == pid
    refused = await node.answer(start_frame("one", LASTING, incarnation=FIRST + 1024), "start_instance_ack")
    assert not refused.accepted
    assert "without its run directory" in refused.error_message
    assert refused.incarnation == FIRST + 1024
    assert (await node.stop("one", incarnation=FIRST + 1)).accepted

    async def gone() -> bool:
        await node.supervision.housekeeping.tidy()
        return not node.supervision.supervisor.lost()

    await eventually(gone)
    await eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    assert (await node.told("one"))[-1] == "STOPPED:1"
    assert (await node.start("one", LASTING, incarnation=FIRST + 1024)).accepted


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_the_end_of_a_run_that_the_copy_does_not_know_is_told_by_itself(node, snapshot):
    ack = await node.start("one", LASTING, attempts=9)
    await node.until("one", "RUNNING")
    await snapshot.take()
    pid = await restarted(node, ack.pid, FIRST + 1)
    await snapshot.put_back()
    (lost,) = node.supervision.supervisor.lost()
    assert lost.pid == pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not node.supervision.supervisor.lost())
    status = await node.last_status("one")
    assert status.incarnation == FIRST + 1
    assert not status.exit.known
    assert (await node.told("one"))[-1] == "CRASHED:1"


async def copied_intent(node: SupervisedNode, snapshot: Snapshot, *, attempted: bool) -> int:
    """A copy in which the restart of `one` is an intent, `attempted` or not; its process, once it was executed."""
    policy = RestartPolicy(attempts=9, interval_ms=300_000, delay_ms=1500, max_delay_ms=1500)
    ack = await node.start("one", LASTING, restart_policy=policy)
    await node.until("one", "RUNNING")
    os.kill(ack.pid, signal.SIGKILL)
    run = await node.until("one", "SCHEDULED", incarnation=FIRST + 1)
    await eventually(run.files.has_intent)
    if attempted:
        user = RunUser(name="")
        mark = RuntimeMark(runtime="process", directory="", user=user, run=run.name)
        write_mark(str(run.files.directory), mark)
    await snapshot.take()
    return (await node.until("one", "RUNNING", incarnation=FIRST + 1)).pid


@pytest.mark.system
@pytest.mark.trap("T73")
@pytest.mark.parametrize(("attempted", "cgroups"), [(False, "auto"), (True, "auto"), (False, "none")])
async def test_a_living_run_that_is_an_intent_in_the_copy_is_not_started_beside_itself(
    node, snapshot, attempted, cgroups
):
    await node.close()
    node.settings = with_settings(cgroups=cgroups)
    await node.open()
    pid = await copied_intent(node, snapshot, attempted=attempted)
    await snapshot.put_back()
    if attempted:
        await eventually(lambda: "looked for again" in node.run("one").reason)
    else:
        (lost,) = node.supervision.supervisor.lost()
        assert (lost.incarnation, lost.pid) == (FIRST + 1, pid)
    refused = await node.answer(start_frame("one", LASTING, incarnation=FIRST + 1024), "start_instance_ack")
    assert not refused.accepted
    assert (await node.told("one"))[-1] != "CRASHED:1", "it lives"
    assert pathlib.Path(f"/proc/{pid}").exists()
    assert (await node.stop("one", incarnation=FIRST + 1)).accepted
    await eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_an_intent_of_the_copy_whose_run_has_ended_is_executed_as_another_run(node, snapshot):
    pid = await copied_intent(node, snapshot, attempted=False)
    first = node.run("one").nonce
    await snapshot.put_back(kill=pid)
    again = await node.until("one", "RUNNING", incarnation=FIRST + 1)
    assert again.nonce not in ("", first)
    assert again.files.intent().nonce == again.nonce, "later daemons know it by this nonce"


def gaps(node: SupervisedNode) -> list[tuple[int, str]]:
    """Of the console of `one`: where each begins, and why."""
    with ConsoleLog(node.run("one").files.console) as log:
        return [(gap.from_offset, gap.reason) for gap in log.gaps(0, log.end_offset)]


@pytest.mark.trap("T73")
async def test_a_console_that_goes_on_in_the_directory_that_was_put_away_has_a_gap(node, snapshot):
    ack = await node.start("one", TALKING)
    await node.says("one", "before")
    await snapshot.take()
    assert gaps(node) == []
    await snapshot.put_back()
    again = await node.until("one", "RUNNING", incarnation=FIRST)
    assert again.pid == ack.pid
    stored = len("before\n")
    assert gaps(node) == [(stored, "unknown")]
    assert "another directory" in again.reason
    (listed,) = running_instances(node.supervision.supervisor, lambda _: False)
    assert "another directory" in listed.reason
    await node.reopen()
    assert gaps(node) == [(stored, "unknown")], "it is told once"
    os.kill(ack.pid, signal.SIGTERM)
    ended = await node.settled("one")
    assert ended.outcome.exit.code == 7
    assert gaps(node) == [(stored, "unknown")]


async def replaced_shim(node: SupervisedNode) -> None:
    """Kill the shim of `one`, and wait for whoever takes its place."""
    directory = str(node.run("one").files.directory)
    os.kill(read_record(directory).shim, signal.SIGKILL)
    await eventually(lambda: read_record(directory).rescued)


@pytest.mark.trap("T73")
async def test_the_console_goes_on_behind_the_gap_with_the_next_shim(node, snapshot):
    ack = await node.start("one", TALKING)
    await node.says("one", "before")
    await snapshot.take()
    await snapshot.put_back()
    await replaced_shim(node)
    os.kill(ack.pid, signal.SIGUSR1)
    await node.says("one", "heard")
    assert gaps(node) == [(len("before\n"), "unknown")]


@pytest.mark.trap("T73")
async def test_a_shim_that_the_copy_does_not_know_leaves_a_gap_as_well(node, snapshot):
    await node.start("one", TALKING)
    await node.says("one", "before")
    await snapshot.take()
    await replaced_shim(node)
    await snapshot.put_back()
    assert gaps(node) == [(len("before\n"), "unknown")]
    assert "another directory" in node.run("one").reason
