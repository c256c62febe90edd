"""Validation of settings in a child process: whatever a schema and a value cost, the host is not blocked.

The cost is counted in CPU time of the child, which does not depend on the load of the machine: only that
counts against them. A child that is not done after some wall time means a busy machine.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import threading
from typing import Final

import msgspec

import corral
from corral.errors import Code, Retryable
from corral.modules.manifest.settings_validator import EXIT_MEMORY, ValidationRequest, ValidationResult

CPU_SECONDS: Final = 3
WALL_SECONDS: Final = 30.0
_PROGRAM: Final = (
    "import sys; seconds = int(sys.argv.pop(1)); sys.path[:0] = sys.argv[1:]; "
    "from corral.modules.manifest.settings_validator import validate_from_stdin; validate_from_stdin(seconds)"
)
_ITS_OWN: Final = frozenset({signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})
"""Signals that end a child that computes too long, or gets no more memory; any other signal came from
outside."""
_turn: Final = threading.Lock()
"""One child at a time: this bounds the cost of many requests together, too."""
MOST_AT_ONCE: Final = 3
_places: Final = threading.BoundedSemaphore(MOST_AT_ONCE)
"""Each waiting caller occupies a thread, of which the host has few."""


class TooSlow(Exception):
    """No result within the CPU time or the memory limit."""


def validate_in_child(question: ValidationRequest, *, wall_seconds: float = WALL_SECONDS) -> ValidationResult:
    """Blocking, for a bounded time; TooSlow. Retryable when no process can be started, or too many wait for
    one, or the machine is too busy to answer in `wall_seconds`."""
    request = msgspec.json.encode(question)
    if not _places.acquire(blocking=False):
        raise _unavailable("too many settings wait to be checked")
    try:
        with _turn:
            answer = _asked(request, wall_seconds)
    except OSError as error:
        raise _unavailable(str(error)) from error
    finally:
        _places.release()
    return msgspec.json.decode(answer, type=ValidationResult)


def _asked(request: bytes, wall_seconds: float) -> bytes:
    import jsonschema_rs  # with the first check: see settings_validator

    packages = (corral.__file__, jsonschema_rs.__file__, msgspec.__file__)
    roots = dict.fromkeys(str(pathlib.Path(package).parents[1]) for package in packages)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(CPU_SECONDS), *roots],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
    ) as child:
        try:
            answer, errors = child.communicate(request, timeout=wall_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            raise _unavailable(f"the machine is too busy, no verdict within {wall_seconds:g} s") from None
    if child.returncode == EXIT_MEMORY or -child.returncode in _ITS_OWN:
        raise TooSlow
    if child.returncode < 0:
        raise _unavailable(f"its process was ended by signal {-child.returncode}")
    if child.returncode:
        raise _unavailable(errors.decode(errors="replace").strip()[-300:])
    return answer


def _unavailable(why: str) -> Retryable:
    return Retryable(
        Code.SPAWN_FAILED,
        f"the settings of the module cannot be checked now: {why}",
        hint="nothing was changed; try again in a moment",
        retry_after=5.0,
    )
