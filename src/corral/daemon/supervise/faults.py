"""Faults of ours while a run is supervised: their count, the pause between tries, and when to give up."""

from __future__ import annotations

import os
from typing import Final

import structlog

from corral.daemon.runs.run import Run
from corral.errors import Bug, CorralError, counted
from corral.system.aio.backoff import doubled

_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_TRIES: Final = 3
_FORGOTTEN_SECONDS: Final = 600.0
"""A fault that long ago counts no more."""
_log = structlog.get_logger("corral.daemon.supervise")


class Faults:
    """Faults of one run. Each is logged; its traceback once a run."""

    def __init__(self) -> None:
        self.count = 0
        self.error = Bug("its supervision failed")
        self._run = ""
        self._until = 0.0
        self._last = 0.0

    def add(self, run: Run, error: Exception, *, now: float) -> None:
        if run.name != self._run or now - self._last > _FORGOTTEN_SECONDS:
            self.count, self._run = 0, run.name
            self._until = run.times.start_deadline(now, run.order.startup_timeout_seconds)
        self.count, self._last = self.count + 1, now
        kind = _kind(error)
        if isinstance(error, CorralError):
            self.error = Bug(kind)
        else:
            self.error = Bug(
                f"{kind} while it was supervised, {counted(self.count, 'time')}; the node's log says where"
            )
        if self.count == 1 and not isinstance(error, CorralError):
            _log.error("supervision.failed", run=run.name, exc_info=error)
        else:
            _log.error("supervision.failed", run=run.name, reason=kind, count=self.count)

    @property
    def too_many(self) -> bool:
        """Too many faults; for a run that was never ready also when the time of its start is up."""
        return self.count >= _TRIES or self._last >= self._until

    @property
    def pause(self) -> float:
        return doubled(_RETRY_SECONDS, self.count - _TRIES, longest=_LONGEST_RETRY_SECONDS)


def _kind(error: Exception) -> str:
    """The kind of an error. The text of a foreign error is left out: it may hold a secret."""
    if isinstance(error, CorralError):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return f"{type(error).__name__} ({os.strerror(error.errno)})"
    return type(error).__name__
