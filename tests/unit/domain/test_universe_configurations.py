"""Universe's configurations as group documents: each field alone, all together, and wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.group_documents import parse_group
from corral.domain.universe.command_lines import split_command
from corral.domain.universe.configurations import map_configuration, origin_of
from corral.domain.universe.field_reports import FieldAction

TAKEN, MAPPED, DROPPED = FieldAction.TAKEN, FieldAction.MAPPED, FieldAction.DROPPED
BASE: dict[str, Any] = {"name": "lobby", "command": "./server"}
TEMPLATES = "templateInstallationConfig"

FIELDS: list[tuple[dict[str, Any], dict[str, Any], tuple[str, FieldAction]]] = [
    ({"name": "lobby"}, {"name": "lobby"}, ("name", TAKEN)),
    ({"name": "Lobby_EU"}, {"name": "lobby_eu"}, ("name", MAPPED)),
    ({"runtime": "tmux"}, {"runtime": "tmux"}, ("runtime", TAKEN)),
    ({"command": "java -jar server.jar"}, {"command": ["java", "-jar", "server.jar"]}, ("command", MAPPED)),
    (
        {"command": 'java -jar "my server.jar"'},
        {"command": ["/bin/sh", "-c", 'java -jar "my server.jar"']},
        ("command", MAPPED),
    ),
    ({"static": False}, {}, ("static", TAKEN)),
    ({"static": True}, {"static": True, "templates": []}, ("static", TAKEN)),
    ({"ramMB": 1024}, {"memory_mb": 1024}, ("ramMB", TAKEN)),
    ({"ramMB": 1024.0}, {"memory_mb": 1024}, ("ramMB", TAKEN)),
    ({"cpu": 100}, {"cpu": 1.0}, ("cpu", MAPPED)),
    ({"cpu": 150}, {"cpu": 1.5}, ("cpu", MAPPED)),
    ({"minimumServiceCount": 3}, {"min": 3}, ("minimumServiceCount", TAKEN)),
    (
        {"instanceGroups": ["hub", "eu"]},
        {"labels": {"instance-groups": "hub,eu"}, "variables": {"INSTANCE_GROUPS": "hub,eu"}},
        ("instanceGroups", MAPPED),
    ),
    ({"instanceGroups": []}, {}, ("instanceGroups", DROPPED)),
    ({"nodes": ["n1", "n2"]}, {"nodes": ["n1", "n2"]}, ("nodes", TAKEN)),
    ({"nodes": ["N1", "n1"]}, {"nodes": ["n1"]}, ("nodes", MAPPED)),
    ({"nodes": []}, {}, ("nodes", DROPPED)),
    ({"hostAddress": "0.0.0.0"}, {"host_address": "0.0.0.0"}, ("hostAddress", TAKEN)),
    ({"hostAddress": ""}, {}, ("hostAddress", DROPPED)),
    (
        {"availablePorts": {"min": 25565, "max": 25600}},
        {"ports": {"primary": {"range": [25565, 25600]}}},
        ("availablePorts", MAPPED),
    ),
    (
        {"additionalPorts": [{"port": 25575, "protocol": "TCP", "name": "Rcon"}]},
        {"ports": {"rcon": {"port": 25575, "protocol": "tcp"}}},
        ("additionalPorts[0]", MAPPED),
    ),
    (
        {"additionalPorts": [{"port": 25575}]},
        {"ports": {"port-25575": {"port": 25575, "protocol": "both"}}},
        ("additionalPorts[0]", MAPPED),
    ),
    ({"additionalPorts": []}, {}, ("additionalPorts", DROPPED)),
    (
        {"environmentVariables": {"A": "x", "B": 3, "C": True}},
        {"env": {"A": "x", "B": "3", "C": "true"}},
        ("environmentVariables", TAKEN),
    ),
    ({"environmentVariables": {}}, {}, ("environmentVariables", DROPPED)),
    ({"properties": {"map-size": 512}}, {"properties": {"map-size": "512"}}, ("properties", TAKEN)),
    (
        {TEMPLATES: {"allOf": [{"name": "Base", "group": "Global", "priority": 3}]}},
        {"template_selection": {"all_of": [{"name": "global/base", "priority": 3, "override": False}]}},
        (f"{TEMPLATES}.allOf", MAPPED),
    ),
    (
        {TEMPLATES: {"oneOf": [{"name": "a", "group": ""}], "onTemplatePasteOverridePresentFiles": True}},
        {"template_selection": {"one_of": [{"name": "a", "override": True}]}},
        (f"{TEMPLATES}.onTemplatePasteOverridePresentFiles", MAPPED),
    ),
    (
        {TEMPLATES: {"allInGroups": ["Packs", {"group": "maps", "priority": 1}]}},
        {
            "template_selection": {
                "all_in_groups": [
                    {"name": "packs", "override": False},
                    {"name": "maps", "priority": 1, "override": False},
                ]
            }
        },
        (f"{TEMPLATES}.allInGroups", MAPPED),
    ),
    (
        {TEMPLATES: {"oneInGroups": [{"name": "seasons"}]}},
        {"template_selection": {"one_in_groups": [{"name": "seasons", "override": False}]}},
        (f"{TEMPLATES}.oneInGroups", MAPPED),
    ),
    (
        {TEMPLATES: {"allOf": [{"name": "b", "group": "g", "storage": "s3"}]}},
        {"template_selection": {"all_of": [{"name": "g/b", "override": False}]}},
        (f"{TEMPLATES}.allOf[0].storage", DROPPED),
    ),
    ({TEMPLATES: {"allOf": []}}, {}, (f"{TEMPLATES}.allOf", DROPPED)),
    (
        {"static": True, TEMPLATES: {"allOf": [{"name": "b", "group": "g"}]}},
        {"static": True, "templates": []},
        (TEMPLATES, DROPPED),
    ),
    (
        {"static": True, "fileModifications": ["a.yml"]},
        {"static": True, "templates": []},
        ("fileModifications", DROPPED),
    ),
    ({"fileModifications": ["a.yml"]}, {"substitute": ["a.yml"]}, ("fileModifications", TAKEN)),
    (
        {"fileModifications": ["./a.yml", "config/"]},
        {"substitute": ["a.yml", "config"]},
        ("fileModifications", MAPPED),
    ),
    ({"fileModifications": []}, {}, ("fileModifications", DROPPED)),
    ({"ramMB": None}, {}, ("ramMB", DROPPED)),
    ({"somethingElse": 1}, {}, ("somethingElse", DROPPED)),
]


@pytest.mark.parametrize(("fields", "expected", "reported"), FIELDS, ids=lambda each: str(each)[:50])
def test_a_field_becomes_this_and_is_reported_once(
    fields: dict[str, Any], expected: dict[str, Any], reported: tuple[str, FieldAction]
) -> None:
    found = map_configuration("c.json", {**BASE, **fields})
    assert found.faults == []
    assert found.document == {"name": "lobby", "command": ["./server"], **expected}
    assert [(each.field, each.action) for each in found.reports].count(reported) == 1
    assert all(each.note or each.to for each in found.reports)
    assert len({each.field for each in found.reports}) == len(found.reports)
    parse_group(found.document)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "name"),
    ({"name": 5}, "name"),
    ({"name": "two words"}, "name"),
    ({"name": "../up"}, "name"),
    ({"runtime": "docker"}, "runtime"),
    ({"runtime": ["process"]}, "runtime"),
    ({"command": "   "}, "command"),
    ({"command": ["java"]}, "command"),
    ({"static": "true"}, "static"),
    ({"ramMB": -1}, "ramMB"),
    ({"ramMB": True}, "ramMB"),
    ({"ramMB": 1.5}, "ramMB"),
    ({"ramMB": 10**30}, "ramMB"),
    ({"cpu": "100"}, "cpu"),
    ({"cpu": -5}, "cpu"),
    ({"minimumServiceCount": 1_000_000}, "minimumServiceCount"),
    ({"instanceGroups": "hub"}, "instanceGroups"),
    ({"instanceGroups": ["a,b"]}, "instanceGroups"),
    ({"instanceGroups": [7]}, "instanceGroups[0]"),
    ({"instanceGroups": [""]}, "instanceGroups[0]"),
    ({"instanceGroups": ["a"] * 1001}, "instanceGroups"),
    ({"nodes": ["A B"]}, "nodes[0]"),
    ({"hostAddress": {}}, "hostAddress"),
    ({"availablePorts": [1, 2]}, "availablePorts"),
    ({"availablePorts": {"min": 5}}, "availablePorts.max"),
    ({"availablePorts": {"min": 5, "max": 4}}, "availablePorts.min"),
    ({"availablePorts": {"min": 0, "max": 70000}}, "availablePorts.min"),
    ({"additionalPorts": {"port": 1}}, "additionalPorts"),
    ({"additionalPorts": [7]}, "additionalPorts[0]"),
    ({"additionalPorts": [{"name": "rcon"}]}, "additionalPorts[0].port"),
    ({"additionalPorts": [{"port": 1, "protocol": "sctp"}]}, "additionalPorts[0].protocol"),
    ({"additionalPorts": [{"port": 1, "name": "a b"}]}, "additionalPorts[0].name"),
    (
        {"availablePorts": {"min": 1, "max": 2}, "additionalPorts": [{"port": 1, "name": "Primary"}]},
        "additionalPorts[0].name",
    ),
    ({"environmentVariables": {"A": None}}, "environmentVariables.A"),
    ({"environmentVariables": [1]}, "environmentVariables"),
    ({"properties": {"a": {"b": 1}}}, "properties.a"),
    ({TEMPLATES: []}, TEMPLATES),
    ({TEMPLATES: {"allOf": "x"}}, f"{TEMPLATES}.allOf"),
    ({TEMPLATES: {"allOf": ["x"]}}, f"{TEMPLATES}.allOf[0]"),
    ({TEMPLATES: {"allOf": [{"group": "g"}]}}, f"{TEMPLATES}.allOf[0].name"),
    ({TEMPLATES: {"allOf": [{"name": "a/b", "group": "g"}]}}, f"{TEMPLATES}.allOf[0].name"),
    ({TEMPLATES: {"allOf": [{"name": "a", "priority": "1"}]}}, f"{TEMPLATES}.allOf[0].priority"),
    ({TEMPLATES: {"oneInGroups": [{"group": ".."}]}}, f"{TEMPLATES}.oneInGroups[0].name"),
    (
        {TEMPLATES: {"onTemplatePasteOverridePresentFiles": 1}},
        f"{TEMPLATES}.onTemplatePasteOverridePresentFiles",
    ),
    ({"fileModifications": "a.yml"}, "fileModifications"),
    ({"fileModifications": [{}]}, "fileModifications[0]"),
]


@pytest.mark.parametrize(("fields", "path"), WRONG, ids=lambda each: str(each)[:50])
def test_a_wrong_value_is_named_with_its_path_and_what_to_do(fields: dict[str, Any], path: str) -> None:
    (fault, *_) = map_configuration("c.json", {**BASE, **fields}).faults
    assert (fault.file, fault.field) == ("c.json", path)
    assert fault.message
    assert fault.hint


@pytest.mark.parametrize("value", [None, [], "x", 1, True, {str(number): 1 for number in range(1001)}])
def test_what_is_no_object_is_no_configuration(value: Any) -> None:
    found = map_configuration("c.json", value)
    assert (found.document, [each.field for each in found.faults]) == ({}, [""])


def test_no_line_of_a_report_is_long() -> None:
    long = "x" * 100_000
    fields = {
        long: 1,
        "instanceGroups": [long],
        "nodes": ["n" * 60] * 500,
        "fileModifications": [f"./{long}"],
    }
    found = map_configuration(
        "c.json", {**BASE, **fields, "environmentVariables": {long: []}, "ramMB": 10**30}
    )
    assert len(found.reports) > 4
    assert all(len(f"{each.field}{each.to}{each.note}") < 500 for each in found.reports)
    assert all(len(each.sentence()) < 500 for each in found.faults)


def test_every_fault_of_a_configuration_is_found() -> None:
    together: dict[str, Any] = {}
    for fields, _ in WRONG:
        together = {**fields, **together}
    found = {
        each.field.partition("[")[0].partition(".")[0] for each in map_configuration("c", together).faults
    }
    assert found == {key for fields, _ in WRONG for key in fields}


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("java -Xmx%RAM_MB%M -jar server.jar --port=%PORT%", ""),
        ("  ./server\t--x  ", ""),
        ("./größe", ""),
        ('java -jar "a b.jar"', "'\"'"),
        ("cd x && ./y", "'&'"),
        ("./a; ./b", "';'"),
        ("./a > log", "'>'"),
        ("echo $HOME", "'$'"),
        ("./a *.jar", "'*'"),
        ("~/server", "'~'"),
        ("./a\n./b", "a line break"),
        ("A=1 ./server", "'A=1'"),
        ("exec ./server", "'exec'"),
        ("cd /srv", "'cd'"),
        ("./a # b", "'#'"),
    ],
)
def test_a_line_is_split_only_where_a_shell_would_do_no_more(line: str, because: str) -> None:
    found = split_command(line)
    assert found.shell_because == because
    assert found.arguments == (["/bin/sh", "-c", line.strip()] if because else line.split())


def test_the_memory_of_a_jvm_has_a_warning() -> None:
    notes = []
    for command in ("java -Xmx%RAM_MB%M -jar server.jar", "./server"):
        found = map_configuration("c.json", {"name": "a", "command": command, "ramMB": 1024})
        notes += [each.note for each in found.reports if each.field == "ramMB"]
    assert ["-Xmx" in note for note in notes] == [True, False]


def test_a_field_of_a_group_is_found_in_its_configuration() -> None:
    fields = {
        "memory_mb": "ramMB",
        "ports/primary/range": "availablePorts.range",
        "ports/query": "additionalPorts.query",
        "template_selection/all_of/0": "templateInstallationConfig.allOf[0]",
        "env/LD_PRELOAD": "environmentVariables.LD_PRELOAD",
        "command/0": "command[0]",
        "": "",
    }
    assert {field: origin_of(field) for field in fields} == fields
