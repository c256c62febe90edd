"""Real runs in real control groups, and everything of them gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from corral.errors import CorralError, Rejected
from corral.runtimes.cgroups import control_files
from corral.runtimes.cgroups.control_files import Hierarchies, mounted_hierarchies
from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.cgroups.processes import alive_among, all_pids
from corral.runtimes.cgroups.selection import open_cgroups
from corral.runtimes.cgroups.systemd import systemd_is_pid_1
from corral.runtimes.cgroups.v1 import SeparateCgroups
from corral.runtimes.cgroups.v2 import UnifiedCgroups
from corral.sdk.runtime import RunLimits
from corral.testing.waiting import eventually

SHIM = pathlib.Path(__file__).with_name("stand_in_shim.py")
GROUPED = ("v2", "v1", "hybrid", *(("systemd",) if systemd_is_pid_1() else ()))
"""`systemd` is there in tests/system/test_systemd.py, which runs this suite under one."""
KINDS = ("none", *GROUPED)
UNLIMITED = RunLimits()
NUMBERS = itertools.count(1)

IDLE = "import signal; print('up', flush=True); signal.pause()"
SPINNING = """
import mmap, os, sys
counter = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
print('up', flush=True)
n = 0
while True:
    n += 1
    counter[:8] = n.to_bytes(8, 'little')
"""


class Run:
    """One run: its stand-in shim, and what was started in `work`."""

    def __init__(self, cgroups: Cgroups, name: str) -> None:
        self.cgroups = cgroups
        self.name = name
        self.shim = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SHIM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        )
        self._mark = f"of-{name}"
        self.files: tuple[str, ...] = ()
        self.started: list[int] = []

    async def create(self, limits: RunLimits = UNLIMITED) -> Run:
        self.files = await self.cgroups.create(self.name, shim_pid=self.shim.pid, limits=limits)
        return self

    async def start(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> int:
        """A Python program in `work`; returns once it executes, its pid."""
        argv = [sys.executable, "-I", "-S", "-c", code, *arguments, self._mark]
        marks = self.cgroups.environment(self.name) if env is None else env
        order = {"files": self.files, "argv": argv, "env": marks}
        assert self.shim.stdin is not None
        assert self.shim.stdout is not None
        self.shim.stdin.write(json.dumps(order).encode() + b"\n")
        self.shim.stdin.flush()
        lines: list[bytes] = []
        while not lines or not lines[-1].strip().isdigit():  # a workload before may say something, too
            lines.append(await asyncio.to_thread(self.shim.stdout.readline))
            assert lines[-1], "the stand-in shim ended"
        pid = int(lines[-1])
        self.started.append(pid)
        self.cgroups.know(self.name, shim_pid=self.shim.pid, pid=pid)
        return pid

    async def start_and_wait(self, code: str, *arguments: str) -> int:
        """The same for one that says `up` on its output."""
        pid = await self.start(code, *arguments)
        await self.said("up")
        return pid

    async def said(self, word: str) -> None:
        assert self.shim.stdout is not None
        line = await asyncio.to_thread(self.shim.stdout.readline)
        assert line.decode().strip() == word

    def end_shim(self) -> None:
        self.shim.kill()
        self.shim.wait()

    async def emptied(self) -> None:
        await eventually(lambda: not self.cgroups.pids(self.name), state=lambda: self.cgroups.pids(self.name))

    def survivors(self) -> list[int]:
        """Whoever is left by the word of the machine, not of the adapter: one look misses a process
        that forks and ends, so there are many."""
        found: set[int] = set()
        for _ in range(20):
            found.update(pid for pid in all_pids() if self._mark in _arguments(pid))
        return alive_among(found)

    async def end(self) -> None:
        with contextlib.suppress(CorralError):
            await self.cgroups.kill(self.name)
        self.end_shim()
        for stream in (self.shim.stdin, self.shim.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        await eventually(lambda: not alive_among(self.started), state=lambda: alive_among(self.started))
        await eventually(self._removed)

    async def _removed(self) -> bool:
        try:
            await self.cgroups.remove(self.name)
        except CorralError:
            return False
        return not self.cgroups.exists(self.name)


def _arguments(pid: int) -> list[str]:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


class Machine:
    """Makes runs in one adapter."""

    def __init__(self, cgroups: Cgroups, kind: str, root: str) -> None:
        self.cgroups = cgroups
        self.kind = kind
        self.root = root
        self._runs: list[Run] = []

    def limits(self, controller: str) -> bool:
        """Can this kind limit it on this machine?"""
        mounted = mounted_hierarchies()
        if self.kind in ("v2", "systemd"):
            words = pathlib.Path(f"{mounted.unified}/cgroup.controllers").read_text().split()
            return controller in words
        return self.kind != "none" and controller in mounted.controllers

    def new_run(self, name: str = "") -> Run:
        run = Run(self.cgroups, name or f"lobby-{os.getpid()}-{next(NUMBERS)}.1024")
        self._runs.append(run)
        return run

    async def run(self, limits: RunLimits = UNLIMITED) -> Run:
        return await self.new_run().create(limits)

    async def end(self) -> None:
        for run in self._runs:
            await run.end()
        await self.cgroups.close()


@contextlib.asynccontextmanager
async def machine_of(kind: str) -> AsyncIterator[Machine]:
    """Skips where the kernel or our rights lack it."""
    root = f"corral-test-{os.getpid()}-{next(NUMBERS)}"
    machine = Machine(adapter_of(kind, root), kind, root)
    try:
        yield machine
    finally:
        try:
            await machine.end()
        finally:
            left = [path for path in root_paths(root) if path.exists()]
            for path in left:
                sweep(path)
        assert not left, f"groups were left behind: {left}"


def adapter_of(kind: str, root: str) -> Cgroups:
    mounted = mounted_hierarchies()
    try:
        if kind == "none":
            return NoCgroups(root)
        if kind == "systemd":
            return open_cgroups("systemd", "", owner=root)
        if kind == "v2":
            if mounted.unified is None:
                pytest.skip("no cgroup v2 hierarchy is mounted here")
            return UnifiedCgroups(mounted.unified, root)
        if "freezer" not in mounted.controllers or "memory" not in mounted.controllers:
            pytest.skip("no cgroup v1 controllers are mounted here")
        if kind == "v1":
            return SeparateCgroups(Hierarchies(unified=None, controllers=mounted.controllers), root)
        if mounted.unified is None:
            pytest.skip("no cgroup v2 hierarchy is mounted beside the v1 controllers")
        return SeparateCgroups(mounted, root)
    except (OSError, Rejected) as error:
        pytest.skip(f"this user may not make control groups here: {error}")


def sweep(root: pathlib.Path) -> None:
    """Away with what a broken adapter left, by means of our own."""
    for group in [*root.rglob("*"), root]:
        for file, word in (("cgroup.kill", "1"), ("cgroup.freeze", "0"), ("freezer.state", "THAWED")):
            control_files.write_if_there(f"{group}/{file}", word)
    for pid in control_files.member_pids(str(root)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    control_files.remove_unless_busy(str(root))


def root_paths(root: str) -> list[pathlib.Path]:
    mounted = mounted_hierarchies()
    mounts: Sequence[str | None] = [mounted.unified, *mounted.controllers.values()]
    return [pathlib.Path(mount, root) for mount in mounts if mount is not None]
