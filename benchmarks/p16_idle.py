"""P16: what 200 instances that do nothing cost the node.

CPU of the daemon, the keeper and every shim over a quiet time, and how many processes the machine made
meanwhile (others may make some, too: the same time without anything of ours is the floor).
"""

from __future__ import annotations

import asyncio
import pathlib
import time
from typing import Any

import uvloop

from benchmarks.figures import result
from benchmarks.fleet import cpu_seconds, fleet
from benchmarks.sizes import sized

COUNT = sized(200, 3)
SECONDS = sized(30.0, 1.0)
COMMAND = ["/bin/sleep", "1000000"]


def ours(directory: pathlib.Path) -> list[int]:
    """Every process of ours that belongs to this directory: its command line, or its parent's, names it."""
    wanted = str(directory).encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if wanted in command and b"\0controller\0" not in command:
                found.append(int(entry.name))
    return found


def spawned() -> int:
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("processes ")).split()[1])


async def bench() -> list[dict[str, Any]]:
    began = spawned()
    await asyncio.sleep(SECONDS)
    background = spawned() - began
    async with fleet() as cluster:
        await cluster.group("idle", COMMAND, min=COUNT)
        await cluster.running(COUNT, "idle")
        await asyncio.sleep(3)  # what the starts left to do is not idleness
        pids = ours(cluster.directory)
        began, used, moment = spawned(), cpu_seconds(*pids), time.monotonic()
        await asyncio.sleep(SECONDS)
        share = 100 * (cpu_seconds(*pids) - used) / (time.monotonic() - moment)
        made = spawned() - began
    return [
        result(f"P16 CPU of a node with {COUNT} idle instances ({len(pids)} processes)", share, "% of a core",
               target="≤ 1 %", ok=share <= 1),
        result("P16 processes made meanwhile", made, "processes", floor=background or None, target="0 of ours",
               ok=made <= background + 5),
    ]  # fmt: skip


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
