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
"""Takes what a module says without an answer. Short: it runs on the host's loop. `OverLimit` for one that
holds more than it may."""


class OverLimit(Exception):
    """What a module sent holds more than it may; the message completes "it"."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a module's process may use, its descendants included for `processes`."""

    memory_mb: int
    processes: int
    """Processes and threads."""
    nice: int = DEFAULT_NICE
    """How far behind the host it stands for the CPU."""
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
    """How a process ended. Nothing of it is left when this is told."""

    reason: str
    """Wire-stable: `process_died:SIGSEGV`, `process_exited:3`, `memory_limit`, `cut_off:flood`, …"""
    status: int
    """The raw wait status."""
    sample: Sample | None = None
    """What it had used; the memory is the most it ever used."""
    strays: int = 0
    """Descendants that it left and that were killed."""
    why: str = ""
    """What it did to be cut off, where there is more to say than the reason."""
    last_words: str = ""
    """Where its threads were when it crashed."""
    blamed: bool = False
    """It died with the zygote, and that was its own doing."""
    held_seconds: float = 0.0
    """It died with the zygote, and is to be started so much later than others: whose doing it was is being found
    out."""


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a process that was told to finish ended."""

    lingering: Lingering | None
    """What it said would keep it alive; None when it did not answer."""
    killed: bool
    """It, or something that it had started, did not end by itself."""
    death: Death


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A process that had to be killed after it was told to finish (`killed`), or is not gone yet."""

    module_id: str
    pid: int
    since: dt.datetime
    lingering: Lingering | None
    killed: bool
