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
"""Of a module with the default weight: about a third of what its host gets."""
_STEP: Final = 1.25
_LOWEST: Final = 19


def nice_of(weight: int) -> int:
    """How much nicer than its host a module of this weight is, 0 to 19; never less: whatever a manifest says,
    no module goes before its host. A weight of 0 is the default."""
    steps = math.log((weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT, _STEP)
    return max(0, min(_LOWEST, DEFAULT_NICE - round(steps)))


Serve = Callable[[str, msgspec.Raw], Awaitable[object]]
"""Answers a module's call: the body of the answer, or a `CorralError` that the module gets as a failure."""
Notice = Callable[[str, msgspec.Raw], None]
"""Handles a module's notice, which has no answer. Short: it runs on the host's loop. `OverLimit` for one that
holds more than it may."""


class OverLimit(Exception):
    """What a module sent holds more than it may; the message completes "it"."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a module's process may use, its descendants included for `processes`."""

    memory_mb: int
    processes: int
    """Processes and threads."""
    nice: int = DEFAULT_NICE
    """Its `nice` value on top of the host's."""
    run_as: str = ""
    """A user; empty: the host's own."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a module uses, with all its descendants."""

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
    """What it had used; the memory is the most it ever used."""
    strays: int = 0
    """Descendants that it left and that were killed."""
    why: str = ""
    """Detail of why it was cut off, where there is more than the reason."""
    last_words: str = ""
    """Stack traces of its threads when it crashed."""
    blamed: bool = False
    """It died with the zygote, which it had killed itself."""
    held_seconds: float = 0.0
    """It died with the zygote, and is started so many seconds later than others, to find the module that killed
    it."""


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended that had been sent `finish`."""

    lingering: Lingering | None
    """What it reported as still running; None when it did not answer."""
    killed: bool
    """It, or a process that it had started, did not end by itself."""
    death: Death


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A process that had to be killed after it was sent `finish` (`killed`), or is still running."""

    module_id: str
    pid: int
    since: dt.datetime
    lingering: Lingering | None
    killed: bool
