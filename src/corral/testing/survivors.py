"""Processes that belong to a directory, and how to end them all.

A process belongs to a directory when its working directory, an open file, its command line or its environment
lies in there, when a run record in there names it (with the time it was started), when its environment or
control group carries the mark of a node whose data lies in there, or when it descends from one that does.
That finds keepers, shims, workloads and their leftovers, however they were started. Standard library only:
the guardian runs this alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

_PROC: Final = pathlib.Path("/proc")
_ROUND_SECONDS: Final = 5.0
_STILL_SECONDS: Final = 5.0
"""A process that cannot be stopped for so long, in a system call that does not return, is killed as it is."""
_STAT_BYTES: Final = 4096
_RECORDED: Final = (("pid", "start"), ("shim", "shim_start"))
_KEEPERS: Final = ("keeper", "*/keeper", "*/*/keeper")
_RECORDS: Final = ("runs/*/*/record", "*/runs/*/*/record", "*/*/runs/*/*/record")


class SurvivingProcess(NamedTuple):
    """A process that cannot be mistaken for a later one with its number."""

    pid: int
    started: int
    """In clock ticks since boot."""
    command: str
    stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


class _ProcessStatus(NamedTuple):
    parent: int
    started: int
    alive: bool
    stopped: bool


def now_in_ticks() -> int:
    """The time in the unit of start times; a process that was started before the test is not of the test."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def survivors(directories: Iterable[pathlib.Path], *, since: int = 0) -> list[SurvivingProcess]:
    """The live processes that belong to these directories, started at or after `since`. Never this
    process, nor one that it descends from."""
    table = dict(_statuses(since))
    own = _line_of(os.getpid(), table)
    able = {pid: status for pid, status in table.items() if pid not in own}
    if not able:
        return []
    pattern = _references(directories)
    recorded = _recorded(directories)
    found = {
        pid
        for pid, status in able.items()
        if (pid, status.started) in recorded or (status.alive and _refers(pid, pattern))
    }
    found |= _descendants(found, able)
    living = (pid for pid in sorted(found) if able[pid].alive)
    return [SurvivingProcess(pid, able[pid].started, _command(pid), able[pid].stopped) for pid in living]


def end_all(
    directories: Iterable[pathlib.Path], *, since: int = 0, seconds: float = 20.0
) -> list[SurvivingProcess]:
    """Kill the processes of these directories, until there are none; returns them. Raises `TimeoutError` with
    the rest.

    All are stopped before any is killed: a child whose parents die first cannot be told apart from
    an unrelated process. A stop is no barrier by itself (a `fork` under way still completes), so they are
    killed only when no new process is seen after all of them were seen stopped.
    """
    places = list(directories)
    ended: dict[int, SurvivingProcess] = {}
    still: set[int] = set()
    began = time.monotonic()
    while found := survivors(places, since=since):
        waited = time.monotonic() - began
        if waited > seconds:
            raise TimeoutError("still alive: " + ", ".join(str(process) for process in found))
        ended |= {process.pid: process for process in found}
        if still.issuperset(process.pid for process in found) or waited > _STILL_SECONDS:
            _kill(found)
            continue
        moving = [process for process in found if not process.stopped]
        _stop(moving)
        still = set() if moving else {process.pid for process in found}
    _reap(ended)
    return sorted(ended.values())


def _stop(processes: list[SurvivingProcess]) -> None:
    for process in processes:
        with _held(process) as pidfd, contextlib.suppress(ProcessLookupError, PermissionError):
            if pidfd is not None:
                signal.pidfd_send_signal(pidfd, signal.SIGSTOP)


def _kill(processes: list[SurvivingProcess]) -> None:
    """Kill all of them at once: one that is left for a moment could still see the others end."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        waited = 0
        for process in processes:
            pidfd = stack.enter_context(_held(process))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pidfd is not None:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    poll.register(pidfd, select.POLLIN)
                    waited += 1
        deadline = time.monotonic() + _ROUND_SECONDS
        while waited and (left := deadline - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(left * 1000):
                poll.unregister(pidfd)
                waited -= 1


@contextlib.contextmanager
def _held(process: SurvivingProcess) -> Iterator[int | None]:
    """A pidfd of this very process; None when it is gone and its number free or another's."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (ProcessLookupError, OSError):
        yield None
        return
    try:
        status = _status(process.pid)
        yield pidfd if status is not None and status.started == process.started else None
    finally:
        os.close(pidfd)


