"""Groups as Universe's configurations, and what a configuration changes of a group that is there.

The other direction is `configurations`: what it makes of a configuration, this gives back. Fields of a group that no
configuration has are not shown, and stay when one is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from corral.domain.groups.group import PRIMARY, GroupSpec, PortSpec, TemplateChoice, TemplateSelection
from corral.domain.groups.variables import INSTANCE_GROUPS
from corral.domain.universe.command_lines import SHELL, split_command
from corral.domain.universe.configurations import (
    INSTANCE_GROUPS_LABEL,
    MappedConfiguration,
    map_configuration,
)
from corral.domain.universe.field_reports import FieldFault
from corral.domain.universe.template_choices import FIELD as TEMPLATES
from corral.domain.universe.template_choices import GROUPED, NAMED, OVERRIDE

LOCAL: Final = "local"
"""The one storage of templates, as Universe calls it."""
_HUNDRED: Final = 100
_PLAIN: Final = ("runtime", "static", "memory_mb", "cpu", "min", "nodes", "host_address", "substitute")
"""Fields that a configuration says all of."""
_MAPS: Final = ("env", "properties")
_STATIC_FILES: Final = "Corral replaces %NAME% in files that it lays, and lays none in a static directory"


def configuration_of(spec: GroupSpec) -> dict[str, Any]:
    """The configuration that describes a group, as far as one can."""
    selection = spec.template_selection
    return {
        "name": spec.name,
        "runtime": spec.runtime,
        "command": command_line((*spec.command, *spec.args)),
        "static": spec.static,
        "ramMB": spec.memory_mb,
        "cpu": round(spec.cpu * _HUNDRED, 6),
        "instanceGroups": _instance_groups(spec),
        "nodes": list(spec.nodes),
        "hostAddress": spec.host_address,
        "availablePorts": _range(spec.ports.get(PRIMARY)),
        "minimumServiceCount": spec.min,
        "environmentVariables": spec.env,
        TEMPLATES: {
            **{field: [_named(each) for each in getattr(selection, to)] for field, to in NAMED.items()},
            **{field: [_grouped(each) for each in getattr(selection, to)] for field, to in GROUPED.items()},
            OVERRIDE: _overrides(selection),
        },
        "fileModifications": list(spec.substitute),
        "properties": spec.properties,
        "additionalPorts": [
            {"port": port.port, "protocol": port.protocol.value, "name": name}
            for name, port in spec.ports.items()
            if name != PRIMARY and port.port is not None
        ],
    }


def command_line(arguments: Iterable[str]) -> str:
    """The line that is split into these arguments, or that a shell reads as them."""
    words = list(arguments)
    if len(words) == len(SHELL) + 1 and tuple(words[:-1]) == SHELL:
        return words[-1]
    line = " ".join(words)
    return line if split_command(line).arguments == words else shlex.join(words)


def _instance_groups(spec: GroupSpec) -> list[str]:
    text = spec.labels.get(INSTANCE_GROUPS_LABEL, "")
    return text.split(",") if text else []


def _range(port: PortSpec | None) -> dict[str, int] | None:
    if port is None or port.of is not None:
        return None
    low, high = port.bounds()
    return {"min": low, "max": high}


def _named(choice: TemplateChoice) -> dict[str, Any]:
    group, _, name = choice.name.rpartition("/")
    return {"name": name, "group": group, "storage": LOCAL, "priority": choice.priority}


def _grouped(choice: TemplateChoice) -> dict[str, Any]:
    return {"name": "", "group": choice.name, "storage": LOCAL, "priority": choice.priority}


def _overrides(selection: TemplateSelection) -> bool:
    choices = [each for to in (*NAMED.values(), *GROUPED.values()) for each in getattr(selection, to)]
    return bool(choices) and all(each.override for each in choices)


def unmapped_fields(value: Mapping[str, Any]) -> list[FieldFault]:
    """Fields of a configuration that an import drops although they mean something: a client has to know."""
    faults = []
    if value.get("static") and value.get("fileModifications"):
        hint = "leave it out; 'patches' of a group change single values there at every start"
        faults.append(FieldFault("", "fileModifications", _STATIC_FILES, hint))
    installation = value.get(TEMPLATES)
    lists = installation if isinstance(installation, dict) else {}
    for field in (*NAMED, *GROUPED):
        entries = lists.get(field)
        for position, entry in enumerate(entries if isinstance(entries, list) else ()):
            storage = entry.get("storage") if isinstance(entry, dict) else None
            if storage not in (None, "", LOCAL):
                at = f"{TEMPLATES}.{field}[{position}].storage"
                hint = f"upload the template, and write '{LOCAL}' or leave it out"
                faults.append(FieldFault("", at, f"Corral has no storage {str(storage)[:80]!r}", hint))
    return faults


def configuration_patch(spec: GroupSpec, mapped: MappedConfiguration) -> dict[str, Any]:
    """The merge patch (RFC 7396) that makes a group what a configuration says, and leaves the rest of it. What the
    configuration of the group as it is says as well is no change, however the group says it."""
    given = mapped.document
    present = map_configuration("", configuration_of(spec)).document
    patch: dict[str, Any] = {field: given.get(field) for field in _PLAIN}
    patch["command"] = given.get("command")
    for field in _MAPS:
        patch[field] = _replaced(getattr(spec, field), given.get(field, {}))
    patch["labels"] = {INSTANCE_GROUPS_LABEL: given.get("labels", {}).get(INSTANCE_GROUPS_LABEL)}
    patch["variables"] = {INSTANCE_GROUPS: given.get("variables", {}).get(INSTANCE_GROUPS)}
    patch["ports"] = _ports(spec, given.get("ports", {}), present.get("ports", {}))
    selected = given.get("template_selection", {})
    patch["template_selection"] = {to: selected.get(to) for to in (*NAMED.values(), *GROUPED.values())}
    changed = {field: value for field, value in patch.items() if given.get(field) != present.get(field)}
    if "command" in changed and spec.args:
        changed["args"] = None
    return changed


def keeps_command(spec: GroupSpec, value: Mapping[str, Any]) -> bool:
    """Whether a configuration without a command leaves the group its own: it has a `jvm`, which no configuration has."""
    return spec.jvm is not None and not spec.command and not value.get("command")


def _replaced(present: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The patch of a map that has other keys from now on."""
    return {**dict.fromkeys(present.keys() - given.keys()), **given}


def _ports(
    spec: GroupSpec, given: Mapping[str, Mapping[str, Any]], present: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Ports that no configuration can describe stay: ranges beside the primary one, and those tied to another."""
    patch: dict[str, Any] = {
        name: None
        for name, port in spec.ports.items()
        if name not in given and port.of is None and (name == PRIMARY or port.port is not None)
    }
    for name, port in given.items():
        if port == present.get(name):
            continue
        cleared = dict.fromkeys(("range", "port", "of", "offset")) if name in spec.ports else {}
        patch[name] = {**cleared, **port}
    return patch


def faults_of(mapped: MappedConfiguration, value: Mapping[str, Any]) -> list[FieldFault]:
    """Everything for which a configuration cannot be taken as it is."""
    return [*mapped.faults, *unmapped_fields(value)]


def new_document(mapped: MappedConfiguration) -> dict[str, Any]:
    """The document of a group that a configuration makes."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(mapped.document))
    document.pop("templates", None)  # an empty chain, which is the default
    return document
