"""A daemon that finds what another one left."""

from __future__ import annotations

import os
import pathlib
import re
import signal

import pytest
from supervised_node import FIRST, SupervisedNode

from corral.daemon.runs.run_files import RunFiles, StopOrder
from corral.daemon.supervise.supervisor import running_instances
from corral.runtimes.keeper.proc_facts import start_time
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import StopRung

LONG = [StopRung(command="stop", wait_ms=3_600_000)]


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


def listed(node: SupervisedNode) -> dict[str, int]:
    return {
        run.instance_id: run.pid
        for run in running_instances(node.supervision.supervisor, node.spool.confirmed)
    }


async def test_what_runs_goes_on_under_the_next_daemon(node):
    ack = await node.start("one", workloads.reading_commands())
    await node.until("one", "RUNNING")
    await node.close()
    assert alive(ack.pid)
    await node.open()
    run = node.run("one")
    assert (run.state, run.pid) == ("RUNNING", ack.pid)
    assert listed(node) == {"one": ack.pid}
    assert (await node.command("one", "hello")).accepted
    await node.says("one", "got hello")
    await node.stop("one")
    assert (await node.settled("one")).outcome.rung == "command stop"


async def test_what_was_restarted_and_runs_does_not_say_any_more_that_it_will(node):
    script = "test -e seen && exec sleep 3600; touch seen; exit 3"
    await node.start("one", workloads.shell(script), attempts=1)
    await node.until("one", "RUNNING", incarnation=FIRST + 1)
    await node.close()
    await node.open()
    (told,) = running_instances(node.supervision.supervisor, node.spool.confirmed)
    assert (node.run("one").state, told.incarnation, told.reason) == ("RUNNING", FIRST + 1, "")
    await node.close()
    node.run("one").files.write_order(StopOrder(reason="it was to stop"))
    await node.open()
    assert (node.run("one").state, node.run("one").reason) == ("STOPPING", "it was to stop")


@pytest.mark.trap("T8")
async def test_how_it_ended_is_known_though_no_daemon_was_there(node):
    ack = await node.start("one", workloads.crashing(code=23, after_seconds=0.3))
    await node.close()
    await eventually(lambda: not alive(ack.pid))
    await node.open()
    run = await node.settled("one")
    assert (run.state, run.outcome.exit.code, run.outcome.pid) == ("CRASHED", 23, ack.pid)
    assert run.outcome.uptime_ms >= 300
    assert (await node.told("one")).count("crash:0") == 1
    await node.reopen()
    await node.reopen()
    assert (await node.told("one")).count("crash:0") == 1, "told twice"
    assert (await node.told("one")).count("CRASHED:0") == 1


async def test_an_end_that_was_stored_and_not_told_is_told_by_the_next_daemon(node):
    await node.start("one", workloads.crashing(code=5, says="last words"))
    run = await node.settled("one")
    await node.supervision.services.reporter.settled()
    await node.close()
    (run.files.directory / "reported").unlink()
    await node.open()
    assert (await node.told("one")).count("CRASHED:0") == 2
    assert list((await node.crash("one")).log_tail) == ["last words"]


async def test_an_end_is_named_at_each_greeting_until_it_is_confirmed(node):
    await node.start("one", workloads.crashing(code=5))
    await node.settled("one")
    await node.reports()
    assert "one" in listed(node)
    await node.reopen()
    assert "one" in listed(node)
    node.spool.confirm(node.spool.head)
    assert listed(node) == {}
    await node.reopen()
    assert listed(node) == {}


async def test_an_intent_that_was_never_executed_is_started_by_the_next_daemon(node):
    await node.start("one", workloads.silent())
    run = await node.until("one", "RUNNING")
    await node.stop("one", force=True)
    await node.settled("one")
    await node.close()
    for path in run.files.directory.iterdir():
        if path.is_file() and path.name != "intent.json":
            path.unlink()
    await node.open()
    again = await node.until("one", "RUNNING")
    assert alive(again.pid)
    assert again.order.incarnation == FIRST
    assert again.nonce not in ("", run.nonce), "with the former one it may have been executed before"


async def test_an_intent_that_was_to_stop_is_not_started(node):
    await node.start("one", workloads.silent())
    run = await node.until("one", "RUNNING")
    await node.stop("one", force=True)
    await node.settled("one")
    await node.close()
    for path in run.files.directory.iterdir():
        if path.is_file() and path.name not in ("intent.json", "order.json"):
            path.unlink()
    await node.open()
    run = await node.settled("one")
    assert (run.state, run.outcome.outcome, run.pid) == ("STOPPED", "never_started", 0)


