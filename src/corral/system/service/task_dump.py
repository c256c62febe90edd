"""Dumps of what the process does right now, written on SIGUSR1: every thread's stack and every task.

The event loop writes them, so a dump waits while a callback keeps the loop; `loop.blocked` in the log then has that
callback's stack. (A handler of `faulthandler` would not wait, but it nests, and enough signals at once overflow its
stack.) Each dump is a file of its own in the `logs` folder of the data directory, readable by the service's user
alone. It names what a task awaits by its type and never shows values: they may be secrets.
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

from corral.errors import Rejected, counted
from corral.system.files import make_directory

DUMP_SIGNAL: Final = signal.SIGUSR1
_KEPT: Final = 10
"""Dumps that stay in the folder; the oldest are removed."""
_PAUSE_SECONDS: Final = 0.2
"""A signal that comes sooner after a dump makes none: signals in a loop must not fill the disk, nor keep the loop."""
_DETAILED: Final = 300
"""Tasks that are written with their stack; those beyond are counted."""
_FRAMES: Final = 20
_log = structlog.get_logger("corral.system")


def ignore_dump_signal() -> None:
    """Keep the signal from ending the process, whose loop runs, until a `TaskDump` handles it. Programs that it starts
    are ended by the signal as usual: a handler is not inherited."""
    asyncio.get_running_loop().add_signal_handler(DUMP_SIGNAL, lambda: None)


class TaskDump:
    """Use as `with`, on the loop. A dump that cannot be written is logged and hurts nothing else."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._last = -_PAUSE_SECONDS

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_signal_handler(DUMP_SIGNAL, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        ignore_dump_signal()

    def _handle(self) -> None:
        if time.monotonic() - self._last < _PAUSE_SECONDS:
            return
        try:
            make_directory(self._directory)
            _log.info("dump.created", **self._dump())
        except (OSError, Rejected) as error:
            _log.warning("dump.failed", reason=str(error))
        self._last = time.monotonic()

    def _dump(self) -> dict[str, Any]:
        tasks = asyncio.all_tasks()
        path = self._directory / f"dump-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S.%fZ}.txt"
        unfinished = self._directory / ".dump.tmp"  # whoever sees a dump finds all of it
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(b"# threads\n")
            faulthandler.dump_traceback(file=descriptor, all_threads=True)
            text = "\n".join(_described(tasks)).encode(errors="backslashreplace")
            file.write(b"\n# tasks\n" + text + b"\n")
        unfinished.replace(path)
        for old in sorted(self._directory.glob("dump-*.txt"))[:-_KEPT]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        return {"file": str(path), "tasks": len(tasks)}


def _described(tasks: set[asyncio.Task[Any]]) -> Iterator[str]:
    yield f"{len(tasks)} tasks"
    for task in sorted(tasks, key=lambda each: each.get_name())[:_DETAILED]:
        yield f"\ntask {task.get_name()}"
        yield from _frames(task.get_coro())
        yield f"  awaits {awaited(getattr(task, '_fut_waiter', None))}"
    if len(tasks) > _DETAILED:
        yield f"\n{counted(len(tasks) - _DETAILED, 'more task')}"


def awaited(waiter: object) -> str:
    """By type and state; a value or an exception may hold a secret."""
    if waiter is None:
        return "nothing: it is due to run"
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()}"
    state = "that is done" if isinstance(waiter, asyncio.Future) and waiter.done() else ""
    return f"{type(waiter).__name__} {state}".strip()


def _frames(awaited: object) -> Iterator[str]:
    """Each coroutine with the line it waits in, the outermost first; the task's own stack ends with the first."""
    for _ in range(_FRAMES):
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    yield "  …"
