"""Nodes for tests, with the process runtime or one with windows, removed completely afterwards. Also a
detached run: started as a daemon starts it, and left as a daemon that ends leaves it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import time
import uuid
from types import TracebackType
from typing import Any, Final, Self

import pytest

from corral.daemon.supervise.supervision import NodeRuntime
from corral.errors import CorralError
from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.cgroups.port import CgroupFacts, Cgroups
from corral.runtimes.cgroups.selection import open_cgroups, owner_of
from corral.runtimes.keeper.keeper_protocol import PROTOCOL, lock_name, socket_name
from corral.runtimes.node_runtimes import open_runtimes
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.sessions.multiplexer import (
    SOCKETS,
    TMUX_SOCKET,
    Multiplexer,
    ScreenMultiplexer,
    TmuxMultiplexer,
    base_environment,
)
from corral.runtimes.sessions.provider import SessionRuntime
from corral.sdk.runtime import RunHandle, RunSpec
from corral.system.daemon_config import InstancesSection
from corral.testing.reaper import reap
from corral.testing.survivors import now_in_ticks
from corral.testing.workloads import Argv

PATH = "/usr/local/bin:/usr/bin:/bin"
CGROUP_KINDS = ("none", "v1", "v2")
"""Those that need no service manager; a house skips its test where one does not work."""


def keeper_pid(data: pathlib.Path) -> int:
    """The pid of this node's keeper, living or dead. Blocks for a moment while one starts."""
    lock = data / "keeper" / lock_name(socket_name(PROTOCOL))
    for _ in range(1000):
        if text := lock.read_text():
            return int(text)
        time.sleep(0.001)
    raise AssertionError(f"{lock} stays empty")


