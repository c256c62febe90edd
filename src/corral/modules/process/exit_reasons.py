"""Reasons why a module process ended, as they are stored and reported, and its output from a crash."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Final

from corral.sdk.runner.zygote_messages import EXIT_HOST_GONE, EXIT_MEMORY, MEMORY_LIMIT

FLOOD: Final = "cut_off:flood"
NOT_READING: Final = "cut_off:not_reading"
BAD_FRAME: Final = "cut_off:bad_frame"
SOCKET_CLOSED: Final = "cut_off:socket_closed"
ZYGOTE_LOST: Final = "zygote_lost"
"""What all modules are forked from is gone, and they with it. Nobody is to blame, unless `Death.blamed` says so."""

_EXITS: Final = {EXIT_MEMORY: MEMORY_LIMIT, EXIT_HOST_GONE: SOCKET_CLOSED}
_STARVED: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
"""What native code that gets no memory dies of, and what the kernel sends when there is none left."""
_NEAR: Final = 0.75
"""Of the limit, in memory that was really used: stacks count against it whether they are used or not."""


def ended_for(ours: str, zygotes: str, status: int) -> str:
    """Why a process was ended, by what this host cut it off for and what the zygote ended it for; empty when it
    ended by itself. A socket that closed may be but the first that is seen of its end, however long the rest
    takes on a busy machine: it counts only for what had to be killed and the zygote had not ended already."""
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if ours == SOCKET_CLOSED and (zygotes or not killed):
        return zygotes
    return ours or zygotes


def death_reason(status: int, *, told: str, peak_bytes: int, memory_bytes: int) -> str:
    """`told` is why somebody on our side ended it; it goes before what the kernel says."""
    if told:
        return told
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in _STARVED and peak_bytes >= memory_bytes * _NEAR:
            return MEMORY_LIMIT
        return f"process_died:{_signal_name(number)}"
    code = os.waitstatus_to_exitcode(status)
    return _EXITS.get(code) or f"process_exited:{code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal


_WORDS_BYTES: Final = 16 * 1024


def crash_output_file() -> int:
    """In memory, for what a crashing process says; it cannot be made to hold more."""
    words = os.memfd_create("corral-last-words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(words, _WORDS_BYTES)
    fcntl.fcntl(words, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return words


def read_crash_output(words: int) -> str:
    """The file is shared with the process: its position is wherever that wrote last."""
    return os.pread(words, _WORDS_BYTES, 0).decode(errors="replace").strip("\0").strip()
