"""Out-of-memory kills, by the kernel's own count in the files of a control group."""

from __future__ import annotations

from corral.runtimes.keeper.proc_facts import kernel_file


def oom_kill_counted(path: str) -> bool:
    """Whether the kernel has killed a process of the group because memory ran out. `path` is `memory.events`
    of the group (version 1: `memory.oom_control`), or empty without control groups. False also when the file
    is gone."""
    for line in (kernel_file(path) or b"").split(b"\n") if path else ():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1]) > 0
    return False
