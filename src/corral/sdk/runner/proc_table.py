"""Process table: processes and their descendants from /proc. Standard library only."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_HAS_CHILDREN: Final = os.access("/proc/self/task/" + str(os.getpid()) + "/children", os.R_OK)


class ProcessEntry(NamedTuple):
    """A process as of a moment ago; pid and start time together identify it for good."""

    pid: int
    parent: int
    start: int
    """In clock ticks since boot."""
    threads: int
    cpu_seconds: float
    alive: bool
    """False for a zombie; a process whose first thread only has ended counts as alive."""


def process(pid: int) -> ProcessEntry | None:
    """The process; None when there is none."""
    try:
        fields = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None  # it ended, perhaps between two calls
    if len(fields) < 20:
        return None
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    threads = int(fields[17])
    alive = fields[0] not in (b"Z", b"X") or threads > 1
    return ProcessEntry(pid, int(fields[1]), int(fields[19]), threads, cpu, alive)


def all_processes() -> list[ProcessEntry]:
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return [one for one in found if one is not None]


def children(pid: int) -> list[int]:
    """Direct children, zombies included; empty when there is no such process."""
    if not _HAS_CHILDREN:
        return [one.pid for one in all_processes() if one.parent == pid]
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - no pathlib in a zygote
    except OSError:
        return found
    for thread in threads:
        try:
            found += map(int, content(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            continue
    return found


def tree(root: int, *, most: int) -> list[ProcessEntry]:
    """A process and its descendants, by walking down; a snapshot that may be incomplete. Stops after
    `most`."""
    found: list[ProcessEntry] = []
    seen = {root}
    waiting = [root]
    while waiting and len(found) < most:
        one = process(waiting.pop())
        if one is None:
            continue
        found.append(one)
        below = [pid for pid in children(one.pid) if pid not in seen]
        seen.update(below)
        waiting += below
    return found


def descendants(roots: set[int]) -> set[tuple[int, int]]:
    """Living processes among these and all their descendants, by pid and start time; one pass over all
    processes."""
    below: dict[int, list[ProcessEntry]] = {}
    found: set[tuple[int, int]] = set()
    waiting: list[int] = []
    for one in all_processes():
        below.setdefault(one.parent, []).append(one)
        if one.pid in roots and one.alive:
            found.add((one.pid, one.start))
            waiting.append(one.pid)
    while waiting:
        for one in below.get(waiting.pop(), ()):
            if one.alive and (one.pid, one.start) not in found:
                found.add((one.pid, one.start))
                waiting.append(one.pid)
    return found


def last_pid() -> int:
    """The number given to the newest process or thread of the machine."""
    return int(content("/proc/loadavg").split()[-1])


def content(path: str) -> bytes:
    """The first 64 KiB: these files are small, or not needed whole."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
