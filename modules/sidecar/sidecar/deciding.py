"""What is to be done beside one instance; nothing is done here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from corral.sdk import SideProcess
from sidecar.rules import Rule

MOST_LOOKS = 30


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Names of processes to stop, and rules whose process is missing."""

    stop: tuple[str, ...] = ()
    missing: tuple[Rule, ...] = ()


def decide(rules: Mapping[str, Rule], there: Iterable[SideProcess], changed: Collection[str]) -> Decision:
    """`there` is what runs beside the instance, and what ended there; `changed` are the names of rules that
    were others when their process was started."""
    known = {process.name: process for process in there}
    stop = [
        name
        for name, process in known.items()
        if process.running
        and (name not in rules or name in changed or process.command != rules[name].command)
    ]
    missing = [
        rule for name, rule in rules.items() if name in stop or _is_missing(rule, known.get(name), changed)
    ]
    return Decision(stop=tuple(stop), missing=tuple(missing))


def _is_missing(rule: Rule, process: SideProcess | None, changed: Collection[str]) -> bool:
    if process is None:
        return True
    return not process.running and (rule.restart or rule.name in changed or process.command != rule.command)


class Patience:
    """How often one process was started, told in looks: it is tried again after 1, 2, 4, … at most 30 of
    them, and all is forgiven once it was seen running 30 times."""

    def __init__(self) -> None:
        self._tries = 0
        self._wait = 0
        self._steady = 0

    def may_start(self) -> bool:
        """It is missing. True: start it now; this counts as a try."""
        if self._wait > 0:
            self._wait -= 1
            return False
        self._wait = min(2**self._tries, MOST_LOOKS)
        self._tries += 1
        self._steady = 0
        return True

    def seen_running(self) -> None:
        self._steady += 1
        if self._steady >= MOST_LOOKS:
            self._tries = self._wait = 0
