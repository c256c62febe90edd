"""What a module's process tree uses right now, from /proc. Some hundred microseconds for a module that
started nothing; bounded for one that started much."""

from __future__ import annotations

import os
from typing import Final

from corral.modules.process.values import Sample
from corral.sdk.runner.proc_table import content, tree

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_MOST: Final = 32
"""Of a larger tree only so many are looked at: this runs on the host's loop."""


def sample_tree(pid: int) -> Sample | None:
    """None when there is no such process."""
    found = tree(pid, most=_MOST)
    if not found:
        return None
    return Sample(
        cpu_seconds=round(sum(process.cpu_seconds for process in found), 3),
        memory_bytes=sum(_memory(process.pid) for process in found),
        threads=sum(process.threads for process in found),
        processes=len(found),
        open_files=sum(_open_files(process.pid) for process in found),
    )


def _memory(pid: int) -> int:
    """Resident without what is shared with files: the interpreter's own text is nobody's use."""
    try:
        fields = content(f"/proc/{pid}/statm").split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    except (OSError, IndexError):
        return 0


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only the number is wanted
    except OSError:
        return 0
