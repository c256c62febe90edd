"""Processes of runs: their state in /proc, and signals to a changing set of them.

What /proc shows is already a moment old: code that acts on it checks again. A signal never reaches an
unrelated process that got a reused pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from corral.errors import Code, Retryable

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LOOKS: Final = 50


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    parent: int
    alive: bool
    """Whether it is not a zombie; a process whose first thread has ended while others run is alive."""
    start: int
    """Field 22: with the pid it names the process for this boot."""
    cpu_seconds: float
    """CPU time of the process and of the children it has waited for."""


def read_stat(pid: int) -> ProcessStat | None:
    """None: there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    words = text[text.rfind(b")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        parent=int(words[1]),
        alive=words[0] not in (b"Z", b"X") or int(words[17]) > 1,
        start=int(words[19]),
        cpu_seconds=sum(int(word) for word in words[11:15]) / _TICKS,
    )


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  # hot


def alive_among(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if (stat := read_stat(pid)) is not None and stat.alive]


def living(members: Callable[[], list[int]]) -> list[int]:
    """The living processes of a group whose list may change during the scan: a run whose processes fork and
    exit all the time is not taken for empty. A group of zombies only is empty when two scans find the same
    ones."""
    before: list[int] | None = None
    for _ in range(_LOOKS):
        listed = sorted(members())
        alive = alive_among(listed)
        if alive or listed in ([], before):
            return alive
        before = listed
    return listed


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory. Shared pages are counted for each process: an upper bound, for machines without a
    memory controller."""
    total = 0
    for pid in pids:
        try:
            total += int(pathlib.Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
        except (OSError, IndexError):
            continue
    return total


def cpu_seconds(pids: Iterable[int]) -> float:
    return sum(stat.cpu_seconds for pid in pids if (stat := read_stat(pid)) is not None)


def descendants(roots: Iterable[int]) -> set[int]:
    """All living descendants of `roots`, by the kernel's lists of children: quick, but may miss a process
    that is being re-parented at this moment. See `descendants_by_parent`."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def descendants_by_parent(roots: Iterable[int]) -> set[int]:
    """All living descendants of `roots` from the whole process table: slower, and needs only `stat` of the
    kernel."""
    below: dict[int, list[int]] = {}
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is not None:
            below.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def environment_of(pid: int) -> dict[str, str]:
    """The environment the process was executed with; empty when it may not be read, or the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in text.split(b"\0"))
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs if name}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # hot
    except OSError:
        return found
    for thread in threads:
        try:
            text = pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
        except OSError:
            continue
        found += [int(word) for word in text.split()]
    return found


Members = Callable[[], Iterable[int]]
"""Returns the living members at this moment."""

KILL_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 1.0
_BURST_SECONDS: Final = 0.02
_PAUSE: Final = 0.001
_QUIET_LOOKS: Final = 3


def send_to_members(members: Members, number: int) -> set[int]:
    """Send the signal to each member; returns the pids it reached. Membership is checked again after the
    pidfd is open: a pid that was reused in between is no member."""
    held = _held(members())
    try:
        still = set(members()) if held else set()
        return {pid for pid, descriptor in held.items() if pid in still and _sent(descriptor, number)}
    finally:
        for descriptor in held.values():
            os.close(descriptor)


async def kill_until_quiet(members: Members, run: str) -> None:
    """SIGKILL until several scans in a row find no process: for kernels that cannot kill a group at once. A
    process that got the signal and does not die at once (it is blocked in the kernel) is left to the kernel
    after a while."""
    signalled: set[int] = set()
    began = time.monotonic()
    quiet = 0
    while quiet < _QUIET_LOOKS:
        burst_ends = time.monotonic() + _BURST_SECONDS
        while quiet < _QUIET_LOOKS and time.monotonic() < burst_ends:
            present = set(members())
            if not present or (present <= signalled and time.monotonic() > began + _DYING_SECONDS):
                quiet += 1
                continue
            quiet = 0
            signalled |= send_to_members(members, signal.SIGKILL)
        if quiet < _QUIET_LOOKS and time.monotonic() > began + KILL_SECONDS:
            raise Retryable(
                Code.TIMEOUT,
                f"run '{run}' forks faster than it can be killed ({len(signalled)} processes killed so far)",
                hint="kill it again; control groups (cgroup v2) end such a run at once",
            )
        await asyncio.sleep(_PAUSE)


def _held(pids: Iterable[int]) -> dict[int, int]:
    held: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # gone; or out of descriptors: the next look finds the rest
            held[pid] = os.pidfd_open(pid)
    return held


def _sent(descriptor: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    return True
