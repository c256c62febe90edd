"""The JSON schema of a group and the checks of the server have the same bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
import pytest

from corral.controller.http.resources.groups.group_schemas import GroupDocument, GroupPatch, NewGroup
from corral.controller.http.resources.groups.groups import group_schema
from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.placement_checks import MOST_NAMES
from corral.errors import Rejected

SCHEMA = group_schema()
VALID = jsonschema_rs.validator_for(SCHEMA)
BARE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}
PATH = "/".join(["a" * 240] * 17)
URL = {"url": "https://files.example/a.jar", "sha256": "0" * 64}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "GroupSpec": ("", {}),
    "AffinitySpec": ("affinity/0", {"label": "a=b"}),
    "ArtifactSpec": ("artifact", URL),
    "CrashLoopSpec": ("crash_loop", {}),
    "DisconnectSpec": ("disconnect", {}),
    "DependencySpec": ("depends_on/0", {"group": "other"}),
    "ExtensionSpec": ("extensions/0", {"id": "x", "artifact": URL, "install_path": "plugins"}),
    "GateSpec": ("update/gate/tps", {"min": 1}),
    "JvmSpec": ("jvm", {"jar": "a.jar"}),
    "MaintenanceSpec": ("maintenance", {}),
    "PatchSpec": ("patches/0", {"file": "a.yaml", "path": "a"}),
    "PortSpec": ("ports/primary", {"port": 9}),
    "ProbeSpec": ("probes/0", {"kind": "workload"}),
    "RestartSpec": ("restart", {}),
    "ScalingSpec": ("scaling", {}),
    "ScheduleSpec": (
        "schedules/0",
        {"name": "a", "cron": "0 1 * * *", "duration_seconds": 60, "maintenance": {}},
    ),
    "SpreadSpec": ("spread/0", {}),
    "StopRungSpec": ("stop/0", {"command": "stop"}),
    "TemplateChoice": ("template_selection/all_of/0", {"name": "a"}),
    "TemplateSelection": ("template_selection", {}),
    "UpdateSpec": ("update", {}),
    "VariableSpec": ("variable_types/A", {}),
    "WarmupSpec": ("warmup", {}),
}
"""Where a part of a group is, and the least that it has to have."""
BESIDE: dict[str, dict[str, Any]] = {
    "JvmSpec": {"command": []},
    "AffinitySpec.group": {"affinity": [{}]},
    "ArtifactSpec.platform": {"artifact": {"version": "1"}},
    "ArtifactSpec.version": {"artifact": {"platform": "a"}},
    "ArtifactSpec.url": {"artifact": {"sha256": "0" * 64, "file": "a.jar"}},
    "ExtensionSpec.module": {"extensions": [{"id": "x"}]},
    "PortSpec.of": {"ports": {"primary": {}}},
    "PortSpec.offset": {"ports": {"primary": {"of": "other"}, "other": {"range": [2000, 3000]}}},
    "PatchSpec.file": {"patches": [{"path": "a", "format": "yaml"}]},
    "ProbeSpec.command": {"probes": [{"kind": "command"}]},
    "VariableSpec.choices": {"variable_types": {"A": {"type": "enum"}}},
    "ProbeSpec.pattern": {"probes": [{"kind": "log"}]},
    "ProbeSpec.path": {"probes": [{"kind": "http"}], "ports": {"primary": {"port": 9}}},
    "DisconnectSpec.stop_after_seconds": {"static": True},
    "UpdateSpec.max_surge": {"update": {"max_unavailable": 1}},
    "GroupSpec.max": {"min": 0},
    "GroupSpec.min": {"max": None},
}
TEXTS = {
    "AffinitySpec.label": lambda size: "k" * 63 + "=" + "v" * (size - 64),
    "ArtifactSpec.url": lambda size: "https://files.example/" + "a" * (size - 22),
    "GroupSpec.templates": lambda size: "a" * 63 + "/" + "b" * (size - 64),
    "PatchSpec.path": lambda size: "a" * size,
    "ProbeSpec.path": lambda size: "/" + "a" * (size - 1),
    "ScheduleSpec.cron": lambda size: "0," * ((size - 10) // 2) + "00 1 * * *",
    "TemplateChoice.name": lambda size: "a" * 63 + "/" + "b" * (size - 64),
}
"""Texts of a form that the field has."""
CONTENTS = {"AffinitySpec.group", "PortSpec.of", "ProbeSpec.port", "ScheduleSpec.time_zone"}
"""Names of something that has to exist: the longest name of a group or port is checked there."""


class Bound(NamedTuple):
    field: str
    path: str
    kind: str
    limit: float


def bounds() -> Iterator[Bound]:
    """Every bound of a number or of a text in the schema, in each part of a group."""
    for part, (where, _) in PARTS.items():
        for name, found in SCHEMA["$defs"][part]["properties"].items():
            path = f"{where}/{name}".lstrip("/")
            for schema in [found, *found.get("anyOf", ())]:
                inner = schema.get("items", {})
                for at, here in ((path, schema), (f"{path}/0", inner if isinstance(inner, dict) else {})):
                    for kind in ("minimum", "maximum", "maxLength"):
                        if kind in here:
                            yield Bound(f"{part}.{name}", at, kind, here[kind])


def test_every_part_of_a_group_is_looked_at() -> None:
    structs = {name for name, part in SCHEMA["$defs"].items() if "properties" in part}
    assert structs == set(PARTS), "a part with bounds has a row in PARTS"
    assert len(list(bounds())) > 70


def put(document: Any, path: str, value: Any) -> None:
    """Set the value at a path; what is missing on the way is made."""
    steps = path.split("/")
    for step, following in itertools.pairwise(steps):
        empty: Any = [] if following.isdecimal() else {}
        if isinstance(document, list):
            if not document:
                document.append(empty)
            document = document[0]
        else:
            document = document.setdefault(step, empty)
    if isinstance(document, list):
        document[:] = [value]
    else:
        document[steps[-1]] = value


def document_with(bound: Bound, value: Any) -> dict[str, Any]:
    part = bound.field.partition(".")[0]
    beside = BESIDE.get(bound.field, BESIDE.get(part, {}))
    document = msgspec.json.decode(msgspec.json.encode({**BARE, **beside}))
    where, least = PARTS[part]
    if where and bound.field not in BESIDE:
        put(document, where, dict(least))
    put(document, bound.path, value)
    return document


def text_of(bound: Bound, size: int) -> str:
    if (made := TEXTS.get(bound.field)) is not None:
        return made(size)
    return PATH[:size] if bound.limit == 4096 else "a" * size


def accepted(document: dict[str, Any]) -> bool:
    try:
        parse_group(document)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("bound", [each for each in bounds() if each.field not in CONTENTS], ids=str)
def test_schema_and_server_agree_at_each_bound(bound: Bound) -> None:
    limit = int(bound.limit) if float(bound.limit).is_integer() else bound.limit
    step = -1 if bound.kind == "minimum" else 1
    if bound.kind == "maxLength":
        within: Any = text_of(bound, limit)
        beyond: Any = text_of(bound, limit) + "a"
    else:
        within, beyond = limit, limit + step
    good, bad = document_with(bound, within), document_with(bound, beyond)
    assert VALID.is_valid(good)
    assert accepted(good), parse_group(good)
    assert not VALID.is_valid(bad)
    assert not accepted(bad)


def entries(field: str, count: int) -> Any:
    if field in ("ports", "variable_types"):
        item: Any = {"range": [2000, 60000]} if field == "ports" else {}
        return {f"K{number}": item for number in range(count)}
    if field == "static_names":
        return [f"name{number}" for number in range(count)]
    if field == "probes":
        return [{"kind": "workload"}] * count
    return {f"K{number}": "v" for number in range(count)}


@pytest.mark.parametrize(
    "field",
    [
        "env",
        "labels",
        "node_labels",
        "ports",
        "probes",
        "properties",
        "static_names",
        "variable_types",
        "variables",
    ],
)
def test_schema_and_server_agree_about_how_many_there_may_be(field: str) -> None:
    found = SCHEMA["$defs"]["GroupSpec"]["properties"][field]
    most = found.get("maxProperties", found.get("maxItems"))
    for count, right in ((most, True), (most + 1, False)):
        document = {**BARE, field: entries(field, count)}
        assert VALID.is_valid(document) is right
        if field != "ports" or not right:  # so many fit into no range
            assert accepted(document) is right


@pytest.mark.parametrize("field", ["env", "labels", "node_labels", "properties", "variables"])
def test_schema_and_server_agree_about_keys_and_values(field: str) -> None:
    found = SCHEMA["$defs"]["GroupSpec"]["properties"][field]
    key, value = found["propertyNames"]["maxLength"], found["additionalProperties"]["maxLength"]
    for entry, right in (
        ({"K" * key: "v"}, True),
        ({"K" * (key + 1): "v"}, False),
        ({"": "v"}, False),
        ({"K": "v" * value}, True),
        ({"K": "v" * (value + 1)}, False),
    ):
        document = {**BARE, field: entry}
        assert (VALID.is_valid(document), accepted(document)) == (right, right), entry.keys()


def test_the_types_of_requests_have_the_bounds_of_the_server() -> None:
    for kind in (NewGroup, GroupPatch, GroupDocument):
        found = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]["static_names"]
        assert [each["maxItems"] for each in found["anyOf"] if "maxItems" in each] == [MOST_NAMES]
