"""What a service needs of the process's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from corral.domain.records import LogRecord
from corral.system.log_ring import LogRing


class LogPort(Protocol):
    """The running log: its newest records, its level, and who else shall see each record."""

    @property
    def ring(self) -> LogRing: ...

    def set_level(self, level: str) -> None:
        """Switch at run time; "" goes back to the configured level."""

    def add_sink(self, sink: Callable[[LogRecord], None]) -> Callable[[], None]:
        """Hand every later record to `sink`, in the thread that logged it; returns how to stop it."""
