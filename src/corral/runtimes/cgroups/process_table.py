"""What /proc says about processes. Every answer is a moment old: who acts on one checks it again."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

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
