"""The signal for dumps (`kill -USR1`) while a command is starting: it would end the process until a service handles it.
Imports next to nothing, so that it takes effect as early as possible."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Final

_LONG_LIVED: Final = frozenset({"controller", "daemon", "up"})


def survive_dump_signal(args: Sequence[str] | None = None) -> None:
    """For a command that runs for long, ignore the signal by a handler, which programs that it starts do not
    inherit."""
    if not _LONG_LIVED.isdisjoint(sys.argv[1:] if args is None else args):
        with contextlib.suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
