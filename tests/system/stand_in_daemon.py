"""In place of a daemon: the process runtime and nothing above it, so that a test sees what it does.

`stand_in_daemon.py DATA COUNT USER` adopts the runs it finds beneath DATA, or starts COUNT of them as USER
when there are none, writes what it has into `DATA/said.json`, and detaches when it is told to end.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import sys

from corral.runtimes.cgroups.selection import open_cgroups, owner_of
from corral.runtimes.process.provider import ProcessRuntime
from corral.sdk.runtime import RunSpec

IDLE = ("/bin/sh", "-c", "while :; do echo here; sleep 0.1; done")


async def start(runtime: ProcessRuntime, data: pathlib.Path, number: int, user: str) -> None:
    files, place = data / "runs" / f"lobby-{number}" / "1024", data / "running" / f"lobby-{number}"
    files.mkdir(parents=True, mode=0o700)
    place.mkdir(parents=True)
    place.parent.chmod(0o711)
    place.chmod(0o777)
    await runtime.start(
        RunSpec(
            instance_id=f"lobby-{number}",
            incarnation=1024,
            command=IDLE,
            environment={"PATH": "/usr/bin:/bin"},
            directory=str(place),
            run_directory=str(files),
            run_as=user,
        )
    )


async def main(data: pathlib.Path, count: int, user: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    cgroups = open_cgroups("auto", "", owner=owner_of(str(data)))
    runtime = ProcessRuntime(data, cgroups)
    keeper = await runtime.start_keeper()
    if not (data / "runs").exists():
        for number in range(1, count + 1):
            await start(runtime, data, number, user)
    found = {}
    for files in sorted((data / "runs").glob("*/*")):
        adoption = await runtime.adopt(str(files))
        found[files.parent.name] = adoption.handle.pid if adoption.handle else adoption.kind
    said = {
        "pid": os.getpid(),
        "keeper": keeper.pid,
        "cgroups": cgroups.name,
        "capabilities": runtime.capabilities().names(),
        "runs": found,
    }
    (data / "said.new").write_text(json.dumps(said))
    (data / "said.new").rename(data / "said.json")
    await ended.wait()
    await runtime.close()
    await cgroups.close()


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
