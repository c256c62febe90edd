"""Signals to a changing set of processes, never to a stranger who inherited a pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from corral.errors import Code, Retryable

Members = Callable[[], Iterable[int]]
"""Who belongs, alive, at this moment."""

KILL_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 1.0
_BURST_SECONDS: Final = 0.02
_PAUSE: Final = 0.001
_QUIET_LOOKS: Final = 3


def send_to_members(members: Members, number: int) -> set[int]:
    """To each who belongs; returns whom it reached. A pid is held by a descriptor and then asked for
    its membership again: what was reused in between is no member."""
    held = _held(members())
    try:
        still = set(members()) if held else set()
        return {pid for pid, descriptor in held.items() if pid in still and _sent(descriptor, number)}
    finally:
        for descriptor in held.values():
            os.close(descriptor)


async def kill_until_quiet(members: Members, run: str) -> None:
    """SIGKILL until several looks in a row find nobody: for where the kernel cannot end a group at
    once. Whom the signal has reached and who does not die at once (it sits in the kernel) is left to
    the kernel after a while."""
    told: set[int] = set()
    began = time.monotonic()
    quiet = 0
    while quiet < _QUIET_LOOKS:
        burst_ends = time.monotonic() + _BURST_SECONDS
        while quiet < _QUIET_LOOKS and time.monotonic() < burst_ends:
            present = set(members())
            if not present or (present <= told and time.monotonic() > began + _DYING_SECONDS):
                quiet += 1
                continue
            quiet = 0
            told |= send_to_members(members, signal.SIGKILL)
        if quiet < _QUIET_LOOKS and time.monotonic() > began + KILL_SECONDS:
            raise Retryable(
                Code.TIMEOUT,
                f"run '{run}' forks faster than it can be killed ({len(told)} processes killed so far)",
                hint="kill it again; control groups (cgroup v2) end such a run at once",
            )
        await asyncio.sleep(_PAUSE)


def _held(pids: Iterable[int]) -> dict[int, int]:
    held: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # gone; or out of descriptors: the next look finds the rest
            held[pid] = os.pidfd_open(pid)
    return held


def _sent(descriptor: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    return True
