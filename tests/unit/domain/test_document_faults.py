"""Faults of the types of a document: each has its path, with the keys of maps, and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.document_faults import MOST_ENTRIES, MOST_VALUES, type_faults
from corral.domain.groups.document_sets import field_faults
from corral.domain.groups.group_documents import parse_group
from corral.errors import Rejected

BARE = {"name": "lobby", "command": ["serve"]}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"env": {"A": 1, "B": "x", "C": True}}, ["env/A", "env/C"]),
        ({"labels": {"trusted.team": 1}, "min": "two"}, ["labels/trusted.team", "min"]),
        ({"ports": {"a": 25565, "b": {"range": [1, "x"]}}}, ["ports/a", "ports/b/range/1"]),
        ({"ports": {"a": {"range": [1]}}}, ["ports/a/range"]),
        (
            {"depends_on": ["db", {"grp": "x"}, {}, {"group": "db"}]},
            ["depends_on/0", "depends_on/1/grp", "depends_on/2/group"],
        ),
        ({"scaling": {"mode": "X", "foo": {"a": [1]}}}, ["scaling/mode", "scaling/foo"]),
        ({"static_names": [1, "a", 2]}, ["static_names/0", "static_names/2"]),
        ({"env": {1: "x"}}, ["env"]),
        ({}, []),
    ],
)
def test_every_fault_has_its_path(fields: dict[str, Any], paths: list[str]) -> None:
    assert [each.field for each in type_faults({**BARE, **fields})] == paths


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"availablePorts": [25565]}, "files of Universe are converted by 'corral import universe DIR'"),
        ({"command": "sleep 9"}, 'write a list, for example command: ["python3", "server.py"]'),
        ({"ports": {"primary": 25565}}, "write an object, for example ports: {primary: {port: 25565}}"),
        ({"depends_on": ["db"]}, "write an object, for example depends_on: [{group: db}]"),
        ({"spread": {"by": "zone"}}, "write a list, for example spread: [{by: zone}]"),
        ({"memory_mb": "1G"}, "write an integer of MiB, as 1024 for 1 GiB"),
        ({"jvm": {"heap_mb": "1G"}}, "write an integer of MiB, as 1024 for 1 GiB"),
        ({"name": 123}, "put it in quotes: it is text"),
    ],
)
def test_common_mistakes_have_an_example(fields: dict[str, Any], hint: str) -> None:
    assert [each.hint for each in type_faults({**BARE, **fields})] == [hint]


MANY: list[Any] = [[]] * (MOST_ENTRIES + 1)
LONG = {"file": "a.yml", "path": "a", "value": ["x"] * (MOST_VALUES // 100)}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"command": MANY}, "command"),
        ({"args": MANY}, "args"),
        ({"env": {f"K{number}": 1 for number in range(MOST_ENTRIES + 1)}}, "env"),
        ({"jvm": {"args": MANY}}, "jvm/args"),
        ({"patches": [{**LONG, "value": MANY}]}, "patches/0/value"),
        ({f"field-{number}": 1 for number in range(MOST_ENTRIES)}, "document"),
        ({"patches": [LONG] * 100, "min": "two"}, "document"),
    ],
)
def test_a_document_with_too_many_entries_is_refused_for_that_alone(
    fields: dict[str, Any], field: str
) -> None:
    document = {**BARE, **fields}
    with pytest.raises(Rejected) as refused:
        parse_group(document)
    (fault,) = field_faults(document)
    assert (fault.field, refused.value.field) == (field, field)
    assert "entries" in fault.message


def test_a_document_may_have_as_many_entries_as_are_allowed() -> None:
    parse_group({**BARE, "args": ["a"] * MOST_ENTRIES, "patches": [LONG] * 85})
