"""Lifecycles as tables: `(phase, trigger) -> phase`, with everything derived from them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from corral.errors import IllegalTransition

P = TypeVar("P", bound=enum.Enum)
T = TypeVar("T", bound=enum.Enum)


class Lifecycle(Generic[P, T]):
    """An immutable transition table with its initial and terminal phases.

    A phase without an exit must be listed as terminal and a terminal phase must have none: otherwise the
    constructor raises.
    """

    def __init__(
        self, *, name: str, initial: P, terminal: Iterable[P], transitions: Mapping[tuple[P, T], P]
    ) -> None:
        self.name = name
        self.initial = initial
        self.terminal = frozenset(terminal)
        self.transitions = dict(transitions)
        self.phases: tuple[P, ...] = tuple(type(initial))
        leaving = {phase for phase, _ in self.transitions}
        dead_ends = {phase for phase in self.phases if phase not in leaving}
        if dead_ends != self.terminal:
            raise ValueError(f"{name}: phases without exit {dead_ends} != terminal {self.terminal}")

    def allows(self, phase: P, trigger: T) -> bool:
        return (phase, trigger) in self.transitions

    def step(self, subject: str, phase: P, trigger: T, *, story: Iterable[str] = ()) -> P:
        """The next phase, or `IllegalTransition` with the subject's history."""
        target = self.transitions.get((phase, trigger))
        if target is None:
            raise IllegalTransition(subject, phase.name, trigger.name.lower(), story)
        return target

    def reachable(
        self, start: P | None = None, *, avoiding: P | None = None, without: T | None = None
    ) -> frozenset[P]:
        """Every phase that some sequence of triggers leads to, the start included; not by way of the phase `avoiding`,
        and not by the trigger `without`."""
        seen = {start or self.initial}
        frontier = list(seen)
        while frontier:
            phase = frontier.pop()
            for (source, trigger), target in self.transitions.items():
                if trigger is without:
                    continue
                if source is phase and target is not avoiding and target not in seen:
                    seen.add(target)
                    frontier.append(target)
        return frozenset(seen)

    def mermaid(self) -> str:
        """The diagram of the documentation, generated from the table."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.name}"]
        for (source, trigger), target in self.transitions.items():
            lines.append(f"    {source.name} --> {target.name}: {trigger.name.lower()}")
        lines += [f"    {phase.name} --> [*]" for phase in self.phases if phase in self.terminal]
        return "\n".join(lines)
