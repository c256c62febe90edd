"""How old a process is, by the kernel's clock that no one sets."""

from __future__ import annotations

import os
import pathlib
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_FIELD: Final = 19  # of what follows the name; field 22 of the whole line


def process_started(pid: int) -> float | None:
    """Seconds from the boot to its start, as `Clock.boottime` counts; None when there is no such process."""
    try:
        line = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(line.rpartition(b")")[2].split()[_START_FIELD]) / _TICKS
