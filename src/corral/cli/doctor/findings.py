"""Checks and their findings. A check looks at something, changes nothing, and says what it found and which command mends it."""

from __future__ import annotations

import enum
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from corral.errors import CorralError

T = TypeVar("T")
LONGEST_SECONDS: Final = 2.0
"""What a check may take; one that takes longer is not waited for."""


class Severity(enum.StrEnum):
    """The worst one first."""

    ERROR = "error"
    ADVICE = "advice"
    """It works, and could work better; or it could not be checked."""
    OK = "ok"


class Verdict(NamedTuple):
    severity: Severity
    found: str
    command: str = ""
    """It mends what was found, or shows more of it."""
    why: str = ""
    """In place of the check's own."""


ok = functools.partial(Verdict, Severity.OK)
advice = functools.partial(Verdict, Severity.ADVICE)
error = functools.partial(Verdict, Severity.ERROR)


Looks = Mapping[str, Callable[[], Verdict]]
"""Checks by their ids."""


class Finding(NamedTuple):
    """The verdict of a check on one subject: `controller`, `node:ID` or `group:NAME`."""

    id: str
    subject: str
    severity: Severity
    found: str
    why: str
    command: str


def findings(
    subject: str, looks: Looks, why: Mapping[str, str], *, again: str, seconds: float = LONGEST_SECONDS
) -> list[Finding]:
    """The findings of these checks. All of them run at the same time. `why` each of them matters: what happens
    when it is not as it should be. `again`: the command that repeats them, for those that only root can make."""
    until = time.monotonic() + seconds
    attempts = {
        id: Attempt(functools.partial(_verdict, look, again), name=id, until=until)
        for id, look in looks.items()
    }
    found = []
    for id, attempt in attempts.items():
        verdict = attempt.result() or advice("not checked: there was no answer in time", "", _SLOW)
        reason = "" if verdict.severity is Severity.OK else verdict.why or why[id]
        found.append(Finding(id, subject, verdict.severity, verdict.found, reason, verdict.command))
    return found


class Attempt(Generic[T]):
    """A call in a thread of its own, which has begun. The process may end while it hangs, on a disk of a network for one."""

    def __init__(self, call: Callable[[], T], *, name: str, until: float) -> None:
        self._found: list[T] = []
        self._until = until
        self._call = call
        self._thread = threading.Thread(target=self._run, name=f"doctor/look/{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._found.append(self._call())

    def result(self) -> T | None:
        """None: it has not ended in time."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        return self._found[0] if self._found else None


def _verdict(look: Callable[[], Verdict], again: str) -> Verdict:
    try:
        return look()
    except CorralError as refusal:  # by the rules that controller and daemon have for the same thing
        return error(refusal.message, "", refusal.hint or "")
    except PermissionError as failure:
        command = f"sudo {again}" if os.geteuid() else ""
        what = f"not checked: no permission to read {failure.filename or 'it'}"
        return advice(what, command, "Only its owner and root may look at it.")
    except Exception as failure:  # a check that fails is no reason to withhold the others
        return advice(f"not checked: {str(failure) or type(failure).__name__}", "", _STRANGE)


_SLOW: Final = "What is looked at is slow or hangs, such as a network disk, an account service or a program."
_STRANGE: Final = "Something here is not as this check expects it to be."
