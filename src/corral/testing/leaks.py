"""Leaks of a test: tasks, threads, descriptors, child processes.

Objects of ours must be gone. Those of libraries (gRPC's poller, the loop's default executor, the
interpreter's own descriptors) are known by name and ignored.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading
import time
from typing import Final

import msgspec

_MACHINERY_THREADS: Final = (
    "asyncio_",
    "uvloop_",
    "_poll_wrapper",
    "ThreadPoolExecutor",
    "pytest_timeout",
    "execnet",
)
_MACHINERY_FILES: Final = ("anon_inode:", "/dev/null", "/dev/urandom", "/proc/", "/sys/")
_DESCRIPTORS: Final = "/proc/self/fd"
_THREADS: Final = "/proc/self/task"
SETTLE_SECONDS: Final = 5.0


class Census(msgspec.Struct, frozen=True):
    """Threads, descriptors and children at one moment."""

    threads: frozenset[str]
    descriptors: dict[str, int]
    children: frozenset[int]


def take_census() -> Census:
    return Census(frozenset(_threads()), _descriptors(), frozenset(_children()))


def leaks_since(before: Census) -> list[str]:
    """The difference to `before`, after giving late closers a moment."""
    ends = time.monotonic() + SETTLE_SECONDS
    while found := difference(before, take_census()):
        if time.monotonic() > ends:
            return found
        time.sleep(0.02)
    return []


def lingering_tasks() -> list[str]:
    """Unfinished tasks of the running loop by name, the caller's own excepted."""
    own = asyncio.current_task()
    return sorted(_task_name(task) for task in asyncio.all_tasks() if task is not own and not task.done())


def _task_name(task: asyncio.Task[object]) -> str:
    """Its name, and where it waits: the name of a library's task is not enough."""
    stack = task.get_stack(limit=1)
    place = f" at {stack[0].f_code.co_qualname}:{stack[0].f_lineno}" if stack else ""
    return f"{task.get_name()} of {getattr(task.get_coro(), '__qualname__', '?')}{place}"


def difference(before: Census, now: Census) -> list[str]:
    found = [f"thread {name}" for name in sorted(now.threads - before.threads)]
    found += [f"child process {pid} ({_command(pid)})" for pid in sorted(now.children - before.children)]
    for name, count in sorted(now.descriptors.items()):
        if count > before.descriptors.get(name, 0):
            found.append(f"descriptor {name} ({count} open, {before.descriptors.get(name, 0)} before)")
    return found


def _threads() -> list[str]:
    return [
        f"{thread.name}#{thread.ident}"
        for thread in threading.enumerate()
        if not any(word in thread.name for word in _MACHINERY_THREADS)
    ]


def _descriptors() -> dict[str, int]:
    """Open files by name; sockets and pipes, which have none, by their number."""
    counted: dict[str, int] = {}
    for number in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - twice for every test
        try:
            target = os.readlink(f"{_DESCRIPTORS}/{number}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(_MACHINERY_FILES):
            continue
        kind = target.partition(":")[0]
        name = f"{kind}s" if kind in ("socket", "pipe") else target
        counted[name] = counted.get(name, 0) + 1
    return counted


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir(_THREADS):  # noqa: PTH208
        try:
            with open(f"{_THREADS}/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123
                found += [int(pid) for pid in file.readall().split()]
        except OSError:
            continue
    return found


def _command(pid: int) -> str:
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace")[:120].strip()
    except OSError:
        return "gone"
