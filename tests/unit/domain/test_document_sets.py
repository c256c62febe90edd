"""Sets of documents with many faults: each is named, and none makes the others dearer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corral.domain.groups.document_sets import reference_faults, resolve_set
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.inheritance import parent_of
from corral.testing.counted_calls import counted_calls

Groups = dict[str, GroupSpec]


def group(name: str, **fields: Any) -> GroupSpec:
    return parse_group({"name": name, "command": ["serve"], **fields})


def abstract(count: int) -> Groups:
    bases = {f"base{n}": group(f"base{n}", abstract=True) for n in range(count)}
    return bases | {f"g{n}": group(f"g{n}", depends_on=[{"group": f"base{n}"}]) for n in range(count)}


def in_a_cycle(count: int) -> Groups:
    return {f"g{n}": group(f"g{n}", fallback_group=f"g{(n + 1) % count}") for n in range(count)}


def behind_a_cycle(count: int) -> Groups:
    ring = {"a": group("a", fallback_group="b"), "b": group("b", fallback_group="a")}
    return ring | {f"g{n}": group(f"g{n}", fallback_group=f"g{n - 1}" if n else "a") for n in range(count)}


def same_ids(count: int) -> Groups:
    return {f"g{n}": group(f"g{n}", static_names=[f"hub{each}" for each in range(20)]) for n in range(count)}


def numbered_ids(count: int) -> Groups:
    found = {f"g{n}": group(f"g{n}") for n in range(count)}
    return found | {"main": group("main", static_names=[f"g{n}-1" for n in range(count)])}


@pytest.mark.parametrize("groups", [abstract, in_a_cycle, behind_a_cycle, same_ids, numbered_ids])
def test_faults_of_references_are_found_in_one_pass(groups: Callable[[int], Groups]) -> None:
    calls = []
    for size in (50, 100):
        specs = groups(size)
        with counted_calls() as count:
            found = reference_faults(specs, specs, ())
        names = [each.group for each in found]
        assert sorted(names) == sorted(set(names)), "one fault a group"
        assert "g7" in names
        calls.append(count.calls)
    assert calls[1] < 3 * calls[0], "twice as many groups, and not four times the work"


def chain(count: int) -> dict[str, dict[str, Any]]:
    """The last is the first ancestor of all."""
    return {f"g{n}": {"name": f"g{n}", "command": ["a"], "parent": f"g{n + 1}"} for n in range(count)}


@pytest.mark.parametrize("end", ["", "g0"])
def test_a_long_chain_is_refused_once_and_followed_eight_documents_far(end: str) -> None:
    calls = []
    for size in (200, 400):
        documents = chain(size)
        documents[f"g{size - 1}"]["parent"] = end
        with counted_calls() as count:
            resolved = resolve_set(documents, documents)
        (found,) = resolved.faults
        assert found.error.field == "parent"
        assert "more than 8 documents" in found.error.message
        calls.append(count.of(parent_of))
    assert calls[1] <= 2 * calls[0] < 2 * 200 * 20


def test_a_wrong_type_hides_no_fault_of_other_fields() -> None:
    document = {
        "name": "lobby",
        "command": "sleep 9",
        "static_names": ["lobby-1", "b_C", "b", "b"],
        "nodes": ["Not A Node"],
        "min": 3,
        "max": 1,
        "ports": {"primary": 25565},
        "probes": [{"kind": "tcp", "port": "primary"}],
    }
    found = resolve_set(["lobby"], {"lobby": document}).faults
    assert sorted(each.error.field or "" for each in found) == [
        "command",
        "max",
        "nodes/0",
        "ports/primary",
        "static_names/0",
        "static_names/1",
        "static_names/3",
    ]


def test_what_depends_on_a_wrong_field_is_not_reported() -> None:
    document = {
        "name": "lobby",
        "jvm": {},
        "artifact": {"url": 5},
        "variables": {"A": "1"},
        "variable_types": 3,
    }
    found = resolve_set(["lobby"], {"lobby": document}).faults
    assert sorted(each.error.field or "" for each in found) == ["artifact/url", "variable_types"]
