"""Processes of runs: what /proc says of them, and signals to a changing set of them.

Every answer of /proc is a moment old: code that acts on one checks it again. A signal never reaches a stranger that
inherited a pid.
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
    """Not a zombie; one whose first thread has ended while others run is alive."""
    start: int
    """Field 22: with the pid it names the process for this boot."""
    cpu_seconds: float
    """Its own and of the children it has waited for."""


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
    """The living of a group whose list may change while we look: a run whose processes fork and end
    all the time is not taken for empty. Zombies alone are, when two looks find the same ones."""
    before: list[int] | None = None
    for _ in range(_LOOKS):
        listed = sorted(members())
        alive = alive_among(listed)
        if alive or listed in ([], before):
            return alive
        before = listed
    return listed


def resident_bytes(pids: Iterable[int]) -> int:
    """Shared pages are counted for each process: an upper bound, for where no group counts."""
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
    """All living below `roots`, by the kernel's lists of children: quick, and it may miss one that is
    being re-parented at this moment. See `descendants_by_parent`."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def descendants_by_parent(roots: Iterable[int]) -> set[int]:
    """The same from the whole process table: slower, and needs nothing of the kernel but `stat`."""
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
    """What it was executed with; empty when it is not ours to read, or gone."""
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
"""Who belongs, alive, at this moment."""

KILL_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 1.0
_BURST_SECONDS: Final = 0.02
_PAUSE: Final = 0.001
_QUIET_LOOKS: Final = 3


def send_to_members(members: Members, number: int) -> set[int]:
    """To each who belongs; returns whom it reached. A pid is held by a descriptor and then asked for
    its membership again: what was reused in between is no member."""
    held = _held(members())
    try:
        still = set(members()) if held else set()
        return {pid for pid, descriptor in held.items() if pid in still and _sent(descriptor, number)}
    finally:
        for descriptor in held.values():
            os.close(descriptor)


async def kill_until_quiet(members: Members, run: str) -> None:
    """SIGKILL until several looks in a row find nobody: for where the kernel cannot end a group at
    once. Whom the signal has reached and who does not die at once (it sits in the kernel) is left to
    the kernel after a while."""
    told: set[int] = set()
    began = time.monotonic()
    quiet = 0
    while quiet < _QUIET_LOOKS:
        burst_ends = time.monotonic() + _BURST_SECONDS
        while quiet < _QUIET_LOOKS and time.monotonic() < burst_ends:
            present = set(members())
            if not present or (present <= told and time.monotonic() > began + _DYING_SECONDS):
                quiet += 1
                continue
            quiet = 0
            told |= send_to_members(members, signal.SIGKILL)
        if quiet < _QUIET_LOOKS and time.monotonic() > began + KILL_SECONDS:
            raise Retryable(
                Code.TIMEOUT,
                f"run '{run}' forks faster than it can be killed ({len(told)} processes killed so far)",
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
