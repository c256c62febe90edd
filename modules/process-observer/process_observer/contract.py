"""What other modules on the node may ask: capability `corral.node.processes`."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

import msgspec


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance used until `at`: its main process and all that descends from it."""

    instance_id: str
    group: str
    pid: int
    at: dt.datetime
    cpu_seconds: float = 0.0
    """Since the instance was started; ended children count as soon as their parents have waited for them."""
    cpu_percent: float | None = None
    """Of one core, between the last two looks; None until there were two."""
    resident_bytes: int = 0
    """Pages that processes share are counted for each of them."""
    threads: int = 0
    processes: int = 0
    read_bytes: int | None = None
    """From disks; None where the system does not let us see it."""
    written_bytes: int | None = None


class NodeProcesses(Protocol):
    """The contract of `corral.node.processes` 1.0."""

    async def observe(self, *, instance_id: str) -> ProcessUsage | None:
        """The newest figures; None for an instance that does not run here."""
        ...

    async def all(self) -> list[ProcessUsage]:
        """Those of all instances that run here, by id."""
        ...
