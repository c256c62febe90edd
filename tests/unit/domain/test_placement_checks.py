"""Fields that say where instances go, in which order, and how they are called."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.placement_checks import check_references
from corral.errors import Rejected


def group(name: str = "lobby", **fields: Any) -> GroupSpec:
    return parse_group({"name": name, "command": ["serve"], **fields})


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"parent": "lobby"}, "parent"),
        ({"parent": "Base"}, "parent"),
        ({"fallback_group": "lobby"}, "fallback_group"),
        ({"depends_on": [{"group": "db"}, {"group": "lobby"}]}, "depends_on/1/group"),
        ({"depends_on": [{"group": "db"}, {"group": "db", "ready": 2}]}, "depends_on/1/group"),
        ({"depends_on": [{"group": ""}]}, "depends_on/0/group"),
        ({"depends_on": [{"group": "db", "ready": 0}]}, "depends_on/0/ready"),
        ({"depends_on": [{}]}, "depends_on/0/group"),
        ({"depends_on": ["db"]}, "depends_on/0"),
        ({"affinity": [{"label": "disk"}]}, "affinity/0/label"),
        ({"affinity": [{"label": "=ssd"}]}, "affinity/0/label"),
        ({"affinity": [{}]}, "affinity/0"),
        ({"affinity": [{"label": "a=b", "group": "db"}]}, "affinity/0"),
        ({"affinity": [{"label": "a=b", "weight": 0}]}, "affinity/0/weight"),
        ({"affinity": [{"label": "a=b", "weight": 101}]}, "affinity/0/weight"),
        ({"affinity": [{"group": "No!"}]}, "affinity/0/group"),
        ({"spread": [{"by": "zone=a"}]}, "spread/0/by"),
        ({"spread": [{"by": "zone"}, {"by": "zone"}]}, "spread/1/by"),
        ({"spread": [{"max_skew": 0}]}, "spread/0/max_skew"),
        ({"spread": [{"weight": -1}]}, "spread/0/weight"),
        ({"static_names": ["Main"]}, "static_names/0"),
        ({"static_names": ["main", "main"]}, "static_names/1"),
        ({"static_names": ["lobby-7"]}, "static_names/0"),
        ({"static_names": [f"hub{n}" for n in range(1001)]}, "static_names"),
        ({"warm": 1, "static": True}, "warm"),
        ({"warm": -1}, "warm"),
        ({"priority": 101}, "priority"),
        ({"scaling": {"mode": "DYNAMIC"}}, "scaling/mode"),
        ({"scaling": {"up_threshold": 1.5}}, "scaling/up_threshold"),
        ({"scaling": {"up_threshold": 5e-324}}, "scaling/up_threshold"),
        ({"scaling": {"up_threshold": 0.009}}, "scaling/up_threshold"),
    ],
)
def test_what_cannot_hold_is_refused_with_its_path(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(Rejected) as refused:
        group(**fields)
    assert refused.value.field == at


def test_a_thousand_ids_may_be_named() -> None:
    assert len(group(static_names=[f"hub{n}" for n in range(1000)]).static_names) == 1000


def test_an_abstract_group_needs_no_program() -> None:
    assert parse_group({"name": "base", "abstract": True, "memory_mb": 512}).abstract
    assert parse_group({"name": "base", "abstract": True, "jvm": {"args": ["-Xss1m"]}}).jvm is not None


def refused(*groups: GroupSpec, changed: str, gone: bool = False) -> Rejected:
    specs = {each.name: each for each in groups if not (gone and each.name == changed)}
    with pytest.raises(Rejected) as found:
        check_references(specs, [changed])
    return found.value


def test_a_reference_to_a_missing_group_has_the_nearest_name() -> None:
    error = refused(group("web", depends_on=[{"group": "databse"}]), group("database"), changed="web")
    assert (error.field, error.hint) == ("depends_on/0/group", "did you mean 'database'?")
    assert refused(group("web", fallback_group="none"), changed="web").field == "fallback_group"


def test_the_nearest_name_is_never_that_of_the_group_itself() -> None:
    lobby = group("lobby", depends_on=[{"group": "loby"}])
    assert refused(lobby, changed="lobby").hint == "create it first, or leave the reference out"
    error = refused(lobby, group("lobyx"), changed="lobby")
    assert error.hint == "did you mean 'lobyx'?"


def test_a_group_that_never_runs_is_no_dependency() -> None:
    base, web = group("base", abstract=True), group("web", depends_on=[{"group": "base"}])
    assert "abstract" in refused(base, web, changed="web").message
    error = refused(base, web, changed="base")
    assert error.field == "abstract"
    assert "'web'" in error.message


def test_a_cycle_is_shown() -> None:
    a, b = group("a", depends_on=[{"group": "b"}]), group("b", depends_on=[{"group": "c"}])
    c = group("c", depends_on=[{"group": "b"}])
    error = refused(a, b, c, changed="a")
    assert error.field == "depends_on"
    assert "b -> c -> b" in error.message
    check_references({each.name: each for each in (a, b, group("c"))}, ["a"])
    one, two = group("one", fallback_group="two"), group("two", fallback_group="one")
    assert "one -> two -> one" in refused(one, two, changed="one").message


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    chain = {f"g{n}": group(f"g{n}", depends_on=[{"group": f"g{n + 1}"}]) for n in range(3000)}
    chain["g3000"] = group("g3000")
    check_references(chain, list(chain))


def test_a_group_that_others_name_does_not_go() -> None:
    error = refused(group("db"), group("web", depends_on=[{"group": "db"}]), changed="db", gone=True)
    assert "'web'" in error.message
    assert error.hint


def test_no_id_belongs_to_two_groups() -> None:
    main = group("main", static_names=["hub"])
    assert refused(main, group("other", static_names=["hub"]), changed="other").field == "static_names/0"
    error = refused(main, group("other", static_names=["x", "hub"]), changed="main")
    assert (error.field, "'other'" in error.message) == ("static_names/0", True)
    numbered = group("main", static_names=["hub-2"])
    assert refused(numbered, group("hub"), changed="main").field == "static_names/0"
    error = refused(numbered, group("hub"), changed="hub")
    assert error.field == "name"
    assert "'main'" in error.message
    check_references({"main": numbered, "x": group("x")}, ["main", "x"])
