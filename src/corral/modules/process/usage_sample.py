"""Usage of a module's process tree at present, from /proc. Takes some hundred microseconds for a module
without children; bounded for one with many."""

from __future__ import annotations

import os
from typing import Final

from corral.modules.process.process_values import Sample
from corral.sdk.runner.limit_watch import memory_of
from corral.sdk.runner.proc_table import tree

_MOST: Final = 32
"""Most processes measured of a larger tree: this runs on the host's loop."""


def sample_tree(pid: int, *, memory_bytes: int | None) -> Sample | None:
    """The usage; None when there is no such process. `memory_bytes`: of the whole tree, where it was measured
    already; else only that of the process itself, which takes constant time."""
    found = tree(pid, most=_MOST)
    if not found:
        return None
    return Sample(
        cpu_seconds=round(sum(process.cpu_seconds for process in found), 3),
        memory_bytes=memory_of([pid]) if memory_bytes is None else memory_bytes,
        threads=sum(process.threads for process in found),
        processes=len(found),
        open_files=sum(_open_files(process.pid) for process in found),
    )


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only the number is wanted
    except OSError:
        return 0
