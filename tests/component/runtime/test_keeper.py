"""The keeper: one a directory, small, and nobody's child."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

import pytest

import corral
from corral.runtimes.keeper import exit_file, keeper_protocol, run_files
from corral.runtimes.keeper.run_files import try_lock
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.process.run_start import spawn_plan
from corral.system.accounts import own_user
from corral.testing import workloads
from corral.testing.runtime_contract import is_running
from corral.testing.runtime_nodes import ProcessHarness, open_files
from corral.testing.waiting import eventually

SOCKET = keeper_protocol.socket_name(keeper_protocol.PROTOCOL)
_MODULES = """
import json, sys
sys.path.append(sys.argv[1])
import corral.runtimes.keeper.keeper_main
print(json.dumps({name: getattr(module, "__file__", None) for name, module in sys.modules.items()}))
"""


def test_it_imports_the_standard_library_and_its_own_few_files() -> None:
    root = str(pathlib.Path(corral.__file__).parents[1])
    out = subprocess.check_output([sys.executable, "-I", "-S", "-c", _MODULES, root])
    modules = json.loads(out)
    assert not {"asyncio", "msgspec", "structlog", "uvloop", "threading", "pathlib", "logging"} & set(modules)
    ours = {name for name in modules if name.startswith("corral")}
    assert all(name.startswith("corral.runtimes.keeper") for name in ours - {"corral", "corral.runtimes"})
    strangers = [
        file for name, file in modules.items() if file and "site-packages" in file and name not in ours
    ]
    assert strangers == []


async def test_it_is_nobodys_child_and_survives_its_provider(house: ProcessHarness) -> None:
    first = await house.provider.start_keeper()
    status = pathlib.Path(f"/proc/{first.pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status
    assert os.getsid(first.pid) == first.pid
    await house.provider.close()
    assert await (await house.next_provider()).start_keeper() == first


async def test_providers_that_start_at_once_share_one(house: ProcessHarness) -> None:
    assert await house.provider.end_keeper()
    providers = [await house.next_provider() for _ in range(3)]
    keepers = [await provider.start_keeper() for provider in providers]
    assert len(set(keepers)) == 1


async def test_it_quits_only_when_it_minds_nothing(house: ProcessHarness) -> None:
    keeper = await house.provider.start_keeper()
    handle = await house.provider.start(house.spec(*workloads.silent()))
    assert not await house.provider.end_keeper()
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)
    await eventually(house.provider.end_keeper)
    await eventually(lambda: not is_running(keeper.pid))


REQUESTS = [
    keeper_protocol.pack({}),
    keeper_protocol.pack({"do": "spawn"}),
    keeper_protocol.pack({"do": "rescue"}),
    keeper_protocol.pack({"do": "rescue", "run_directory": "/no/such/run"}),
    keeper_protocol.pack({"do": {"nested": [1]}}),
    b"\xff\xff\xff\xffxxxx",
    b"\0\0\0\4]]]]",
    struct.pack("!I", 200_000) + b"[" * 200_000,
    b"\0\0\0",
]


async def test_no_request_ends_it(house: ProcessHarness) -> None:
    """Nor do descriptors that come with one stay behind."""
    before = await house.provider.start_keeper()
    held = len(open_files(before.pid))
    for request_bytes in REQUESTS:
        client = socket.socket(socket.AF_UNIX)
        with client, (house.data / "lock").open("w") as file:
            client.connect(str(house.data / "keeper" / SOCKET))
            rights = struct.pack("iii", *[file.fileno()] * 3)
            client.sendmsg([request_bytes[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            client.sendmsg([request_bytes[1:2]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            with contextlib.suppress(ConnectionError):
                client.sendall(request_bytes[2:])
                client.shutdown(socket.SHUT_WR)
        assert await house.provider.start_keeper() == before, request_bytes[:20]
        await eventually(lambda: len(open_files(before.pid)) <= held)


async def test_a_run_is_not_spawned_without_its_lock(house: ProcessHarness) -> None:
    """Without it a second one could be."""
    spec = house.spec(*workloads.silent())
    plan = spawn_plan(spec, user=own_user(), marks={}, segment_bytes=1 << 20)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(house.data / "keeper" / SOCKET))
        assert keeper_protocol.send(client, plan)
        answer = await asyncio.to_thread(keeper_protocol.receive, client)
    assert answer is not None
    assert "error" in answer


async def test_its_log_stays_small(house: ProcessHarness) -> None:
    log = house.data / "keeper" / "keeper.log"
    with log.open("ab") as file:
        file.write(b"x" * (2 << 20))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(house.data / "keeper" / SOCKET))
        client.sendall(keeper_protocol.pack({"do": "rescue", "run_directory": "/no/such/run"}))
    await eventually(lambda: log.stat().st_size < 1 << 20)


async def test_a_path_longer_than_an_address(scratch: pathlib.Path, reaper: object) -> None:
    deep = scratch / ("d" * 120) / ("e" * 120)
    async with ProcessHarness(deep) as house:
        handle = await house.provider.start(house.spec(*workloads.crashing(code=3)))
        assert (await house.provider.wait_empty(handle)).code == 3


async def test_a_shim_holds_nothing_of_another_run(house: ProcessHarness) -> None:
    handles = [await house.provider.start(house.spec(*workloads.silent())) for _ in range(4)]
    runs = str(house.data / "runs")
    for handle in handles:
        held = [file for file in open_files(int(handle.state["shim"])) if file.startswith(runs)]
        assert held
        assert all(file.startswith(handle.run_directory) for file in held)
        assert open_files(handle.pid)[0].startswith(handle.run_directory)
    for handle in handles:
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
    keeper = await house.provider.start_keeper()
    await eventually(lambda: not [file for file in open_files(keeper.pid) if file.startswith(runs)])


async def test_what_the_daemon_reads_today_is_what_a_shim_wrote_long_ago(scratch: pathlib.Path) -> None:
    """The bytes of version 1, with keys that a later writer might add."""
    (scratch / "record").write_text(
        "corral-record 1\nboot=b\npid=10\nquota_bytes=5\nrun=a.1024\nsegment_bytes=4\nshim=9\nshim_start=8\n"
        "start=7\nstarted_ns=6\ntty=1\nprocs=/x/cgroup.procs\nprocs=/y/cgroup.procs\nlater=1=2\nend=1\n"
    )
    (scratch / "exit").write_bytes(
        b"corral-exit 1 35072 1700000000000000000 shim oom 2a3f79d5\n".ljust(512, b"\0")
    )
    (scratch / "failed").write_text("corral-failed 1\nstage=exec\nerrno=2\npath=/a b\nend=1\n")
    record = run_files.read_record(str(scratch))
    ending = exit_file.read_exit(str(scratch))
    failure = run_files.read_failure(str(scratch))
    assert record is not None
    assert (record.pid, record.start, record.shim, record.tty, len(record.procs)) == (10, 7, 9, True, 2)
    assert ending is not None
    assert (ending.status, ending.at_ns, ending.who, ending.oom) == (35_072, 17 * 10**17, "shim", True)
    assert failure is not None
    assert (failure.stage, failure.errno, failure.path) == ("exec", 2, "/a b")


def test_an_exit_that_is_torn_or_empty_says_nothing(scratch: pathlib.Path) -> None:
    directory = str(scratch)
    assert exit_file.read_exit(directory) is None
    exit_file.allocate_exit(directory)
    assert exit_file.read_exit(directory) is None
    exit_file.write_exit(directory, None, at_ns=1, who="rescue")
    assert exit_file.read_exit(directory).status is None
    exit_file.write_exit(directory, 9, at_ns=2, who="keeper")
    exit_file.write_exit(directory, 5 << 8, at_ns=3, who="daemon")
    assert exit_file.read_exit(directory).status == 9
    whole = (scratch / "exit").read_bytes()
    (scratch / "exit").write_bytes(whole.replace(b"keeper", b"keepeR"))
    assert exit_file.read_exit(directory) is None


@pytest.mark.trap("T60")
@pytest.mark.parametrize("taken_over", [False, True])
async def test_a_keeper_of_an_older_protocol_is_ended_when_it_minds_nothing(
    house: ProcessHarness, taken_over: bool
) -> None:
    """As after an upgrade: the one from before lives on beside the new one while it has runs, also one
    whose shim died and whose minder is the newer keeper's."""

    async def unplaced(pid: int) -> None:
        return None

    client = KeeperClient(house.data / "keeper", place=unplaced, protocol=keeper_protocol.PROTOCOL - 1)
    older = await client.ensure()
    spec = house.spec(*workloads.silent())
    lock = try_lock(spec.run_directory)
    assert lock is not None
    plan = spawn_plan(spec, user=own_user(), marks={}, segment_bytes=1 << 20)
    dialogue, hello = await client.ask(plan, lock=lock)
    os.close(lock)
    async with dialogue:
        await dialogue.send({"go": True, "cgroup_files": []})
        assert "pid" in (await dialogue.receive() or {})
    provider = await house.next_provider()
    newer = await provider.start_keeper()
    assert newer.pid != older.pid
    assert is_running(older.pid)
    adoption = await provider.adopt(spec.run_directory)
    assert adoption.handle is not None
    assert adoption.handle.state["shim"] == hello["shim"]
    assert (await provider.execute(adoption.handle, ("true",), timeout=20)).code == 0
    side = await provider.spawn_beside(adoption.handle, "side", workloads.silent(), {})
    if taken_over:
        os.kill(older.pid, signal.SIGSTOP)
        os.kill(hello["shim"], signal.SIGKILL)
        await eventually(lambda: _minder(spec.run_directory) != hello["shim"])
        os.kill(older.pid, signal.SIGCONT)
        assert (await provider.execute(adoption.handle, ("true",), timeout=20)).code == 0
    os.kill(adoption.handle.pid, signal.SIGKILL)
    ended = await provider.wait_empty(adoption.handle)
    assert (ended.known, ended.signal) == (True, signal.SIGKILL)
    assert not is_running(side.pid)  # which a shim from before knows nothing of
    await eventually(lambda: _retired(provider, older.pid))


def _minder(run_directory: str) -> int:
    record = run_files.read_record(run_directory)
    assert record is not None
    return record.shim


async def _retired(provider: ProcessRuntime, pid: int) -> bool:
    await provider.start_keeper()
    return not is_running(pid)
