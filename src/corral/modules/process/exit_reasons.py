"""Reasons why a module process ended, as they are stored and reported, and its output from a crash."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Final

from corral.sdk.runner.zygote_messages import EXIT_HOST_GONE, EXIT_MEMORY, MEMORY_LIMIT
from corral.system.signals import signal_name

FLOOD: Final = "cut_off:flood"
NOT_READING: Final = "cut_off:not_reading"
BAD_FRAME: Final = "cut_off:bad_frame"
SOCKET_CLOSED: Final = "cut_off:socket_closed"
ZYGOTE_LOST: Final = "zygote_lost"
"""The zygote is gone, and all modules with it. No module is blamed, unless `Death.blamed` is set."""

_EXITS: Final = {EXIT_MEMORY: MEMORY_LIMIT, EXIT_HOST_GONE: SOCKET_CLOSED}
_STARVED: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
"""Signals that native code dies of when it gets no memory, and what the kernel sends when there is none
left."""
_NEAR: Final = 0.75
"""Share of the limit in memory really used: stacks count against the limit whether they are used or not."""


def ended_for(ours: str, zygotes: str, status: int) -> str:
    """Why a process was ended, from why this host cut it off and why the zygote ended it; empty when it ended
    by itself. A closed socket may be only the first sign of its end, however long the rest takes on a busy
    machine: it counts only for a process that had to be killed and that the zygote had not ended already."""
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if ours == SOCKET_CLOSED and (zygotes or not killed):
        return zygotes
    return ours or zygotes


def death_reason(status: int, *, forced: str, peak_bytes: int, memory_bytes: int) -> str:
    """The reason of a death. `forced` is why the host ended the process; it takes precedence over the wait
    status."""
    if forced:
        return forced
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in _STARVED and peak_bytes >= memory_bytes * _NEAR:
            return MEMORY_LIMIT
        return f"process_died:{signal_name(number)}"
    code = os.waitstatus_to_exitcode(status)
    return _EXITS.get(code) or f"process_exited:{code}"


_WORDS_BYTES: Final = 16 * 1024


def crash_output_file() -> int:
    """A file in memory for the output of a crashing process; its size is fixed."""
    words = os.memfd_create("corral-last-words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(words, _WORDS_BYTES)
    fcntl.fcntl(words, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return words


def read_crash_output(words: int) -> str:
    """Read the file, which is shared with the process: its position is wherever the process wrote last."""
    return os.pread(words, _WORDS_BYTES, 0).decode(errors="replace").strip("\0").strip()
