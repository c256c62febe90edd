"""Names of signals, for people and reports."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGKILL`; `SIGRTMIN+6` for a real-time signal, which has no name of its own; `signal 32` for what is neither."""
    try:
        return signal.Signals(number).name
    except ValueError:
        real_time = number - signal.SIGRTMIN
        known = 0 < real_time <= signal.SIGRTMAX - signal.SIGRTMIN
        return f"SIGRTMIN+{real_time}" if known else f"signal {number}"
