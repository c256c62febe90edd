"""Class of a crash, from the exit and the last console lines, and a signature that groups equal crashes.

Pure. The words are those that common programs print; the last known line decides, because what is printed last is
nearest to the cause.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from corral.domain.groups.crash_records import CrashClass
from corral.sdk.runtime import RunExit
from corral.system.signals import signal_name

_LONGEST_LINE: Final = 1000
_SIGNATURE_LINES: Final = 3
_WORDS: Final = (
    (
        CrashClass.OOM,
        (
            "java.lang.outofmemoryerror",
            "out of memory",
            "cannot allocate memory",
            "memoryerror",
            "std::bad_alloc",
        ),
    ),
    (
        CrashClass.STACK_OVERFLOW,
        (
            "stackoverflowerror",
            "stack overflow",
            "maximum recursion depth exceeded",
            "maximum call stack size",
        ),
    ),
    (
        CrashClass.PORT_IN_USE,
        (
            "address already in use",
            "failed to bind to port",
            "eaddrinuse",
            "bindexception",
            "port is already in use",
        ),
    ),
    (
        CrashClass.MISSING_CLASS,
        (
            "classnotfoundexception",
            "noclassdeffounderror",
            "could not find or load main class",
            "modulenotfounderror",
            "no module named",
            "cannot find module",
        ),
    ),
    (
        CrashClass.MISSING_FILE,
        (
            "no such file or directory",
            "filenotfoundexception",
            "filenotfounderror",
            "nosuchfileexception",
            "unable to access jarfile",
            "cannot open shared object file",
            "enoent",
        ),
    ),
)

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PATH: Final = re.compile(r"(?:/[\w.+@-]+){2,}/?")
_HEX: Final = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b")
_NUMBER: Final = re.compile(r"\d+")


def classify(exit: RunExit, tail: Sequence[str], *, ready: bool = True) -> CrashClass:
    """The kind of a crash; `ready` False: it was ended because it did not become ready."""
    if not ready:
        return CrashClass.NEVER_READY
    if exit.oom_killed:
        return CrashClass.OOM
    for line in reversed(tail):
        lowered = line[:_LONGEST_LINE].lower()
        for kind, words in _WORDS:
            if any(word in lowered for word in words):
                return kind
    if not exit.known:
        return CrashClass.UNKNOWN
    if exit.signal:
        return CrashClass.SIGNAL
    return CrashClass.CLEAN_EXIT if exit.code == 0 else CrashClass.UNKNOWN


def signature(kind: CrashClass, exit: RunExit, tail: Sequence[str]) -> str:
    """Equal for crashes that differ only in numbers, addresses and paths."""
    ending = f"signal {exit.signal}" if exit.signal else f"code {exit.code}"
    lines = [normalised(line) for line in tail if line.strip()][-_SIGNATURE_LINES:]
    text = "\n".join([kind.value, ending if exit.known else "unknown", *lines])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def normalised(line: str) -> str:
    """The line without what differs from one crash to the next of the same kind."""
    text = _ESCAPES.sub("", line[:_LONGEST_LINE]).strip()
    return _NUMBER.sub("N", _HEX.sub("X", _PATH.sub("PATH", text)))


def ending(exit: RunExit) -> str:
    """The exit in words for an operator."""
    if exit.host_rebooted:
        return "ended with the host"
    if not exit.known:
        return f"ended, nobody knows how ({exit.reason or 'no witness is left'})"
    if exit.oom_killed:
        return "was killed by the kernel for want of memory"
    if exit.signal:
        core = ", core dumped" if exit.core_dumped else ""
        return f"was ended by {signal_name(exit.signal)}{core}"
    return f"exited with code {exit.code}"