def open_files(pid: int) -> list[str]:
    """The open files of a process, by name; empty when it has ended."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(entry.readlink()))
    return found


class ProcessHarness:
    """Use as `async with`. `cgroups` is a kind as in the configuration; each harness has a root of its own."""

    def __init__(
        self,
        data: pathlib.Path,
        *,
        cgroups: str = "none",
        segment_bytes: int = 64 << 20,
        spare_shims: int = 0,
    ) -> None:
        self.data = data
        self._spare_shims = spare_shims
        self.cgroup_kind = cgroups
        self.cgroup_root = f"corral-house-{uuid.uuid4().hex[:12]}"
        self._segment_bytes = segment_bytes
        self._providers: list[ProcessRuntime] = []
        self._count = 0
        self._since = now_in_ticks()

    @property
    def provider(self) -> ProcessRuntime:
        return self._providers[-1]

    def cgroups(self) -> Cgroups:
        """As a new daemon would open them."""
        return _opened(self.cgroup_kind, self.cgroup_root)

    async def next_provider(self) -> ProcessRuntime:
        cgroups = self.cgroups()
        provider = ProcessRuntime(
            self.data,
            cgroups,
            self._segment_bytes,
            facts=_proven.get(cgroups.name),
            spare_shims=self._spare_shims,
        )
        self._providers.append(provider)
        await provider.start_keeper()
        _keep_facts(cgroups, provider)
        return provider

    def spec(self, *command: str, **fields: Any) -> RunSpec:
        self._count += 1
        name = f"run-{self._count}"
        run_directory = self.data / "runs" / name / "1024"
        run_directory.mkdir(parents=True, mode=0o700)
        for above in (self.data / "runs", run_directory.parent):
            above.chmod(0o700)
        directory = self.data / "running" / name
        directory.mkdir(parents=True)
        given: dict[str, Any] = {
            "environment": {"PATH": PATH},
            "directory": str(directory),
            "run_directory": str(run_directory),
            **fields,
        }
        return RunSpec(instance_id=name, incarnation=1024, command=command, **given)

    async def __aenter__(self) -> Self:
        try:
            self.cgroups()
        except CorralError as error:
            pytest.skip(str(error))
        await self.next_provider()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for provider in self._providers:
            await provider.close()
        cgroups = self.cgroups()
        for run in cgroups.leftovers():  # thaws what a failed test left frozen
            with contextlib.suppress(CorralError):
                await cgroups.kill(run)
        reap(self.data, since=self._since)
        for run in cgroups.leftovers():
            with contextlib.suppress(CorralError):
                await cgroups.remove(run)
        await cgroups.close()


async def open_node_runtime(data: pathlib.Path, settings: InstancesSection) -> NodeRuntime:
    """As `NodeRuntime.open`, without another proof of the control groups."""
    cgroups = open_cgroups(settings.cgroups, settings.cgroup_root, owner=owner_of(str(data)))
    try:
        runtimes = await open_runtimes(
            data,
            cgroups,
            settings.console_segment_bytes,
            facts=_proven.get(cgroups.name),
            spare_shims=settings.spare_shims,
        )
    except BaseException:
        await cgroups.close()
        raise
    _keep_facts(cgroups, runtimes.process)
    return NodeRuntime(runtimes, cgroups)


_proven: Final[dict[str, CgroupFacts]] = {}
"""By kind of control groups. A proof starts processes and moves them about, and its result is that of the machine."""


def _keep_facts(cgroups: Cgroups, runtime: ProcessRuntime) -> None:
    assert runtime.facts is not None
    _proven[cgroups.name] = runtime.facts


def _opened(kind: str, own: str) -> Cgroups:
    """With a root of its own, which goes when it is empty."""
    return open_cgroups(kind, own, owner=own if kind == "none" else "")


MULTIPLEXERS: Final = ("tmux", "screen")


def multiplexer_called(name: str) -> Multiplexer:
    return TmuxMultiplexer() if name == "tmux" else ScreenMultiplexer()


class SessionHarness:
    """Use as `async with`. Skips its test where the multiplexer is not installed."""

    def __init__(
        self, data: pathlib.Path, *, multiplexer: str, cgroups: str = "none", segment_bytes: int = 64 << 20
    ) -> None:
        self.data = data
        self.multiplexer = multiplexer
        self._segment_bytes = segment_bytes
        self._node = ProcessHarness(data, cgroups=cgroups, segment_bytes=segment_bytes)
        self._providers: list[SessionRuntime] = []

    @property
    def provider(self) -> SessionRuntime:
        return self._providers[-1]

    async def next_provider(self) -> SessionRuntime:
        cgroups = self._node.cgroups()
        facts = _proven.get(cgroups.name)
        process = ProcessRuntime(self.data, cgroups, self._segment_bytes, facts=facts, name=self.multiplexer)
        provider = SessionRuntime(process, multiplexer_called(self.multiplexer))
        self._providers.append(provider)
        await provider.open()
        _keep_facts(cgroups, process)
        return provider

    def spec(self, *command: str, **fields: Any) -> RunSpec:
        return self._node.spec(*command, **fields)

    @property
    def keeper_directory(self) -> pathlib.Path:
        """Where sessions live, too."""
        return self.data / "keeper"

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The multiplexer's own program, as an operator would call it. Blocking."""
        own = ("tmux", "-S", TMUX_SOCKET) if self.multiplexer == "tmux" else ("screen",)
        return subprocess.run(
            (*own, *arguments),
            cwd=self.keeper_directory,
            env=self.operator_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def operator_environment(self) -> dict[str, str]:
        more = {} if self.multiplexer == "tmux" else {"SCREENDIR": SOCKETS}
        return {**base_environment(), "PATH": os.environ["PATH"], **more}

    def sessions(self) -> set[str]:
        """The names of those that exist, with `screen` without the pid in front."""
        if self.multiplexer == "tmux":
            return set(self.call("list-sessions", "-F", "#{session_name}").stdout.split())
        sockets = self.keeper_directory / SOCKETS
        return {socket.name.partition(".")[2] for socket in sockets.iterdir()} if sockets.exists() else set()

    async def __aenter__(self) -> Self:
        if not multiplexer_called(self.multiplexer).program:
            pytest.skip(f"{self.multiplexer} is not installed")
        await self._node.__aenter__()
        await self.next_provider()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for provider in self._providers:
            await provider.close()
        await self._node.__aexit__(kind, error, trace)


INCARNATION = 65_536


async def start_detached(data: pathlib.Path, id: str, command: Argv) -> RunHandle:
    """Start a workload in a data directory, without control groups, and detach from it."""
    run = data / "runs" / id / str(INCARNATION)
    work = data / "running" / id
    run.mkdir(parents=True, mode=0o700)
    work.mkdir(parents=True)
    runtime = ProcessRuntime(data, NoCgroups(owner_of(str(data))))
    await runtime.start_keeper()
    try:
        return await runtime.start(
            RunSpec(
                instance_id=id,
                incarnation=INCARNATION,
                command=command,
                environment={"PATH": os.defpath},
                directory=str(work),
                run_directory=str(run),
            )
        )
    finally:
        await runtime.close()