async def test_a_daemon_that_dies_on_the_ladder_is_followed_by_one_that_goes_on_down(node):
    ack = await node.start("one", workloads.slow_stopper(1), stop_ladder=LONG)
    await node.says("one", "up")
    await node.stop("one")
    await node.close()
    assert alive(ack.pid)
    await node.open()
    assert node.run("one").state == "STOPPING"
    run = await node.settled("one")
    assert (run.state, run.outcome.exit.code) == ("STOPPED", 0)


async def test_a_kill_that_was_ordered_is_carried_out_by_the_next_daemon(node):
    ack = await node.start("one", workloads.ignoring_signals(), stop_ladder=LONG)
    await node.says("one", "up")
    files = node.run("one").files
    await node.close()
    files.write_order(StopOrder(reason="killed", force=True))
    await node.open()
    run = await node.settled("one")
    assert not alive(ack.pid)
    assert run.outcome.rung == "kill"


@pytest.mark.system
async def test_after_a_restart_of_the_host_it_is_no_crash_and_what_is_wanted_starts_again(node, reaper):
    for id in ("wanted", "stopped"):
        await node.start(id, workloads.silent())
        await node.until(id, "RUNNING")
    pids = {id: node.run(id).pid for id in ("wanted", "stopped")}
    directories = {id: node.run(id).files.directory for id in pids}
    await node.close()
    for id, pid in pids.items():
        os.kill(pid, signal.SIGKILL)
        await eventually((directories[id] / "empty").exists)
        forget_boot(directories[id])
    RunFiles(directories["stopped"]).write_order(StopOrder(reason="it was to stop"))
    await node.open()
    run = await node.until("wanted", "RUNNING", incarnation=FIRST + 1)
    assert alive(run.pid)
    stopped = await node.settled("stopped")
    assert (stopped.state, stopped.outcome.outcome) == ("STOPPED", "host_rebooted")
    before = RunFiles(directories["wanted"]).outcome()
    assert (before.outcome, before.restarted_as, before.crashes) == ("host_rebooted", FIRST + 1, ())
    assert "crash:0" not in await node.told("wanted")


def forget_boot(directory: pathlib.Path) -> None:
    """As if the machine had been switched off: another boot id, and no word about the end."""
    record = directory / "record"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join("boot=another-boot\n" if line.startswith("boot=") else line for line in lines))
    (directory / "exit").unlink()
    (directory / "empty").unlink()


def take_number(record: pathlib.Path, pid: int) -> None:
    """As if the number of a run's process belonged to this one by now, which was started later: two that are started in
    the same tick of the kernel's clock never have the same number."""
    earlier = (start_time(pid) or 0) - 1
    text = re.sub(r"^start=.*$", f"start={earlier}", record.read_text(), flags=re.MULTILINE)
    record.write_text(re.sub(r"^pid=.*$", f"pid={pid}", text, flags=re.MULTILINE))


@pytest.mark.system
@pytest.mark.trap("T18")
async def test_a_process_that_merely_has_the_number_of_ours_is_never_signalled(node, reaper):
    await node.start("one", workloads.silent())
    await node.start("bystander", workloads.silent())
    directory, pid = node.run("one").files.directory, node.run("one").pid
    other = node.run("bystander").pid
    await node.close()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: (directory / "empty").exists())
    (directory / "empty").unlink()
    (directory / "exit").unlink()
    take_number(directory / "record", other)
    await node.open()
    await node.stop("one", force=True)
    await eventually(lambda: node.run("one").ended or not alive(other))
    assert alive(other), "a stranger was killed"
    assert node.run("one").ended
    assert node.run("bystander").state == "RUNNING"


async def test_a_run_directory_that_cannot_be_read_keeps_no_other_from_its_adoption(node):
    ack = await node.start("one", workloads.silent())
    await node.close()
    damaged = node.data / "runs" / "two" / "1024"
    damaged.mkdir(parents=True)
    (damaged / "intent.json").write_text("{")
    await node.open()
    assert node.run("one").pid == ack.pid
    run = await node.settled("two")
    assert (run.state, run.outcome.outcome, run.pid) == ("CRASHED", "start_failed", 0)


async def test_many_are_adopted_at_once(node):
    pids = {}
    for number in range(40):
        ack = await node.start(f"i{number}", workloads.silent())
        pids[f"i{number}"] = ack.pid
    await node.reopen()
    assert {run.order.instance_id: run.pid for run in node.supervision.supervisor.instances.runs()} == pids
    assert {run.state for run in node.supervision.supervisor.instances.runs()} == {"RUNNING"}
