"""Universe's `config.json` and `database.json`: each field, and settings that controller and daemon accept."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.universe.field_reports import FieldAction, name_faults
from corral.domain.universe.node_files import DATABASE_FIELDS, map_database, map_node_config
from corral.system.config import load_controller, load_daemon

TAKEN, MAPPED, DROPPED = FieldAction.TAKEN, FieldAction.MAPPED, FieldAction.DROPPED
MASTER = {"isMasterNode": True}
WRAPPER = {"isMasterNode": False}

FIELDS: list[tuple[dict[str, Any], str, FieldAction, dict[str, Any], dict[str, Any], list[str]]] = [
    (MASTER, "isMasterNode", DROPPED, {}, {}, []),
    ({"address": "10.0.0.1"}, "address", DROPPED, {}, {}, []),
    ({"port": 6000}, "port", DROPPED, {}, {}, []),
    ({"apiPort": 7000}, "apiPort", MAPPED, {"http": {"listen": "127.0.0.1:7000"}}, {}, []),
    ({"bindAddress": "::1"}, "bindAddress", MAPPED, {"http": {"listen": "[::1]:8480"}}, {}, []),
    ({**WRAPPER, "apiPort": 7000}, "apiPort", DROPPED, {}, {}, []),
    ({**WRAPPER, "bindAddress": "0.0.0.0"}, "bindAddress", DROPPED, {}, {}, []),
    ({"nodeId": "Node-1"}, "nodeId", MAPPED, {}, {"node": {"id": "node-1"}}, []),
    ({"nodeId": "no id"}, "nodeId", DROPPED, {}, {}, []),
    ({"clusterName": "galaxy"}, "clusterName", DROPPED, {}, {}, []),
    ({**MASTER, "masterAddress": "10.0.0.1"}, "masterAddress", DROPPED, {}, {}, []),
    ({"masterAddress": "10.0.0.1"}, "masterAddress", MAPPED, {}, {"controllers": ["10.0.0.1:8481"]}, []),
    ({"masterPort": 6000}, "masterPort", DROPPED, {}, {}, []),
    ({"masterApiPort": 7000}, "masterApiPort", DROPPED, {}, {}, []),
    ({"debug": False}, "debug", DROPPED, {}, {}, []),
    ({"debug": True}, "debug", MAPPED, {"log": {"level": "DEBUG"}}, {"log": {"level": "DEBUG"}}, []),
    ({"maxRamMB": 8192}, "maxRamMB", MAPPED, {}, {}, ["corral node cap NODE --memory-mb 8192"]),
    ({"maxRamMB": 0}, "maxRamMB", DROPPED, {}, {}, []),
    ({"maxCpu": 350}, "maxCpu", MAPPED, {}, {}, ["corral node cap NODE --cpus 3"]),
    ({"maxCpu": 50}, "maxCpu", MAPPED, {}, {}, ["corral node cap NODE --cpus 1"]),
    ({"updateSources": [{"url": "x"}]}, "updateSources", DROPPED, {}, {}, []),
    (
        {"nodeSpecificVariables": {"REGION": "eu"}},
        "nodeSpecificVariables.REGION",
        MAPPED,
        {},
        {"node": {"labels": {"REGION": "eu"}}},
        [],
    ),
    ({"nodeSpecificVariables": {"a b": "x"}}, "nodeSpecificVariables.a b", DROPPED, {}, {}, []),
    ({"nodeSpecificVariables": {}}, "nodeSpecificVariables", DROPPED, {}, {}, []),
    (
        {"publicAddress": "play.example.org"},
        "publicAddress",
        MAPPED,
        {},
        {"node": {"advertise": "play.example.org"}},
        [],
    ),
    ({"another": 1}, "another", DROPPED, {}, {}, []),
]


@pytest.mark.parametrize(
    ("value", "field", "action", "controller", "daemon", "commands"), FIELDS, ids=lambda each: str(each)[:40]
)
def test_a_field_becomes_this(
    value: dict[str, Any],
    field: str,
    action: FieldAction,
    controller: dict[str, Any],
    daemon: dict[str, Any],
    commands: list[str],
) -> None:
    found = map_node_config("config.json", value)
    assert found.faults == []
    assert [(each.field, each.action) for each in found.reports].count((field, action)) == 1
    assert len({each.field for each in found.reports}) == len(found.reports)
    assert (found.controller, found.daemon, found.commands) == (controller, daemon, commands)
    load_controller(None, {}, _flat(found.controller))
    load_daemon(None, {}, _flat(found.daemon))


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings as flags: labels and lists as one value."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and key != "labels":
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, dict):
            flat[f"{prefix}{key}"] = ",".join(f"{name}={each}" for name, each in value.items())
        else:
            flat[f"{prefix}{key}"] = ",".join(value) if isinstance(value, list) else value
    return flat


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], ""),
        ({f"f{number}": 1 for number in range(1001)}, ""),
        ({"isMasterNode": 1}, "isMasterNode"),
        ({"apiPort": "7000"}, "apiPort"),
        ({"apiPort": 70000}, "apiPort"),
        ({"bindAddress": "a b"}, "bindAddress"),
        ({"bindAddress": "a" * 256}, "bindAddress"),
        ({"masterAddress": "http://x"}, "masterAddress"),
        ({"publicAddress": 5}, "publicAddress"),
        ({"nodeId": {}}, "nodeId"),
        ({"clusterName": 1}, "clusterName"),
        ({"debug": "yes"}, "debug"),
        ({"maxRamMB": -1}, "maxRamMB"),
        ({"maxCpu": "all"}, "maxCpu"),
        ({"nodeSpecificVariables": ["a"]}, "nodeSpecificVariables"),
        ({"nodeSpecificVariables": {"a": []}}, "nodeSpecificVariables.a"),
    ],
)
def test_a_wrong_value_is_named(value: Any, field: str) -> None:
    (fault,) = map_node_config("config.json", value).faults
    assert (fault.file, fault.field) == ("config.json", field)
    assert fault.hint


def test_nothing_of_the_database_is_shown_and_each_kind_of_key_becomes_a_token() -> None:
    value = {field: f"secret-{field}" for field in DATABASE_FIELDS} | {"more": "secret-more"}
    found = map_database("database.json", value)
    assert (found.controller, found.daemon, found.commands, found.faults) == ({}, {}, [], [])
    assert "secret-" not in str(found)
    dropped = [each.field for each in found.reports if each.action is DROPPED]
    assert dropped == [*DATABASE_FIELDS, "more"]
    mapped = [each.to for each in found.reports if each.action is MAPPED]
    assert mapped == ["token 'universe-all' (ADMIN)", "token 'universe-public' (VIEWER)"]
    assert [each.field for each in map_database("database.json", "x").faults] == [""]


def test_names_that_differ_in_case_only_are_faults() -> None:
    (fault,) = name_faults("group", [("A.json", "a"), ("b.json", "b"), ("a.json", "a")], "rename")
    assert (fault.file, fault.hint) == ("A.json", "rename")
    assert "A.json and of a.json" in fault.message