def _reap(ended: Mapping[int, SurvivingProcess]) -> None:
    """Reap our own children among them, which would stay as zombies."""
    for pid in ended:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _references(directories: Iterable[pathlib.Path]) -> re.Pattern[bytes]:
    """Matches a path within one of the directories, not one whose name only begins alike; and the marks
    of the nodes in there."""
    places = list(directories)
    names = {re.escape(os.fsencode(path)) for place in places for path in (place, place.resolve())}
    marks = {b"(?<=[/=])" + node_mark(data).encode() for data in _nodes(places)}
    return re.compile(b"(?:" + b"|".join(sorted(names | marks)) + rb")(?![\w.-])")


def _nodes(directories: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Data directories of daemons."""
    for place in directories:
        for shape in _KEEPERS:
            yield from (keeper.parent for keeper in place.glob(shape))


def node_mark(data: pathlib.Path) -> str:
    """The same as `corral.runtimes.cgroups.selection.owner_of`, which cannot be imported here: it is in the
    environment of every process of a node, or in the name of its control group."""
    return hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]


_start_times: Final[dict[str, tuple[int, int]]] = {}
"""By process id: the inode of its directory, which no other process gets with that id, and when it was started."""


def _statuses(since: int) -> Iterator[tuple[int, _ProcessStatus]]:
    """Of the processes that were started at or after `since`. The others, nearly all, are read once only: every
    test asks."""
    for entry in os.scandir(_PROC):
        if not entry.name.isdecimal():
            continue
        inode = entry.inode()
        known, started = _start_times.get(entry.name, (0, 0))
        if known == inode and started < since:
            continue
        status = _status(int(entry.name))
        if status is not None:
            _start_times[entry.name] = (inode, status.started)
            if status.started >= since:
                yield int(entry.name), status


def _status(pid: int) -> _ProcessStatus | None:
    try:
        descriptor = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # many, for every test
    except OSError:
        return None
    try:
        text = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = text.rpartition(b")")[2].split()
    return _ProcessStatus(
        parent=int(fields[1]),
        started=int(fields[19]),
        alive=fields[0] not in (b"Z", b"X"),
        stopped=fields[0] in (b"T", b"t"),
    )


def _line_of(pid: int, table: Mapping[int, _ProcessStatus]) -> set[int]:
    """A process and those that it descends from."""
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _descendants(roots: set[int], table: Mapping[int, _ProcessStatus]) -> set[int]:
    return {pid for pid in table if _line_of(pid, table) & roots}


def _refers(pid: int, pattern: re.Pattern[bytes]) -> bool:
    own = f"{_PROC}/{pid}"
    for name in ("cmdline", "environ", "cgroup"):
        with contextlib.suppress(OSError), open(f"{own}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            if pattern.search(file.readall()):
                return True
    with contextlib.suppress(OSError):
        links = [f"{own}/cwd", *(f"{own}/fd/{number}" for number in os.listdir(f"{own}/fd"))]  # noqa: PTH208
        return any(pattern.match(_target(link)) for link in links)
    return False


def _target(link: str) -> bytes:
    try:
        return os.fsencode(os.readlink(link))  # noqa: PTH115 - "(deleted)" is no path
    except OSError:
        return b""


def _recorded(directories: Iterable[pathlib.Path]) -> set[tuple[int, int]]:
    """(process id, start time) pairs that run records name."""
    found: set[tuple[int, int]] = set()
    for record in (path for place in directories for shape in _RECORDS for path in place.glob(shape)):
        with contextlib.suppress(OSError):
            lines = record.read_text(errors="replace").splitlines()
            facts = dict(line.split("=", 1) for line in lines if "=" in line)
            for pid, start in _RECORDED:
                with contextlib.suppress(KeyError, ValueError):
                    found.add((int(facts[pid]), int(facts[start])))
    return found


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
    return words.strip()[:200] or "no command line"
