"""Reading /proc. Processes come and go while it is read: one that cannot be read any more is left out."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Iterable

import msgspec

PROC = pathlib.Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process as its `stat` shows it. Pid and `born` together are never used twice."""

    pid: int
    parent: int
    session: int
    born: int
    """In ticks since the machine was started."""
    cpu_ticks: int
    """Its own, and those of children it has waited for."""
    threads: int
    resident_bytes: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A process and all that descends from it, added up."""

    cpu_seconds: float
    resident_bytes: int
    threads: int
    processes: int
    read_bytes: int | None = None
    written_bytes: int | None = None


def read_process(pid: int, *, proc: pathlib.Path = PROC) -> Process | None:
    """None when there is none, or only what is left of it until its parent has waited."""
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:  # ProcessLookupError where it ended between opening and reading
        return None
    fields = text.rpartition(b")")[2].split()  # a program's name may hold anything, ')' and blanks included
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        born=int(fields[19]),
        cpu_ticks=sum(int(ticks) for ticks in fields[11:15]),
        threads=int(fields[17]),
        resident_bytes=int(fields[21]) * _PAGE,
    )


class Snapshot:
    """All processes of the machine, as they were read one after another."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._processes = {process.pid: process for process in processes}
        self._children: dict[int, list[Process]] = collections.defaultdict(list)
        self._sessions: dict[int, list[Process]] = collections.defaultdict(list)
        for process in self._processes.values():
            self._children[process.parent].append(process)
            self._sessions[process.session].append(process)

    @classmethod
    def read(cls, *, proc: pathlib.Path = PROC) -> Snapshot:
        pids = (int(path.name) for path in proc.iterdir() if path.name.isdecimal())
        found = (read_process(pid, proc=proc) for pid in pids)
        return cls(process for process in found if process is not None)

    def tree_of(self, root: Process) -> list[Process]:
        """`root`, its descendants, and what it left in its session when the process between them ended.
        Empty when it has ended, even if another process has its number by now."""
        found = self._processes.get(root.pid)
        if found is None or found.born != root.born:
            return []
        tree: dict[int, Process] = {}
        waiting = [found, *self._sessions.get(root.pid, ())]
        for process in waiting:  # grows while it is walked
            if process.pid not in tree and process.born >= root.born:  # what is older is none of its own
                tree[process.pid] = process
                waiting += self._children.get(process.pid, ())
        return list(tree.values())


def usage_of(tree: Iterable[Process], *, proc: pathlib.Path = PROC) -> Usage:
    members = list(tree)
    moved = [counts for each in members if (counts := _moved(each.pid, proc)) is not None]
    return Usage(
        cpu_seconds=sum(each.cpu_ticks for each in members) / _TICKS,
        resident_bytes=sum(each.resident_bytes for each in members),
        threads=sum(each.threads for each in members),
        processes=len(members),
        read_bytes=sum(read for read, _ in moved) if moved else None,
        written_bytes=sum(written for _, written in moved) if moved else None,
    )


def _moved(pid: int, proc: pathlib.Path) -> tuple[int, int] | None:
    """Bytes from and to disks; None when we may not see them: that takes the rights to debug the process."""
    try:
        lines = (proc / str(pid) / "io").read_text().splitlines()
    except OSError:
        return None
    counts = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        return int(counts["read_bytes"]), int(counts["write_bytes"])
    except (KeyError, ValueError):
        return None
