"""A daemon in miniature that starts a run with a spare shim, and kills itself after a step.

Arguments: the data directory, the kind of control groups, their root, the specification as JSON, and the step after
which it kills itself.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys

import msgspec

from corral.runtimes.cgroups.selection import open_cgroups
from corral.runtimes.keeper.run_files import try_lock
from corral.runtimes.keeper.spare_shims import SPARE
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.run_start import spawn_plan
from corral.sdk.runtime import RunLimits, RunSpec
from corral.system.accounts import own_user

STEPS = ("forked", "placed", "locked", "greeted", "bound", "go-sent", "answered")


async def dialogue_until(data: pathlib.Path, kind: str, root: str, spec: RunSpec, last: str) -> None:
    """The same requests that `ShimPool` and `ProcessRuntime.start` make, one by one."""

    def step(name: str) -> None:
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async def nowhere(pid: int) -> None:
        return None

    cgroups = open_cgroups(kind, root)
    assert cgroups.spares is not None
    client = KeeperClient(data / "keeper", place=nowhere)
    _, spare = await client.ask({"do": "prepare"})
    step("forked")
    slot = cgroups.spares.next_slot()
    await cgroups.spares.place(slot, shim_pid=spare[SPARE], child_pid=spare["child"])
    step("placed")
    lock = try_lock(spec.run_directory)
    assert lock is not None
    step("locked")
    plan = spawn_plan(spec, user=own_user(), marks={}, segment_bytes=1 << 20)
    dialogue, hello = await client.ask({**plan, SPARE: spare[SPARE]}, lock=lock)
    assert hello["shim"] == spare[SPARE]
    step("greeted")
    files = cgroups.spares.bind(slot, spec.run_name, limits=RunLimits())
    step("bound")
    await dialogue.send({"go": True, "cgroup_files": files, "placed": spare["child"]})
    step("go-sent")
    await dialogue.receive()
    step("answered")


def main() -> None:
    data, kind, root, spec, last = sys.argv[1:]
    asyncio.run(dialogue_until(pathlib.Path(data), kind, root, msgspec.json.decode(spec, type=RunSpec), last))


if __name__ == "__main__":
    main()
