"""A daemon in miniature that is killed while it starts a run: after a step, or at any moment.

Arguments: the data directory, the specification as JSON, and the step after which it kills itself;
`start` goes the whole way, for the test to kill it.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys

import msgspec

from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.keeper import keeper_protocol
from corral.runtimes.keeper.run_files import try_lock
from corral.runtimes.process.keeper_client import KeeperClient, KeeperDialogue
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.process.run_start import spawn_plan
from corral.sdk.runtime import RunLimits, RunSpec
from corral.system.accounts import own_user

STEPS = ("locked", "connected", "half-sent", "sent", "greeted", "grouped", "go-sent", "answered")


async def dialogue_until(data: pathlib.Path, spec: RunSpec, last: str) -> None:
    """The same requests that `ProcessRuntime.start` makes, one by one."""

    def step(name: str) -> None:
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async def unplaced(pid: int) -> None:
        return None

    cgroups = NoCgroups("house")
    lock = try_lock(spec.run_directory)
    assert lock is not None
    step("locked")
    client = KeeperClient(data / "keeper", place=unplaced)
    marks = cgroups.environment(spec.run_name)
    plan = spawn_plan(spec, user=own_user(), marks=marks, segment_bytes=1 << 20)
    connection = await client._connect()
    assert connection is not None
    step("connected")
    dialogue = KeeperDialogue(connection)
    if last == "half-sent":
        rights = [
            (
                keeper_protocol.socket.SOL_SOCKET,
                keeper_protocol.socket.SCM_RIGHTS,
                lock.to_bytes(4, sys.byteorder),
            )
        ]
        connection.sendmsg([keeper_protocol.pack(plan)[:100]], rights)
        step("half-sent")
    await dialogue.send(plan, lock=lock)
    step("sent")
    hello = await dialogue.receive()
    assert hello is not None
    step("greeted")
    files = await cgroups.create(spec.run_name, shim_pid=hello["shim"], limits=RunLimits())
    step("grouped")
    await dialogue.send({"go": True, "cgroup_files": files})
    step("go-sent")
    await dialogue.receive()
    step("answered")


async def start(data: pathlib.Path, spec: RunSpec) -> None:
    runtime = ProcessRuntime(data, NoCgroups("house"), 1 << 20)
    await runtime.start_keeper()
    print("ready", flush=True)
    sys.stdin.readline()
    await runtime.start(spec)
    await asyncio.Event().wait()


def main() -> None:
    data, spec = pathlib.Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=RunSpec)
    asyncio.run(start(data, spec) if sys.argv[3] == "start" else dialogue_until(data, spec, sys.argv[3]))


if __name__ == "__main__":
    main()
