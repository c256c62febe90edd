"""A module's process from the fork to its end.

One event loop, in the main thread. It ends in four ways: the host sent `finish` (exit code 0, once nothing of
the module holds the interpreter), the host is gone, the host's frames cannot be decoded, or the memory is
exhausted outside of any call. A failed import gets a message that lists what a module may import.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, NoReturn, TypeVar

from corral.sdk.protocol.messages import Lingering
from corral.sdk.runner.connection import Connection
from corral.sdk.runner.lingering_work import look_around
from corral.sdk.runner.log_output import LogBridge, OutputCapture
from corral.sdk.runner.module_server import ModuleServer, load_class
from corral.sdk.runner.stray_processes import OrphanReaper
from corral.sdk.runner.workers import Workers

_IMPORT: Final = "_find_and_load_unlocked"
_BOOTSTRAP: Final = "<frozen importlib._bootstrap>"


class ImportGuard:
    """Last entry of `sys.meta_path`: names that arrive here were not found by any other finder. It hides
    nothing; what is not on the module's path cannot be found anyway."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path[_behind(self) :]:  # a package may have added its own after us
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        ours = name.partition(".")[0] == "corral"
        # Within a package only the package's author knows what there should be; Python's own message is
        # the right one then.
        if not _is_import() or not (path is None or ours):
            return None
        raise ModuleNotFoundError(_message(name, ours=ours), name=name)


def _behind(guard: ImportGuard) -> int:
    return next(number for number, finder in enumerate(sys.meta_path, 1) if finder is guard)


def _is_import() -> bool:
    """Is a real import under way? `importlib.util.find_spec("numpy")` also comes here, to find out whether
    there is such a module, and expects None: packages use it to choose what they do.

    Both go through `importlib._bootstrap._find_spec`, which is our caller; its own caller is
    `_find_and_load_unlocked` for every import (the statement, `__import__`, `import_module`) and another
    function for a mere lookup.
    """
    try:
        asker = sys._getframe(3)  # this function, find_spec above, _find_spec, its caller
    except ValueError:
        return False
    return asker.f_code.co_name == _IMPORT and asker.f_code.co_filename == _BOOTSTRAP


def _message(name: str, *, ours: bool) -> str:
    what = f"'{name}' is not part of what a module may import"
    if ours:
        return (
            f"{what}: of Corral it is corral.sdk alone; what you need from the host is in the ModuleContext"
        )
    return (
        f"{what}: the standard library, corral.sdk (with msgspec), the packages of its own archive, and those "
        f"beneath its vendor/; put '{name.partition('.')[0]}' there"
    )


T = TypeVar("T")
EXIT_HOST_GONE: Final = 70
EXIT_RUNNER_FAILED: Final = 71
EXIT_MEMORY: Final = 72
EXIT_BAD_FRAME: Final = 73
_EXECUTOR_GRACE: Final = 0.25
_LAST_WORDS: Final = 1.0


def run(sock: socket.socket, paths: list[str]) -> NoReturn:
    """Serve one module; called in a fresh fork, whose `sys.path` holds the standard library and the SDK.
    `paths` are those of the module. Never returns: the stack above belongs to the zygote."""
    code = EXIT_RUNNER_FAILED
    try:
        sock.set_inheritable(False)
        sys.path.extend(paths)
        importlib.invalidate_caches()
        sys.meta_path.append(ImportGuard())
        code = _run_loop(sock)
    except MemoryError:
        code = EXIT_MEMORY
    finally:
        os._exit(code)


def _run_loop(sock: socket.socket) -> int:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    process = _Process(sock, loop)
    main = loop.create_task(process.main(), name="corral/main")
    code = _until_done(loop, main)
    if code == 0:
        process.end()
    return code


def _until_done(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """SystemExit and KeyboardInterrupt of any task of the module's, and `loop.stop()`, end
    `run_until_complete`. They do not end the module."""
    while True:
        try:
            return loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                raise
            logging.getLogger("module").error(
                "%s was raised out of a task; the module goes on", type(error).__name__, exc_info=error
            )


class _Process:
    """`ended` becomes the exit code."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._workers = Workers()
        self._ended: asyncio.Future[int] = loop.create_future()

    async def main(self) -> int:
        server = ModuleServer(workers=self._workers, load=load_class, finish=self._finish)
        connection = Connection(self._sock, serve=server.serve, on_notice=server.on_notice)
        server.link = self._connection = connection
        self._attach_output(connection)
        self._main = asyncio.current_task()
        os.register_at_fork(after_in_child=self._leave_socket)
        OrphanReaper(self._loop).start()
        connection.ended.add_done_callback(self._on_disconnect)
        return await self._ended

    def end(self) -> None:
        """End as an interpreter does: tasks are cancelled, threads that are no daemons are waited for, exit
        handlers run. What does not end here keeps the process alive, which the host notices, reports and
        kills."""
        _cancel_all(self._loop)
        self._output.drain()
        self._connection.outbox.flush(_LAST_WORDS)
        self._loop.close()
        threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does after a fork
        atexit._run_exitfuncs()
        self._output.drain()

    async def _finish(self) -> Lingering:
        ending = await _end_executor(self._loop)
        ours = {self._main, ending, *self._connection.tasks}
        found = look_around(workers=self._workers, ours={self._output.thread}, tasks=ours)
        if not self._ended.done():
            self._ended.set_result(0)
        return found

    def _on_disconnect(self, ended: asyncio.Future[None]) -> None:
        if self._ended.done():  # the host closes its side once we answered `finish`
            return
        error = ended.exception()
        if error is None:
            os._exit(EXIT_HOST_GONE)
        os._exit(EXIT_MEMORY if isinstance(error, MemoryError) else EXIT_BAD_FRAME)

    def _attach_output(self, connection: Connection) -> None:
        bridge = LogBridge(connection.offer_notice)
        root = logging.getLogger()
        root.handlers[:] = [bridge]
        root.setLevel(logging.INFO)
        logging.captureWarnings(True)
        self._output = OutputCapture(bridge.line)
        self._output.start()

    def _leave_socket(self) -> None:
        """A fork made by the module must not hold the socket open, or write to it. Its number stays taken: an
        epoll that is shared with the parent identifies it by that."""
        with contextlib.suppress(OSError):
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, self._sock.fileno(), inheritable=False)
            os.close(nothing)


async def _end_executor(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
    """End idle threads of `asyncio.to_thread`, which are kept for the next job: they are no leak."""
    ending = loop.create_task(loop.shutdown_default_executor(), name="corral/executor")
    await asyncio.wait({ending}, timeout=_EXECUTOR_GRACE)
    return ending


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        ended = loop.create_task(asyncio.wait(tasks), name="corral/cancel")
        _until_done(loop, ended)
    _until_done(loop, loop.create_task(loop.shutdown_asyncgens(), name="corral/generators"))
