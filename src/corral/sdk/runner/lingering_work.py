"""Lingering work of a module after its last hook: threads, tasks, child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Collection
from typing import Any, Final

from corral.sdk.protocol.messages import Lingering
from corral.sdk.runner.proc_table import content, tree
from corral.sdk.runner.workers import Workers

_MOST: Final = 100
"""Most items of each kind; a module with a thousand threads is recognised by the first hundred."""

_JOINING: Final = "(_do_shutdown)"
"""asyncio's own thread, which waits for those of `to_thread`; they are in the list themselves."""


def look_around(
    *, workers: Workers, ours: Collection[threading.Thread], tasks: Collection[asyncio.Task[Any] | None]
) -> Lingering:
    """`ours` and `tasks` belong to the runner and are left out, as are its workers unless they still run
    something of the module's."""
    busy = workers.busy()
    known = {threading.main_thread(), *ours, *(workers.threads - busy.keys())}
    threads = [
        busy.get(thread) or thread.name + (" (daemon)" if thread.daemon else "")
        for thread in threading.enumerate()
        if thread not in known and not thread.name.endswith(_JOINING)
    ]
    left = [_task_name(task) for task in asyncio.all_tasks() if task not in tasks]
    return Lingering(
        threads=tuple(sorted(threads)[:_MOST]), tasks=tuple(sorted(left)[:_MOST]), children=_children()
    )


def _task_name(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "__qualname__", "")
    return f"{task.get_name()} ({code})" if code else task.get_name()


def _children() -> tuple[str, ...]:
    """Descendants that have not ended, as `pid command`."""
    found = []
    for process in tree(os.getpid(), most=_MOST + 1):
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile
            command = content(f"/proc/{process.pid}/cmdline").replace(b"\0", b" ").strip()
            if command:  # a zombie has none
                found.append(f"{process.pid} {command.decode('utf-8', 'replace')[:200]}")
    return tuple(sorted(found))
