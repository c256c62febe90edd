"""Capabilities of the control groups on this machine, tested on a scratch group and not assumed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final, Protocol

from corral.errors import CorralError
from corral.runtimes.cgroups import control_files, processes
from corral.runtimes.cgroups.port import CgroupFacts, Cgroups
from corral.sdk.runtime import RunLimits

_DEADLINE: Final = 10.0
_LIMITS: Final = RunLimits(memory_mb=32, cpu_cores=0.5, pids=64)
_ALLOCATED_MB: Final = 128
_IDLE: Final = "import sys; sys.stdin.buffer.read()"
"""A process that lives until its parent exits, however that happens."""
_GREEDY: Final = f"import sys; sys.stdin.read(1); b'x' * ({_ALLOCATED_MB} << 20)"


class Provable(Cgroups, Protocol):
    """An adapter that can also report the limits that it set."""

    def limits_in_force(self, run: str) -> frozenset[str]:
        """Which of `memory`, `cpu`, `pids` the kernel limits in `work`."""


async def proven_facts(cgroups: Provable) -> CgroupFacts:
    """Starts three short-lived processes in a scratch group; leaves nothing. A refusal is a fact."""
    run = f"scratch-{os.getpid()}.{time.monotonic_ns()}"  # unique: an earlier proof may have been killed
    notes: list[str] = []
    with _process(_IDLE) as shim:
        try:
            files = await cgroups.create(run, shim_pid=shim.pid, limits=_LIMITS)
        except CorralError as error:
            return CgroupFacts(
                kill=False,
                freeze=False,
                memory_limit=False,
                cpu_limit=False,
                pids_limit=False,
                notes=(str(error),),
            )
        try:
            limited = cgroups.limits_in_force(run)
            memory = await _memory_is_limited(cgroups, run, files, limited, notes)
            with _process(_IDLE) as work:
                _put(work.pid, files)
                freeze = await _freezes(cgroups, run, work.pid, notes)
                kill = await _kills(cgroups, run, work, notes)
        finally:
            await _dismantle(cgroups, run, shim)
    notes += [
        f"no limit of {name}: the kernel offers no such controller here"
        for name in ("cpu", "pids")
        if name not in limited
    ]
    return CgroupFacts(
        kill=kill,
        freeze=freeze,
        memory_limit=memory,
        cpu_limit="cpu" in limited,
        pids_limit="pids" in limited,
        notes=tuple(notes),
    )


async def _memory_is_limited(
    cgroups: Provable, run: str, files: tuple[str, ...], limited: frozenset[str], notes: list[str]
) -> bool:
    if "memory" not in limited:
        notes.append("no limit of memory: the kernel offers no such controller here")
        return False
    with _process(_GREEDY) as greedy:
        _put(greedy.pid, files)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is still busy: nothing has ended it
            await asyncio.to_thread(greedy.communicate, b"1", _DEADLINE)
        if greedy.returncode == -signal.SIGKILL and cgroups.oom_killed(run):
            return True
    notes.append(
        f"no limit of memory: a process got {_ALLOCATED_MB} MiB under a limit of {_LIMITS.memory_mb} MiB"
        f" and ended with {greedy.returncode}"
    )
    return False


async def _freezes(cgroups: Provable, run: str, pid: int, notes: list[str]) -> bool:
    """Whether a process can be frozen and thawed again, and survives it."""
    try:
        await cgroups.set_frozen(run, True)
        await cgroups.set_frozen(run, False)
    except CorralError as error:
        notes.append(f"no freezing: {error}")
        return False
    return processes.alive_among([pid]) == [pid]


async def _kills(cgroups: Provable, run: str, work: subprocess.Popen[bytes], notes: list[str]) -> bool:
    try:
        await cgroups.kill(run)
        status = await asyncio.to_thread(work.wait, _DEADLINE)
    except (CorralError, subprocess.TimeoutExpired) as error:
        notes.append(f"no killing of a whole group: {error}")
        return False
    return status == -signal.SIGKILL


async def _dismantle(cgroups: Provable, run: str, shim: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(CorralError):
        await cgroups.kill(run)
    shim.kill()
    await asyncio.to_thread(shim.wait, _DEADLINE)
    with contextlib.suppress(CorralError):
        await cgroups.remove(run)


def _put(pid: int, files: tuple[str, ...]) -> None:
    for file in files:
        control_files.write_text(file, str(pid))


@contextlib.contextmanager
def _process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A short-lived process of our own interpreter, which every machine has. Dead and reaped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
