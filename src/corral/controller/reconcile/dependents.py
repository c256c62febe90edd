"""Which groups may wait for the instances of another."""

from __future__ import annotations

from collections.abc import Collection

from corral.domain.groups.group import GroupSpec
from corral.domain.planning.group_plans import needed


class Dependents:
    """By group, those that may wait for its instances before they start any."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[str]] = {}
        self._dependencies: dict[str, frozenset[str]] = {}

    def note(self, name: str, spec: GroupSpec | None) -> None:
        """The present document of a group; None: it is gone."""
        now = needed(spec) if spec is not None else frozenset()
        before = self._dependencies.get(name, frozenset())
        for other in before - now:
            self._dependents[other].discard(name)
        for other in now - before:
            self._dependents.setdefault(other, set()).add(name)
        if now:
            self._dependencies[name] = now
        else:
            self._dependencies.pop(name, None)

    def of(self, group: str) -> Collection[str]:
        return self._dependents.get(group, ())
