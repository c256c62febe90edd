"""Contents of a folder as what an import makes of them: group documents, settings, copies of static directories."""

from __future__ import annotations

import pathlib
import re
import shlex
from typing import Any, Final, NamedTuple

from corral.cli.universe.folder import FoundDirectory, UniverseFolder
from corral.domain.universe.configurations import MappedConfiguration, map_configuration
from corral.domain.universe.field_reports import (
    FieldAction,
    FieldFault,
    FieldReport,
    name_faults,
)
from corral.domain.universe.node_files import map_database, map_node_config

_ORDINAL: Final = re.compile(r"(?P<group>.+)-[1-9][0-9]{0,8}")
DATA_DIRECTORY: Final = "/var/lib/corral/daemon"


class StaticCopy(NamedTuple):
    """A static directory, and the instance that it belongs to."""

    source: str
    group: str
    """Empty: no static configuration has its name."""
    instance: str
    nodes: list[str]
    command: str
    path: pathlib.Path


class ImportPlan(NamedTuple):
    configurations: list[MappedConfiguration]
    reports: list[FieldReport]
    faults: list[FieldFault]
    copies: list[StaticCopy]
    controller: dict[str, Any]
    """Settings, nested as in the file of a controller."""
    daemon: dict[str, Any]
    commands: list[str]
    has_database: bool


def import_plan(folder: UniverseFolder) -> ImportPlan:
    """Everything that can be said without the controller. Faults do not end it: all of them are found."""
    configurations = [map_configuration(each.file, each.value) for each in folder.configurations]
    plan = ImportPlan(
        configurations, [], list(folder.faults), [], {}, {}, [], has_database=folder.database is not None
    )
    for found in (
        map_node_config(folder.config.file, folder.config.value) if folder.config else None,
        map_database(folder.database.file, folder.database.value) if folder.database else None,
    ):
        if found is not None:
            plan.reports.extend(found.reports)
            plan.faults.extend(found.faults)
            plan.controller.update(found.controller)
            plan.daemon.update(found.daemon)
            plan.commands.extend(found.commands)
    for each in configurations:
        plan.reports.extend(each.reports)
        plan.faults.extend(each.faults)
    names = ((each.file, each.name) for each in configurations if each.name)
    plan.faults.extend(name_faults("group", names, "give one of them another name"))
    static = {each.name: each for each in configurations if each.static}
    for source in folder.static:
        copy = _copy(source, static)
        plan.copies.append(copy)
        plan.reports.append(_copy_report(copy))
    plan.reports.extend(folder.reports)
    return plan


def _copy(source: FoundDirectory, static: dict[str, MappedConfiguration]) -> StaticCopy:
    """Of a configuration's name the first instance's; `NAME-2` is that of the second."""
    match = _ORDINAL.fullmatch(source.name)
    if source.name in static:
        group, instance = source.name, f"{source.name}-1"
    elif match and match["group"] in static:
        group, instance = match["group"], source.name
    else:
        return StaticCopy(source.source, "", "", [], "", source.path)
    path = shlex.quote(str(source.path.absolute()))
    command = f'cp -aT {path} "$DATA/static/{instance}"'
    nodes = list(static[group].document.get("nodes", []))
    return StaticCopy(source.source, group, instance, nodes, command, source.path)


def _copy_report(copy: StaticCopy) -> FieldReport:
    if not copy.group:
        why = "no static configuration has its name"
        return FieldReport(file=copy.source, field="", action=FieldAction.DROPPED, note=why)
    to = f"static directory of {copy.instance}"
    note = "copied with --node, else by the command below"
    return FieldReport(file=copy.source, field="", action=FieldAction.MAPPED, to=to, note=note)
