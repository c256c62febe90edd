"""Limits of a module's process tree: memory, processes and threads; finds the modules that are over one.

Memory counted is what a module alone costs the machine: private pages, shared ones (`mmap` without a file,
`/dev/shm`), files in memory without a name (`memfd_create`), and the swapped-out parts of them; not the pages
of files, which the kernel takes back when it needs them. For one process that is a sum from its status. In
several processes shared pages (after a fork, or of a shared mapping) would count more than once, so the
kernel is asked for the proportional share of each, which takes longer the more there is: a large tree is
measured less often.

Processes are not counted all the time. Every new process and every new thread takes the next number of the
machine. So a module that had `n` at the last count has at most `n` plus the numbers given out since; it is
counted again only when that could be too many, and now and then for safety.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final

from corral.sdk.runner.proc_table import content, last_pid, tree

_LOOK_SECONDS: Final = 0.5
_LONGEST_PAUSE: Final = 2.0
_SHARE: Final = 20
"""Multiple of a measurement's duration after which the same tree is measured again."""
_MOST_PROCESSES: Final = 512
_REPORT_BYTES: Final = 256 * 1024
"""Smaller changes are not reported."""
_MOST_FILES: Final = 4096
"""Most open files examined of each process."""
_BLOCK: Final = 512
_KIB: Final = 1024
_OWN: Final = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_PROPORTIONAL: Final = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


def memory_of(pids: Iterable[int]) -> int:
    """Bytes that these processes use together, without the pages of files. A process that ended meanwhile
    uses nothing."""
    known = list(pids)
    if len(known) == 1:
        mapped = _sum(f"/proc/{known[0]}/status", _OWN) or 0
    else:
        mapped = sum(_shared(pid) for pid in known)
    # Mapped parts of an open memory file count in both; so the larger one counts, and none is counted twice.
    return max(mapped, _memory_files(known))


def _memory_files(pids: list[int]) -> int:
    """Bytes in files without a name (`memfd_create`) that these processes have open, mapped or not."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - no pathlib in a zygote
        except OSError:
            continue
        for number in numbers[:_MOST_FILES]:
            path = f"/proc/{pid}/fd/{number}"
            try:
                if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                    status = os.stat(path)  # noqa: PTH116
                    found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
            except OSError:
                continue
    return sum(found.values())


def _shared(pid: int) -> int:
    share = _sum(f"/proc/{pid}/smaps_rollup", _PROPORTIONAL)
    if share is None:  # a kernel without this value: as if nothing were shared
        share = _sum(f"/proc/{pid}/status", _OWN)
    return share or 0


def _sum(path: str, names: tuple[bytes, ...]) -> int | None:
    """Sum of these fields; None when the file has none of them."""
    try:
        lines = content(path).splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith(names)]
    return sum(found) * _KIB if found else None


class _Watched:
    __slots__ = ("due", "limit", "peak", "pids", "reported", "used")

    def __init__(self, pid: int, limit: int) -> None:
        self.limit = limit
        self.pids = [pid]
        self.used = 0
        self.peak = 0
        self.reported = -_REPORT_BYTES
        self.due = 0.0


class MemoryWatch:
    """Measures at most twice a second. Every new process takes the next number of the machine: as long as
    none is given out, there are no new descendants to look for."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._last = -1
        self._looked_at = 0.0

    def add(self, pid: int, limit: int) -> None:
        self._watched[pid] = _Watched(pid, limit)
        self._last = -1

    def remove(self, pid: int) -> int:
        """Stop watching; returns the peak."""
        watched = self._watched.pop(pid, None)
        return watched.peak if watched is not None else 0

    def look(self) -> list[int]:
        """Processes that exceed their limit."""
        now = time.monotonic()
        if not self._watched or now - self._looked_at < _LOOK_SECONDS:
            return []
        self._looked_at = now
        newest = last_pid()
        same, self._last = newest == self._last, newest
        return [pid for pid, one in self._watched.items() if self._is_over(pid, one, same=same)]

    def changed(self) -> list[tuple[int, int]]:
        """Process and bytes of those whose use differs from the last report."""
        return [
            (pid, one.used)
            for pid, one in self._watched.items()
            if one.used and abs(one.used - one.reported) >= _REPORT_BYTES
        ]

    def reported(self, pid: int, used: int) -> None:
        self._watched[pid].reported = used

    def _is_over(self, pid: int, one: _Watched, *, same: bool) -> bool:
        began = time.monotonic()
        if not same:
            one.pids = [each.pid for each in tree(pid, most=_MOST_PROCESSES)] or [pid]
        if len(one.pids) > 1 and began < one.due:
            return False
        one.used = memory_of(one.pids)
        one.peak = max(one.peak, one.used)
        now = time.monotonic()
        one.due = now + min((now - began) * _SHARE, _LONGEST_PAUSE)
        return one.used > one.limit


_COUNT_SECONDS: Final = 0.2
_RECOUNT_SECONDS: Final = 10.0
_WITH_ENDED: Final = 4
"""Multiple of the limit up to which processes may exist including those that have ended and were not waited
for. A few orphans that nothing can wait for are no reason to end a module; thousands are."""


class _CountedTree:
    __slots__ = ("at_most", "counted_at", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.at_most = 1
        self.counted_at = time.monotonic()


class ProcessWatch:
    def __init__(self) -> None:
        self._watched: dict[int, _CountedTree] = {}
        self._last = 0
        self._looked_at = 0.0

    def add(self, pid: int, limit: int) -> None:
        self._watched[pid] = _CountedTree(limit)

    def remove(self, pid: int) -> None:
        self._watched.pop(pid, None)

    def over_limit(self) -> list[int]:
        """Modules over their limit. Counts at most every 200 ms."""
        now = time.monotonic()
        if not self._watched or now - self._looked_at < _COUNT_SECONDS:
            return []
        self._looked_at = now
        newest = last_pid()
        given = newest - self._last if newest >= self._last else None  # None: the numbers wrapped around
        self._last = newest
        return [pid for pid, one in self._watched.items() if given != 0 and self._is_over(pid, one, given)]

    def _is_over(self, pid: int, one: _CountedTree, given: int | None) -> bool:
        now = time.monotonic()
        if given is not None:
            one.at_most += given
            if one.at_most <= one.limit and now - one.counted_at < _RECOUNT_SECONDS:
                return False
        most = one.limit * _WITH_ENDED
        found = tree(pid, most=most + 1)
        one.at_most = sum(process.threads for process in found if process.alive)
        one.counted_at = now
        return one.at_most > one.limit or len(found) > most
