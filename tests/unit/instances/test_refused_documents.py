"""Documents of a directory that are refused, and what has to go with them."""

from __future__ import annotations

from typing import Any

from corral.controller.instances.group_apply import CheckedSet, GivenDocument, check_set
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.instances.refused_documents import faults_of_documents, without
from corral.errors import DocumentFault

COUNT = 200
STORED = StoredGroups({}, {})


def given(*bodies: dict[str, Any]) -> list[GivenDocument]:
    return [GivenDocument(f"{each['name']}.yaml", {"command": ["true"], **each}) for each in bodies]


def refused(
    documents: list[GivenDocument], stored: StoredGroups = STORED
) -> tuple[CheckedSet, list[DocumentFault]]:
    checked = check_set(documents, stored, ())
    return checked, faults_of_documents(checked, checked.faults[:1], stored.documents)


def test_a_chain_of_groups_is_refused_at_once() -> None:
    chain = [{"name": f"g{n}", "depends_on": [{"group": f"g{n + 1}"}]} for n in range(COUNT)]
    documents = given(*chain, {"name": f"g{COUNT}", "min": -1}, {"name": "other"})
    checked, faults = refused(documents)
    assert {each.path for each in faults} == {f"g{n}.yaml" for n in range(COUNT + 1)}
    assert "its document in g1.yaml is refused" in str(faults[-1].error)
    (left,) = without(documents, faults, checked)
    assert (left.path, check_set([left], STORED, ()).faults) == ("other.yaml", [])


def test_many_faults_are_one_round_although_few_are_listed() -> None:
    documents = given(*({"name": f"g{n}", "min": -1} for n in range(COUNT)), {"name": "other"})
    checked, faults = refused(documents)
    assert len(faults) == COUNT
    assert [each.path for each in without(documents, faults, checked)] == ["other.yaml"]


def test_heirs_go_with_a_parent_that_is_refused() -> None:
    heirs = [{"name": f"g{n}", "parent": f"g{n + 1}"} for n in range(3)]
    documents = given(
        *heirs, {"name": "g3", "min": -1}, {"name": "user", "fallback_group": "g0"}, {"name": "other"}
    )
    checked, faults = refused(documents)
    assert {each.group: each.error.field for each in faults} == {
        "g3": "min",
        **dict.fromkeys(("g2", "g1", "g0"), "parent"),
        "user": "fallback_group",
    }
    assert [each.path for each in without(documents, faults, checked)] == ["other.yaml"]


def test_who_needs_a_group_that_is_stored_already_stays() -> None:
    stored = StoredGroups({}, {"db": {"name": "db", "command": ["true"]}})
    documents = given({"name": "db", "min": -1}, {"name": "web", "depends_on": [{"group": "db"}]})
    checked, faults = refused(documents, stored)
    assert [each.path for each in faults] == ["db.yaml"]
    (left,) = without(documents, faults, checked)
    assert check_set([left], stored, ()).faults == []
