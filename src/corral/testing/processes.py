"""Controllers and daemons as real processes, for tests that kill them.

Everything started here is gone afterwards, also when the test fails: each process is killed by its
id and waited for, and so is every instance that a daemon left running. Daemons run workloads as the user
of the tests and without control groups unless a test sets otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Final, Self

from corral.testing.cgroup_cleanup import drop_groups
from corral.testing.reaper import reap
from corral.testing.survivors import now_in_ticks

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 20.0
_DAEMON: Final = {"CORRAL_INSTANCES_DEVELOPMENT": "true", "CORRAL_INSTANCES_CGROUPS": "none"}
_CONTROLLER: Final = {
    f"CORRAL_HTTP_LIMITS_{name}": "0"
    for name in ("REQUESTS_PER_SECOND", "LOGINS_PER_MINUTE", "STREAMS", "TICKETS", "UPLOADS")
}
"""One token does everything in tests."""


class ServiceProcess:
    """One `corral …` process; `ready` waits for its line."""

    def __init__(
        self,
        arguments: list[str],
        *,
        environment: Mapping[str, str],
        log: pathlib.Path,
        python: str = sys.executable,
    ) -> None:
        self._log = log
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.printed: Final[list[str]] = []
        """The lines of its standard output so far."""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "corral.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_clean_environment(environment),
                text=True,
            )
        self._reader = threading.Thread(target=self._read, name="service-stdout", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed.append(line.rstrip("\n"))
            self._lines.put(self.printed[-1])
        self._lines.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr(self) -> str:
        return self._log.read_text(errors="replace")

    async def ready(self) -> str:
        """The text after `ready: `; fails with its log when it ended instead."""
        while True:
            try:
                line = await asyncio.to_thread(self._lines.get, timeout=_START_SECONDS)
            except queue.Empty:
                raise AssertionError(
                    f"not ready within {_START_SECONDS:g} s:\n{self.stderr[-4000:]}"
                ) from None
            if line is None:
                raise AssertionError(f"ended with {self._process.wait()}:\n{self.stderr[-4000:]}")
            if line.startswith("ready: "):
                return line.removeprefix("ready: ")

    async def wait(self) -> int:
        """The exit code, once it ended by itself."""
        return await asyncio.to_thread(self._process.wait, _STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait until the kernel is done with it."""
        self._process.kill()
        await self._reap()

    async def terminate(self) -> int:
        """SIGTERM and an orderly end; a process that does not end is killed and the test fails."""
        self._process.terminate()
        try:
            code = await self.wait()
        except subprocess.TimeoutExpired:
            await self.kill()
            raise AssertionError(f"did not end within {_STOP_SECONDS:g} s:\n{self.stderr[-4000:]}") from None
        await self._reap()
        return code

    async def _reap(self) -> None:
        await asyncio.to_thread(self._process.wait)
        await asyncio.to_thread(self._reader.join)
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def dispose(self) -> None:
        """Gone afterwards, whatever its state."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        await self._reap()


def _clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
    return {**kept, **extra}


class ProcessCluster:
    """Processes that end with the test. Use as `async with`."""

    def __init__(self, directory: pathlib.Path, *, environment: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._environment = dict(environment or {})
        self._stack = contextlib.AsyncExitStack()
        self._processes: list[ServiceProcess] = []
        self._since = now_in_ticks()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            await asyncio.to_thread(reap, self._directory, since=self._since)
            await asyncio.to_thread(drop_groups, self._directory)

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> ServiceProcess:
        """Start `corral …`; `python` may be the interpreter of another version's environment."""
        # another version may not know these settings, and refuses what it does not know
        by_role = {"daemon": _DAEMON, "controller": _CONTROLLER}
        known = by_role.get(arguments[0], {}) if python == sys.executable else {}
        log = self._directory / f"process-{len(self._processes) + 1}.log"
        process = ServiceProcess(
            list(arguments),
            environment={**known, **self._environment, **(environment or {})},
            log=log,
            python=python,
        )
        self._stack.push_async_callback(process.dispose)
        self._processes.append(process)
        return process

    def running(self) -> list[ServiceProcess]:
        """Processes that have not ended, the newest first."""
        return [process for process in reversed(self._processes) if process.alive]
