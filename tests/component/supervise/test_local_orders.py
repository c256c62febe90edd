"""Orders from the machine itself, with and without a daemon."""

from __future__ import annotations

import asyncio
import json
import pathlib
import stat
import subprocess
import sys

import pytest
from supervised_node import FIRST

from corral.daemon.orders.local_socket import LocalSocket
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import RestartPolicy


async def corral(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "corral.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
async def served(node):
    async with LocalSocket(node.data, node.supervision.supervisor):
        yield node


async def local(node, *arguments: str) -> dict:
    done = await corral("local", "--data", str(node.data), *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_instances_are_listed_commanded_and_stopped_without_a_controller(served):
    ack = await served.start("one", workloads.reading_commands())
    listed = await local(served, "list")
    assert [(item["id"], item["state"], item["pid"]) for item in listed["items"]] == [
        ("one", "RUNNING", ack.pid)
    ]
    await local(served, "command", "one", "hello")
    await served.says("one", "got hello")
    stopped = await local(served, "stop", "one")
    assert (stopped["state"], stopped["outcome"], stopped["exit_code"]) == ("STOPPED", "stopped", 0)


async def test_a_kill_answers_when_nothing_is_left(served):
    await served.start("one", workloads.ignoring_signals())
    await served.says("one", "up")
    killed = await local(served, "kill", "one")
    assert (killed["state"], killed["outcome"], killed["signal"]) == ("STOPPED", "killed", 9)


async def test_a_restart_is_the_next_run_of_the_same_start(served):
    first = await served.start("one", workloads.reading_commands())
    await local(served, "restart", "one")
    run = await served.until("one", "RUNNING", incarnation=FIRST + 1)
    assert run.pid != first.pid
    story = await served.told("one")
    assert story[-4:] == ["SCHEDULED:1", "PREPARING:1", "STARTING:1", "RUNNING:1"]
    assert "STOPPED:0" not in story


async def test_an_unknown_instance_is_named_in_the_refusal(served):
    done = await corral("local", "--data", str(served.data), "stop", "nobody")
    assert done.returncode == 1
    assert "nobody" in done.stderr


async def test_the_socket_is_for_its_owner_alone(served):
    mode = (served.data / "daemon.sock").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


async def test_nonsense_on_the_socket_is_answered_and_harms_nobody(served):
    reader, writer = await asyncio.open_unix_connection(str(served.data / "daemon.sock"))
    for nonsense in (b"{\n", b"[]\n", b'{"verb": "dance"}\n', b'{"verb": "stop"}\n'):
        writer.write(nonsense)
        assert json.loads(await reader.readline())["ok"] is False
    writer.close()
    await writer.wait_closed()
    assert (await local(served, "list"))["items"] == []


async def test_without_a_daemon_the_other_orders_say_what_to_do(node):
    done = await corral("local", "--data", str(node.data), "list")
    assert done.returncode == 3
    assert "stop-all" in done.stderr


async def test_everything_is_stopped_though_no_daemon_runs(node):
    acks = [await node.start(f"i{number}", workloads.reading_commands()) for number in range(3)]
    policy = RestartPolicy(attempts=3, interval_ms=300_000, delay_ms=3_600_000, max_delay_ms=3_600_000)
    await node.start("waiting", workloads.crashing(code=1), restart_policy=policy)
    await node.until("waiting", "SCHEDULED", incarnation=FIRST + 1)
    await node.close()
    asked = await corral("local", "--data", str(node.data), "stop-all")
    assert asked.returncode == 2
    assert f"a yes is needed to stop i0, i1, i2 in {node.data}" in asked.stderr
    assert all(pathlib.Path(f"/proc/{ack.pid}").exists() for ack in acks)
    done = await corral("local", "--data", str(node.data), "stop-all", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended"] == 3
    assert not any(pathlib.Path(f"/proc/{ack.pid}").exists() for ack in acks)
    await node.open()
    assert {run.state for run in node.supervision.supervisor.instances.runs()} <= {"STOPPED", "CRASHED"}
    assert "STOPPED:0" in await node.told("i0")


async def test_everything_is_stopped_over_the_socket(served):
    for number in range(3):
        await served.start(f"i{number}", workloads.silent())
    await local(served, "stop", "i1")
    done = await local(served, "stop-all", "--yes")
    assert (done["ended"], len(done["items"])) == (2, 3)
    await eventually(lambda: all(run.ended for run in served.supervision.supervisor.instances.runs()))
    again = await corral("local", "stop-all", "--data", str(served.data))
    assert (again.returncode, again.stdout) == (0, f"nothing ran in {served.data}\n")


async def test_a_directory_without_a_daemon_is_refused_and_stays_as_it_is(node, tmp_path):
    up, missing = tmp_path / "up", tmp_path / "missing"
    up.mkdir()
    for data in (up, missing):
        done = await corral("local", "stop-all", "--yes", "--data", str(data))
        assert done.returncode == 1
        assert f"{data} holds no data of a daemon" in done.stderr
        assert "--data DIR stop-all" in done.stderr
    assert not missing.exists()
    (up / "daemon").symlink_to(node.data)
    done = await corral("local", "stop-all", "--yes", "--data", str(up))
    assert f"'corral local --data {up / 'daemon'} stop-all'" in done.stderr
    assert [path.name for path in up.iterdir()] == ["daemon"]
