"""Dumps of the present activity of the process, written on SIGUSR1: every thread's stack and every task.

The threads are written by the signal handler of `faulthandler` to `threads.txt`, also while the event loop is
blocked. When the loop runs again, they move into a dump file of their own, `dump-TIME.txt`, and the tasks
follow them there. Both lie in the `logs` folder of the data directory and are readable by the service's user
alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import faulthandler
import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import Any, Final, Self

import structlog

from corral.errors import Rejected
from corral.system.files import make_directory

DUMP_SIGNAL: Final = signal.SIGUSR1
THREADS_FILE: Final = "threads.txt"
_KEPT: Final = 10
"""Dumps that stay in the folder; the oldest are removed."""
_PAUSE_SECONDS: Final = 0.2
"""A signal that comes sooner after a dump makes none: signals in a loop must not fill the log, nor block the
loop."""
_DETAILED: Final = 300
"""Tasks that are written with their stack; those beyond are counted."""
_FRAMES: Final = 20
_SHOWN: Final = 300
_log = structlog.get_logger("corral.dump")


def ignore_dump_signal() -> None:
    """Keep the signal from ending the process, whose loop runs, until a `TaskDump` handles it."""
    asyncio.get_running_loop().add_signal_handler(DUMP_SIGNAL, lambda: None)


class TaskDump:
    """Use as `with`, on the loop. A dump that cannot be written is logged and affects nothing else."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._threads = -1
        self._last = 0.0

    def __enter__(self) -> Self:
        try:
            make_directory(self._directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._threads = os.open(self._directory / THREADS_FILE, flags, 0o600)
        except (OSError, Rejected) as error:
            _log.warning("dump.failed", reason=str(error))
            return self
        asyncio.get_running_loop().add_signal_handler(DUMP_SIGNAL, self._write)
        # Registered last, it writes first and then calls the loop's handler.
        faulthandler.register(DUMP_SIGNAL, file=self._threads, all_threads=True, chain=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads < 0:
            return
        faulthandler.unregister(DUMP_SIGNAL)
        ignore_dump_signal()
        os.close(self._threads)
        self._threads = -1

    def _write(self) -> None:
        try:
            self._dump()
        except Exception as error:
            _log.warning("dump.failed", reason=str(error))

    def _dump(self) -> None:
        threads = os.pread(self._threads, os.fstat(self._threads).st_size, 0)
        os.ftruncate(self._threads, 0)
        if time.monotonic() - self._last < _PAUSE_SECONDS:
            return
        tasks = asyncio.all_tasks()
        text = "\n".join(_described(tasks)).encode(errors="backslashreplace")
        name = f"dump-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S.%fZ}.txt"
        descriptor = os.open(
            self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"# threads\n" + threads + b"\n# tasks\n" + text + b"\n")
        for old in sorted(self._directory.glob("dump-*.txt"))[:-_KEPT]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        self._last = time.monotonic()
        _log.info("dump.created", file=str(self._directory / name), tasks=len(tasks))


def _described(tasks: set[asyncio.Task[Any]]) -> Iterator[str]:
    yield f"{len(tasks)} tasks"
    for task in sorted(tasks, key=lambda each: each.get_name())[:_DETAILED]:
        yield f"\ntask {task.get_name()}"
        yield from _frames(task.get_coro())
        waiter = getattr(task, "_fut_waiter", None)
        yield (
            f"  awaits {repr(waiter)[:_SHOWN]}"
            if waiter is not None
            else "  awaits nothing: it is due to run"
        )
    if len(tasks) > _DETAILED:
        yield f"\n{len(tasks) - _DETAILED} more tasks"


def _frames(awaited: object) -> Iterator[str]:
    """Each coroutine with the line it waits in, the outermost first; the task's own stack ends with the first."""
    for _ in range(_FRAMES):
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    yield "  …"
