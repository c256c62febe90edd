"""How many patterns the groups of one change may have."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.document_sets import resolve_set
from corral.domain.groups.inheritance import resolve_groups
from corral.domain.groups.pattern_limit import MOST_PATTERNS
from corral.errors import Code, Rejected


def patches(first: int, count: int) -> list[dict[str, Any]]:
    kind = {"file": "a.txt", "format": "text", "op": "regex", "value": "v"}
    return [{**kind, "path": f"^line{number}=.*$"} for number in range(first, first + count)]


def tree(*, of_base: int, of_heir: int) -> dict[str, dict[str, Any]]:
    base = {"name": "base", "abstract": True, "command": ["a"], "patches": patches(0, of_base)}
    own = {"patches": patches(of_base, of_heir)} if of_heir else {}
    heirs = {f"g-{number}": {"name": f"g-{number}", "parent": "base", **own} for number in range(20)}
    return {"base": base, **heirs}


def test_inherited_patterns_count_once() -> None:
    documents = tree(of_base=MOST_PATTERNS, of_heir=0)
    specs, faults = resolve_groups(["base"], documents)
    assert (len(specs), faults) == (21, [])
    assert len(resolve_set(["base"], documents).specs) == 21


@pytest.mark.parametrize("changed", ["base", "g-1"])
def test_more_of_a_group_and_of_those_that_inherit_it_are_refused_before_one_is_compiled(
    changed: str,
) -> None:
    documents = tree(of_base=MOST_PATTERNS - 10, of_heir=11)
    documents[changed]["patches"][0]["path"] = "("
    with pytest.raises(Rejected, match="501 different patterns") as refused:
        resolve_groups([changed], documents)
    assert (refused.value.code, refused.value.field) == (Code.INVALID_FIELD, "patches")
    (fault,) = resolve_set([changed], documents).faults
    assert (fault.group, fault.error.field) == (changed, "patches")


def test_patterns_of_variables_count() -> None:
    types = {f"v{number}": {"pattern": f"a{number}"} for number in range(MOST_PATTERNS)}
    document = {"name": "lobby", "command": ["a"], "variable_types": types, "patches": patches(0, 1)}
    with pytest.raises(Rejected, match="501 different patterns"):
        resolve_groups(["lobby"], {"lobby": document})
