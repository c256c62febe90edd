"""The users of a template: groups, other templates, the plans of live instances, and revisions of groups.

The results for all templates are computed together, once per commit: a list of templates needs them for each,
and scanning every group and instance for each would block the loop.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from corral.controller.instances.plans import plans_in_use
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.group import GroupSpec
from corral.domain.templates import group_of

T = TypeVar("T")

Names = defaultdict[str, set[str]]


def groups_using(state: ClusterState, name: str) -> list[str]:
    """The groups whose next start may use this template: named by the group, by its template group's name, or
    as a parent of a used one."""
    naming = _NAMING.of(state)
    found: set[str] = set()
    for template in _with_children(naming.children, name):
        found |= naming.direct.get(template, set()) | naming.grouped.get(group_of(template), set())
    return sorted(found)


def templates_of(state: ClusterState, spec: GroupSpec) -> set[str]:
    """The templates that a group names: in its chain, as a choice, or by the name of their template group."""
    grouped = template_groups_of(spec)
    return _named(spec) | {each.name for group in grouped for each in state.templates.in_group(group)}


def template_groups_of(spec: GroupSpec) -> set[str]:
    """The template groups that a group selects from, whatever lies in them."""
    selection = spec.template_selection
    return {choice.name for choice in (*selection.all_in_groups, *selection.one_in_groups)}


def users_of(state: ClusterState, name: str) -> list[str]:
    """The users that could not start without it, for a refusal: `group 'x'`, `template 'y'`, …"""
    naming, running = _NAMING.of(state), _RUNNING.of(state)
    groups = set(naming.direct.get(name, ()))
    if len(state.templates.in_group(group_of(name))) == 1:
        groups |= naming.grouped.get(group_of(name), set())  # it is the last one of their template group
    return [
        *(f"group '{group}'" for group in sorted(groups)),
        *(f"template '{child}'" for child in sorted(naming.children.get(name, set()) - {name})),
        *(f"a live instance of '{group}'" for group in sorted(running.groups.get(name, ()))),
        *(
            f"revision {pinned} of group '{group}', which is pinned"
            for group, pinned in sorted(running.pinned.get(name, ()))
        ),
    ]


def hashes_in_use(state: ClusterState, name: str) -> frozenset[str]:
    """The versions of a template that live instances use, for a restart on the node needs them again, and those that kept
    revisions of groups name."""
    return frozenset(_RUNNING.of(state).hashes.get(name, ()))


class _Naming:
    """The names in the documents of groups and templates."""

    def __init__(self, state: ClusterState) -> None:
        self.direct: Names = defaultdict(set)
        """Template → groups that name it."""
        self.grouped: Names = defaultdict(set)
        """Template group → groups that use templates of it."""
        self.children: Names = defaultdict(set)
        """Template → templates whose current version has it as a parent."""
        for group, stored in state.groups.items():
            for name in _named(stored.record.spec):
                self.direct[name].add(group)
            for selected in template_groups_of(stored.record.spec):
                self.grouped[selected].add(group)
        for template in state.templates:
            for parent in template.record.version().settings.parents:
                self.children[parent].add(template.record.name)


class _Running:
    """The names in the plans of live instances, and in revisions."""

    def __init__(self, state: ClusterState) -> None:
        self.hashes: Names = defaultdict(set)
        self.groups: Names = defaultdict(set)
        for plan in plans_in_use(state):
            for template in plan.templates:
                self.hashes[template.name].add(template.hash)
                self.groups[template.name].add(plan.group)
        self.pinned: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        """Template → pinned revisions, as group and number, that name it."""
        for stored in state.revisions:
            revision = stored.record
            group = state.groups.find(revision.group)
            pinned = group is not None and group.record.pinned_revision == revision.number
            for template in revision.pins.templates:
                self.hashes[template.name].add(template.hash)
                if pinned:
                    self.pinned[template.name].add((revision.group, revision.number))


class _OncePerCommit(Generic[T]):
    """A result about a state, cached until its next commit."""

    def __init__(self, work_out: Callable[[ClusterState], T]) -> None:
        self._work_out = work_out
        self._known: weakref.WeakKeyDictionary[ClusterState, tuple[int, T]] = weakref.WeakKeyDictionary()

    def of(self, state: ClusterState) -> T:
        number, answer = self._known.get(state, (-1, None))
        if answer is None or number != state.number:
            answer = self._work_out(state)
            self._known[state] = (state.number, answer)
        return answer


_NAMING: Final = _OncePerCommit(_Naming)
_RUNNING: Final = _OncePerCommit(_Running)


def _named(spec: GroupSpec) -> set[str]:
    selection = spec.template_selection
    return {*spec.templates, *(choice.name for choice in (*selection.all_of, *selection.one_of))}


def _with_children(children: Names, name: str) -> Iterator[str]:
    """A template and all that have it as a direct or indirect parent, each once."""
    seen, waiting = {name}, [name]
    while waiting:
        template = waiting.pop()
        yield template
        new = children.get(template, set()) - seen
        seen |= new
        waiting += new
