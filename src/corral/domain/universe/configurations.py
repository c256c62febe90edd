"""Universe's configurations as group documents, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from corral.domain.groups.group import PRIMARY, RUNTIMES
from corral.domain.groups.variables import INSTANCE_GROUPS
from corral.domain.ids import group_name, node_id
from corral.domain.universe.command_lines import split_command
from corral.domain.universe.field_reports import SHOWN, FieldFault, FieldReader, FieldReport, object_fault
from corral.domain.universe.template_choices import SELECTIONS, read_templates
from corral.errors import Rejected

INSTANCE_GROUPS_LABEL: Final = "instance-groups"
_HUNDRED: Final = 100
"""Universe's number for one core."""
_PROTOCOLS: Final = ("tcp", "udp", "both")
_LAST_PORT: Final = 65_535
_LONGEST: Final = 200
"""Of a value in a note."""
_HEAP: Final = "-Xmx"
_STATIC_FILES: Final = (
    "Corral replaces %NAME% in files that it lays, and lays none in a static directory; 'patches' of a group change single "
    "values there at every start"
)


class MappedConfiguration(NamedTuple):
    """A configuration as a group document, with a report of each of its fields."""

    file: str
    document: dict[str, Any]
    """Without a name when that is one of the faults."""
    reports: list[FieldReport]
    faults: list[FieldFault]

    @property
    def name(self) -> str:
        return str(self.document.get("name", ""))

    @property
    def static(self) -> bool:
        return bool(self.document.get("static"))


def map_configuration(file: str, value: Any) -> MappedConfiguration:
    """The group that a configuration describes. What only a group's own checks find wrong is not looked for."""
    if (fault := object_fault(file, value, '{"name": …')) is not None:
        return MappedConfiguration(file, {}, [], [fault])
    fields = FieldReader(file, value)
    document: dict[str, Any] = {}
    _read_program(fields, document)
    static = _read_numbers(fields, document)
    _read_place(fields, document)
    ports: dict[str, Any] = {}
    _read_range(fields, ports)
    _read_additional_ports(fields, ports)
    if ports:
        document["ports"] = ports
    _read_maps(fields, document)
    read_templates(fields, document, static=static)
    _read_file_modifications(fields, document, static=static)
    fields.drop_unknown()
    return MappedConfiguration(file, document, fields.reports, fields.faults)


def _read_program(fields: FieldReader, document: dict[str, Any]) -> None:
    name = fields.text("name")
    if name is not None:
        _read_name(fields, name, document)
    elif not fields.faults:
        fields.fault("name", "it is missing", "a group has the name of its configuration: add it")
    runtime = fields.text("runtime")
    if runtime is not None and runtime in RUNTIMES:
        document["runtime"] = runtime
        fields.taken("runtime", "runtime")
    elif runtime is not None:
        known = ", ".join(RUNTIMES)
        fields.fault(
            "runtime",
            f"Corral has no runtime '{runtime[:SHOWN]}'",
            f"write one of {known}",
        )
    line = fields.text("command")
    if line is not None and line.strip():
        arguments, because = split_command(line)
        document["command"] = arguments
        how = f"as a line for /bin/sh, because of {because}" if because else "split at spaces"
        fields.mapped("command", "command", how)
    elif line is not None or not fields.has("command"):
        fields.fault("command", "there is none", "write the line that starts the program")


def _read_name(fields: FieldReader, name: str, document: dict[str, Any]) -> None:
    lowered = name.lower()
    try:
        group_name(lowered)
    except Rejected as error:
        fields.fault("name", f"{name[:SHOWN]!r} cannot be the name of a group", str(error.hint))
        return
    document["name"] = lowered
    if lowered == name:
        fields.taken("name", "name")
    else:
        fields.mapped("name", "name", f"'{name}' is '{lowered}' here: names have small letters")


def _read_numbers(fields: FieldReader, document: dict[str, Any]) -> bool:
    static = fields.boolean("static")
    if static is not None:
        fields.taken("static", "static")
    if static:
        document["static"] = True
    memory = fields.integer("ramMB", low=0, high=16_777_216)
    if memory is not None:
        document["memory_mb"] = memory
        fields.taken("ramMB", "memory_mb", _memory_note(memory, document.get("command", [])))
    share = fields.number("cpu", low=0, high=409_600)
    if share is not None:
        document["cpu"] = share / _HUNDRED
        fields.mapped(
            "cpu", "cpu", f"{share:g} is {share / _HUNDRED:g} here: 1.0 is one core; counted and enforced"
        )
    count = fields.integer("minimumServiceCount", low=0, high=10_000)
    if count is not None:
        document["min"] = count
        fields.taken("minimumServiceCount", "min")
    return bool(static)


def _memory_note(memory: int, command: Sequence[str]) -> str:
    if not memory:
        return "0: not limited"
    if any(_HEAP in argument for argument in command):
        return f"reserved and enforced: a JVM needs more than its heap, so give {_HEAP} four fifths of it"
    return "reserved on the node and enforced there"


def _read_place(fields: FieldReader, document: dict[str, Any]) -> None:
    groups = fields.texts("instanceGroups")
    if groups and not any("," in each for each in groups):
        text = ",".join(groups)
        document["labels"] = {INSTANCE_GROUPS_LABEL: text}
        document["variables"] = {INSTANCE_GROUPS: text}
        fields.mapped(
            "instanceGroups", f"labels.{INSTANCE_GROUPS_LABEL}, %{INSTANCE_GROUPS}%", f"'{text[:_LONGEST]}'"
        )
    elif groups:
        fields.fault("instanceGroups", "a name in it has a comma", "a comma separates the names: use another")
    elif groups is not None:
        fields.dropped("instanceGroups", f"it is empty: %{INSTANCE_GROUPS}% is the name of the group")
    _read_nodes(fields, document)
    address = fields.text("hostAddress")
    if address:
        document["host_address"] = address
        fields.taken("hostAddress", "host_address")
    elif address is not None:
        fields.dropped("hostAddress", "it is empty: %HOST_ADDRESS% is the node's address")


