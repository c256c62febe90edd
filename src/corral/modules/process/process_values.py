"""Values about module processes: limits, usage, how one ended, and CPU weights as `nice`.

Weights are those of control groups: 1 to 10000, and 100 by default. One step of `nice` is worth a
quarter, so a module of twice the weight gets about twice the time of another one, where there is not enough
for both.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from corral.sdk.protocol.messages import Lingering

DEFAULT_WEIGHT: Final = 100
DEFAULT_NICE: Final = 5
"""`nice` of a module with the default weight: about a third of its host's share."""
_STEP: Final = 1.25
_LOWEST: Final = 19


def nice_of(weight: int) -> int:
    """`nice` of a module of this weight above its host's, 0 to 19; never negative: whatever a manifest
    requests, no module has priority over its host. A weight of 0 is the default."""
    steps = math.log((weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT, _STEP)
    return max(0, min(_LOWEST, DEFAULT_NICE - round(steps)))


Serve = Callable[[str, msgspec.Raw], Awaitable[object]]
"""Answers a module's call: returns the body of the answer, or raises a `CorralError` that the module gets as
a failure."""
Notice = Callable[[str, msgspec.Raw], None]
"""Handles a module's notice, which has no answer. Must be short: it runs on the host's loop. `OverLimit` for
a notice that holds more than it may."""


class OverLimit(Exception):
    """A message of a module holds more than it may; the text completes "it"."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a module's process; `processes` includes its descendants."""

    memory_mb: int
    processes: int
    """Processes and threads."""
    nice: int = DEFAULT_NICE
    """Its `nice` value on top of the host's."""
    run_as: str = ""
    """A user; empty: the host's own."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a module, with all its descendants."""

    cpu_seconds: float
    memory_bytes: int
    threads: int
    processes: int
    open_files: int


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended. None of its descendants is left when this is reported."""

    reason: str
    """Wire-stable: `process_died:SIGSEGV`, `process_exited:3`, `memory_limit`, `cut_off:flood`, …"""
    status: int
    """The raw wait status."""
    sample: Sample | None = None
    """Its usage; the memory is its peak."""
    strays: int = 0
    """Descendants that it left behind and that were killed."""
    why: str = ""
    """Detail of why it was cut off, beyond the reason."""
    last_words: str = ""
    """Stack traces of its threads when it crashed."""
    blamed: bool = False
    """The process died with the zygote, which it had killed itself."""
    held_seconds: float = 0.0
    """The process died with the zygote, and its restart is delayed by so many seconds, to find the module that killed
    the zygote."""


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended that had been sent `finish`."""

    lingering: Lingering | None
    """The work it reported as still running; None when it did not answer."""
    killed: bool
    """The process, or one that it had started, did not end by itself."""
    death: Death


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A process that had to be killed after it was sent `finish` (`killed`), or is still running."""

    module_id: str
    pid: int
    since: dt.datetime
    lingering: Lingering | None
    killed: bool
