"""Whether processes of a run are left, asked by a rescue, which is not their parent and so is not told.

With control groups the kernel answers. Without, it is who carries the run's name in the environment:
a process that wiped its environment after its shim was killed is not seen.
"""

from __future__ import annotations

import os

from corral.runtimes.keeper.run_files import Record


def work_left(record: Record) -> bool:
    if record.procs:
        return any(_populated(path) for path in record.procs)
    return any(carries(pid, record.marks) for pid in os.listdir("/proc") if pid.isdecimal())  # noqa: PTH208


def oom_seen(path: str) -> bool:
    """Whether the kernel has ended something of the group for want of memory, by its own count."""
    for line in (_content(path) or b"").split(b"\n") if path else ():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1]) > 0
    return False


def _populated(path: str) -> bool:
    """By `cgroup.events`, which counts groups within, or by the list of processes (version 1)."""
    events = _content(path.rpartition("/")[0] + "/cgroup.events")
    if events is not None:
        return b"populated 1" in events
    return bool((_content(path) or b"").strip())


def carries(pid: str, marks: tuple[str, ...]) -> bool:
    """Whether a process has all of them in its environment."""
    carried = (_content(f"/proc/{pid}/environ") or b"").split(b"\0")
    return bool(marks) and all(os.fsencode(mark) in carried for mark in marks)


def _content(path: str) -> bytes | None:
    """What is in a file of the kernel's; None when there is none, or it is not ours to read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    content = b""
    try:
        while piece := os.read(descriptor, 65536):
            content += piece
    except OSError:
        return None  # the process ended while we read
    finally:
        os.close(descriptor)
    return content