def _read_nodes(fields: FieldReader, document: dict[str, Any]) -> None:
    nodes = fields.texts("nodes")
    if nodes is None:
        return
    if not nodes:
        fields.dropped("nodes", "it is empty: any node may be chosen")
        return
    for position, each in enumerate(nodes):
        try:
            node_id(each.lower())
        except Rejected as error:
            fields.fault(
                f"nodes[{position}]", f"{each[:SHOWN]!r} cannot be the id of a node", str(error.hint)
            )
    lowered = list(dict.fromkeys(each.lower() for each in nodes))
    document["nodes"] = lowered
    note = "enrol nodes under these ids"
    if lowered == nodes:
        fields.taken("nodes", "nodes", note)
    else:
        fields.mapped("nodes", "nodes", f"{note}: {', '.join(lowered)[:_LONGEST]}")


def _read_range(fields: FieldReader, ports: dict[str, Any]) -> None:
    found = fields.object("availablePorts")
    if found is None:
        return
    low = found.integer("min", low=1, high=_LAST_PORT)
    high = found.integer("max", low=1, high=_LAST_PORT)
    for field in ("min", "max"):
        if not found.has(field):
            found.fault(field, "it is missing", f"write an integer from 1 to {_LAST_PORT}")
    if low is not None and high is not None:
        if low > high:
            found.fault("min", f"{low} is above max, {high}", "the lower bound comes first")
        ports[PRIMARY] = {"range": [low, high]}
        fields.mapped("availablePorts", f"ports.{PRIMARY}.range", f"{low} to {high}, for %PORT%")
    fields.join(found)


def _read_additional_ports(fields: FieldReader, ports: dict[str, Any]) -> None:
    found = fields.items("additionalPorts")
    if found == []:
        fields.dropped("additionalPorts", "it is empty")
    for position, each in enumerate(found or ()):
        path = f"additionalPorts[{position}]"
        if not isinstance(each, dict):
            fields.fault(path, "it is no object", 'write {"port": …, "protocol": …, "name": …}')
            continue
        _read_port(fields, FieldReader(fields.file, each, path=path), ports)


def _read_port(fields: FieldReader, entry: FieldReader, ports: dict[str, Any]) -> None:
    number = entry.integer("port", low=1, high=_LAST_PORT)
    protocol = entry.text("protocol")
    written = entry.text("name")
    if not entry.has("port"):
        entry.fault("port", "it is missing", f"write an integer from 1 to {_LAST_PORT}")
    if protocol and protocol.lower() not in _PROTOCOLS:
        entry.fault("protocol", f"'{protocol[:SHOWN]}' is none", f"write one of {', '.join(_PROTOCOLS)}")
    name = (written or f"port-{number}").lower()
    try:
        group_name(name)
    except Rejected as error:
        entry.fault("name", f"{name[:SHOWN]!r} cannot be the name of a port", str(error.hint))
    if name in ports:
        entry.fault("name", f"there is another port '{name[:SHOWN]}'", "give each a name of its own")
    if number is not None and not entry.faults:
        ports[name] = {"port": number, "protocol": (protocol or _PROTOCOLS[-1]).lower()}
        entry.mapped("", f"ports.{name}", f"{number} for each instance, so a node can have one of them")
    fields.join(entry)


def _read_maps(fields: FieldReader, document: dict[str, Any]) -> None:
    for field, to, note in (
        ("environmentVariables", "env", "%NAME% in values is replaced"),
        ("properties", "properties", "'map-size' is %MAP_SIZE%"),
    ):
        found = fields.values(field)
        if found:
            document[to] = found
            fields.taken(field, to, note)
        elif found is not None:
            fields.dropped(field, "it is empty")


def _read_file_modifications(fields: FieldReader, document: dict[str, Any], *, static: bool) -> None:
    found = fields.texts("fileModifications")
    if found is None:
        return
    if static and found:
        fields.dropped("fileModifications", _STATIC_FILES)
        return
    if not found:
        fields.dropped("fileModifications", "it is empty")
        return
    paths = list(dict.fromkeys(each.removeprefix("./").rstrip("/") or each for each in found))
    document["substitute"] = paths
    if paths == found:
        fields.taken("fileModifications", "substitute")
    else:
        fields.mapped("fileModifications", "substitute", f"as {', '.join(paths)[:_LONGEST]}")


ORIGINS: Final[Mapping[str, str]] = {
    "memory_mb": "ramMB",
    "min": "minimumServiceCount",
    "labels": "instanceGroups",
    "variables": "instanceGroups",
    "host_address": "hostAddress",
    "env": "environmentVariables",
    "substitute": "fileModifications",
    "ports": "additionalPorts",
    "template_selection": "templateInstallationConfig",
}
"""The field of a configuration that a field of its group was made of, where the two have different names."""


def origin_of(field: str) -> str:
    """The path of a value of a group as it is in a configuration: `memory_mb` is `ramMB`."""
    parts = field.replace("[", "/").replace("]", "").replace(".", "/").split("/")
    own = "availablePorts" if parts[:2] == ["ports", PRIMARY] else ORIGINS.get(parts[0], parts[0])
    below = parts[2 if own == "availablePorts" else 1 :]
    found = own
    for part in below:
        found += f"[{part}]" if part.isdecimal() else f".{SELECTIONS.get(part, part)}"
    return found
