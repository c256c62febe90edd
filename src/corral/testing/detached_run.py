"""A run that nobody minds: started as a daemon starts it, and left as a daemon leaves it that ends."""

from __future__ import annotations

import os
import pathlib

from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.cgroups.selection import owner_of
from corral.runtimes.process.provider import ProcessRuntime
from corral.sdk.runtime import RunHandle, RunSpec
from corral.testing.workloads import Argv

INCARNATION = 65_536


async def start_detached(data: pathlib.Path, id: str, command: Argv) -> RunHandle:
    """Start a workload in a data directory, without control groups, and detach from it."""
    run = data / "runs" / id / str(INCARNATION)
    work = data / "running" / id
    run.mkdir(parents=True, mode=0o700)
    work.mkdir(parents=True)
    runtime = ProcessRuntime(data, NoCgroups(owner_of(str(data))))
    await runtime.start_keeper()
    try:
        return await runtime.start(
            RunSpec(
                instance_id=id,
                incarnation=INCARNATION,
                command=command,
                environment={"PATH": os.defpath},
                directory=str(work),
                run_directory=str(run),
            )
        )
    finally:
        await runtime.close()
