"""The groups of a scenario: checked as `corral apply` checks them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from corral.controller.instances.group_apply import GivenDocument, check_set
from corral.controller.instances.group_writes import StoredGroups
from corral.domain.groups.group import GroupSpec, TemplateSelection
from corral.errors import Bug
from corral.simulation.scenario import GroupFile, Scenario

COMMAND: Final = ("simulated",)
"""Of every group: nothing is executed."""


class GroupFault(NamedTuple):
    """What is wrong with a group."""

    document: GroupFile | None
    """None: it is at `path` of the scenario."""
    path: tuple[str | int, ...]
    field: str
    """Its path in the document, with slashes; empty: it concerns the whole."""
    message: str


class CheckedGroups(NamedTuple):
    specs: Mapping[str, GroupSpec]
    faults: list[GroupFault]


def check_groups(scenario: Scenario, *, whole: bool = True) -> CheckedGroups:
    """The groups with the fields of their parents, and everything that is wrong with them. `whole`: no group is missing
    because its file could not be read; else nobody is told that a parent is."""
    given = [GivenDocument(each.place, each.body) for each in scenario.groups]
    checked = check_set(given, StoredGroups({}, {}), ())
    places = {each.place: each for each in scenario.groups}
    faults = [
        GroupFault(
            places.get(each.path),
            (),
            each.error.field or "",
            each.error.message + (f"; {each.error.hint}" if each.error.hint else ""),
        )
        for each in checked.faults
        if whole or each.error.field != "parent"
    ]
    for name in scenario.load:
        spec = checked.resolved.specs.get(name)
        if spec is not None and not spec.max_players:
            text = f"group '{name}' has no 'max_players'; say how many an instance takes"
            faults.append(GroupFault(None, ("load", name), "", text))
    return CheckedGroups(checked.resolved.specs, faults)


def resolved_groups(scenario: Scenario) -> dict[str, GroupSpec]:
    """The groups of a scenario that was read, without what concerns only the files of their instances."""
    checked = check_groups(scenario)
    if checked.faults:
        raise Bug(f"a scenario with faults was not refused: {checked.faults[0].message}")
    return {name: _without_files(spec) for name, spec in checked.specs.items()}


def _without_files(spec: GroupSpec) -> GroupSpec:
    """There are no templates, programs and modules in a simulation, and nothing is executed."""
    if spec.abstract:
        return spec
    return msgspec.structs.replace(
        spec,
        command=COMMAND,
        args=(),
        env={},
        variables={},
        variable_types={},
        strict_variables=False,
        templates=(),
        template_selection=TemplateSelection(),
        merge=(),
        patches=(),
        artifact=None,
        extensions=(),
        jvm=None,
    )
