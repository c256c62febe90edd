"""SIGUSR1 makes a controller or a daemon write its threads and tasks, and hurts nothing."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

from corral.system.service.task_dump import TaskDump, awaited
from corral.testing.processes import ProcessCluster
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually

BLOCKED = """
import asyncio, contextlib, pathlib, sys, time
from corral.system.service.process import run_service

class Blocked:
    ready = None
    def announcement(self): return "blocked"
    async def run(self):
        kept = [asyncio.create_task(asyncio.sleep(60), name=f"test/zleep/{n:04}") for n in range(400)]
        while True:
            await asyncio.sleep(0.1)
            while pathlib.Path(sys.argv[2]).exists():
                time.sleep(0.01)  # keeps the loop

@contextlib.asynccontextmanager
async def opened():
    service = Blocked()
    service.ready = asyncio.Event()
    service.ready.set()
    yield service

run_service(opened, dumps=pathlib.Path(sys.argv[1]))
"""


def dumps(logs: pathlib.Path) -> list[pathlib.Path]:
    return sorted(logs.glob("dump-*.txt"))


async def dump_of(pid: int, logs: pathlib.Path) -> pathlib.Path:
    """A new dump; signals before the process handles them make none."""
    known = set(dumps(logs))

    def asked() -> set[pathlib.Path]:
        os.kill(pid, signal.SIGUSR1)
        return set(dumps(logs)) - known

    return min(await eventually(asked, state=lambda: list(logs.iterdir())))


@pytest.mark.system
async def test_a_controller_writes_its_threads_and_tasks_and_goes_on(tmp_path):
    data = tmp_path / "controller"
    listen = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    async with ProcessCluster(tmp_path) as cluster:
        controller = cluster.start("controller", "--data", str(data), *listen)
        await controller.ready()
        path = await dump_of(controller.pid, data / "logs")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert "Current thread" in text or "Thread 0x" in text
        assert "\ntask service/run\n" in text
        assert "app.py:" in text
        await eventually(lambda: str(path) in controller.stderr, state=lambda: controller.stderr)
        assert "dump.created" in controller.stderr
        assert await controller.terminate() == 0


async def test_a_daemon_writes_its_threads_and_tasks_and_goes_on(tmp_path):
    async with ScriptedController(lambda *_: None) as peer, ProcessCluster(tmp_path) as cluster:
        data = tmp_path / "daemon"
        daemon = cluster.start("daemon", "--data", str(data), "--controller", peer.address)
        await eventually(lambda: (data / "daemon.lock").exists(), state=lambda: daemon.stderr)
        path = await dump_of(daemon.pid, data / "logs")
        assert "\ntask " in path.read_text()
        assert daemon.alive


@pytest.fixture
async def blocked(tmp_path):
    """A service whose loop stands still while the file `block` exists."""
    logs, block = tmp_path / "logs", tmp_path / "block"
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED, str(logs), str(block)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert (await asyncio.to_thread(process.stdout.readline)).startswith("ready")
        yield process, logs, block
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


async def test_a_dump_waits_for_a_blocked_loop_and_has_every_task(blocked):
    process, logs, block = blocked
    block.touch()
    await asyncio.sleep(0.3)  # the loop comes round to it every 0.1 s
    os.kill(process.pid, signal.SIGUSR1)
    block.unlink()
    path = await dump_of(process.pid, logs)
    text = path.read_text()
    assert "in run" in text
    assert text.count("\ntask ") == 300
    assert "more tasks" in text
    assert process.poll() is None


async def test_a_dump_shows_no_value_of_what_is_awaited(tmp_path):
    """A task whose future is done and which had no turn yet."""
    future = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        await future

    task = asyncio.create_task(waits(), name="test/secret")
    await asyncio.sleep(0)
    future.set_result("hunter2")
    with TaskDump(tmp_path):
        os.kill(os.getpid(), signal.SIGUSR1)
        await task
        (path,) = await eventually(lambda: dumps(tmp_path))
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
    assert "hunter2" not in path.read_text()


def test_what_a_task_awaits_is_named_by_type_and_state():
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    assert awaited(None) == "nothing: it is due to run"
    assert awaited(future) == "Future"
    future.set_result("hunter2")
    assert awaited(future) == "Future that is done"
    loop.close()


@pytest.mark.system
async def test_many_signals_leave_few_dumps_and_a_living_process(blocked):
    process, logs, _ = blocked
    for _ in range(5000):
        os.kill(process.pid, signal.SIGUSR1)
    for _ in range(13):
        await asyncio.sleep(0.25)  # a signal sooner than 0.2 s after a dump makes none
        os.kill(process.pid, signal.SIGUSR1)
    await eventually(lambda: len(dumps(logs)) == 10, state=lambda: dumps(logs))
    assert process.poll() is None
    process.terminate()
    assert await asyncio.to_thread(process.wait) == 0
