"""Who names a template: groups, other templates, and the plans that live instances run by."""

from __future__ import annotations

from collections.abc import Iterator

from corral.controller.cluster_state import ClusterState
from corral.controller.instances.plan_use import plans_in_use
from corral.domain.groups import GroupSpec
from corral.domain.templates import group_of


def groups_using(state: ClusterState, name: str) -> list[str]:
    """The groups whose next start may lay this template: by its name, or by its template group's."""
    found = []
    for group, stored in state.groups.items():
        selection = stored.record.spec.template_selection
        template_groups = {choice.name for choice in (*selection.all_in_groups, *selection.one_in_groups)}
        if name in _named(stored.record.spec) or (group_of(name) and group_of(name) in template_groups):
            found.append(group)
    return found


def users_of(state: ClusterState, name: str) -> list[str]:
    """Who could not start any more without it, for a refusal: `group 'x'`, `template 'y'`, …"""
    return [*_groups_needing(state, name), *_children(state, name), *_running(state, name)]


def hashes_in_use(state: ClusterState, name: str) -> frozenset[str]:
    """The versions of a template by which live instances run; a restart on the node needs them again."""
    return frozenset(
        template.hash for plan in plans_in_use(state) for template in plan.templates if template.name == name
    )


def _named(spec: GroupSpec) -> set[str]:
    selection = spec.template_selection
    return {*spec.templates, *(choice.name for choice in (*selection.all_of, *selection.one_of))}


def _groups_needing(state: ClusterState, name: str) -> Iterator[str]:
    """A group that takes what a template group has needs the last one of it."""
    group = group_of(name)
    last = bool(group) and len(state.templates.in_group(group)) == 1
    for id in groups_using(state, name):
        if last or name in _named(state.groups.require(id).record.spec):
            yield f"group '{id}'"


def _children(state: ClusterState, name: str) -> Iterator[str]:
    for id, stored in state.templates.items():
        if id != name and name in stored.record.version().settings.parents:
            yield f"template '{id}'"


def _running(state: ClusterState, name: str) -> Iterator[str]:
    groups = {
        plan.group
        for plan in plans_in_use(state)
        if any(template.name == name for template in plan.templates)
    }
    for group in sorted(groups):
        yield f"a live instance of '{group}'"
