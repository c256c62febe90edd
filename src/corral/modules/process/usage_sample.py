"""What a module's process tree uses right now, from /proc. Some hundred microseconds for a module that
started nothing; bounded for one that started much."""

from __future__ import annotations

import os
from typing import Final

from corral.modules.process.process_values import Sample
from corral.sdk.runner.limit_watch import memory_of
from corral.sdk.runner.proc_table import tree

_MOST: Final = 32
"""Of a larger tree only so many are looked at: this runs on the host's loop."""


def sample_tree(pid: int, *, memory_bytes: int | None) -> Sample | None:
    """None when there is no such process. `memory_bytes`: of the whole tree, where it was measured already; else
    only the process itself is asked for it, which takes the same time however much it has."""
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
