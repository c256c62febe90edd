"""Tiers of groups: those that others depend on come before them."""

from __future__ import annotations

from collections.abc import Callable

from corral.domain.groups.instance_records import GroupRecord


class DependencyTiers:
    """How many groups come before each one, by its longest chain of dependencies. These are without cycles when a document
    is accepted; a stored one may be older than that rule, and then the group at which a cycle closes counts as the first."""

    def __init__(self, group: Callable[[str], GroupRecord | None]) -> None:
        self._group = group
        self._known: dict[str, int] = {}

    def tier(self, name: str) -> int:
        path, open_groups = [name], {name}
        while path:
            waiting = [
                each for each in self._before(path[-1]) if each not in self._known and each not in open_groups
            ]
            if waiting:
                path.append(waiting[0])
                open_groups.add(waiting[0])
                continue
            done = path.pop()
            open_groups.discard(done)
            self._known[done] = max((self._known.get(each, -1) + 1 for each in self._before(done)), default=0)
        return self._known[name]

    def _before(self, name: str) -> list[str]:
        group = self._group(name)
        return [each.group for each in group.spec.depends_on] if group is not None else []
