"""Validation in a process of its own, with a deadline: whatever a schema and a value cost, the host goes on."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading
from typing import Final

import jsonschema_rs
import msgspec

import corral
from corral.errors import Code, Retryable
from corral.modules.settings_validation import EXIT_MEMORY, Question, Verdict

SECONDS: Final = 3
_TURN_SECONDS: Final = 30.0
_PROGRAM: Final = (
    "import sys; seconds = int(sys.argv.pop(1)); sys.path[:0] = sys.argv[1:]; "
    "from corral.modules.settings_validation import answer_one_question; answer_one_question(seconds)"
)
_turn: Final = threading.Lock()
"""One child at a time: what many questions cost together is bounded, too."""


class TooSlow(Exception):
    """There is no verdict within the time or the memory that there is for one."""


def verdict_in_child(question: Question) -> Verdict:
    """Blocking, for a bounded time; TooSlow. Retryable when no process can be had, or too many wait for one."""
    request = msgspec.json.encode(question)
    if not _turn.acquire(timeout=_TURN_SECONDS):
        raise _unavailable("too many settings wait to be checked")
    try:
        answer = _asked(request)
    except OSError as error:
        raise _unavailable(str(error)) from error
    finally:
        _turn.release()
    return msgspec.json.decode(answer, type=Verdict)


def _asked(request: bytes) -> bytes:
    packages = (corral.__file__, jsonschema_rs.__file__, msgspec.__file__)
    roots = dict.fromkeys(str(pathlib.Path(package).parents[1]) for package in packages)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(SECONDS), *roots],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
    ) as child:
        try:
            answer, said = child.communicate(request, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise TooSlow from None
    if child.returncode == EXIT_MEMORY or child.returncode < 0:
        raise TooSlow
    if child.returncode:
        raise _unavailable(said.decode(errors="replace").strip()[-300:])
    return answer


def _unavailable(why: str) -> Retryable:
    return Retryable(
        Code.SPAWN_FAILED,
        f"the settings of the module cannot be checked now: {why}",
        hint="nothing was changed; try again in a moment",
        retry_after=5.0,
    )
