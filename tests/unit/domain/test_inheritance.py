"""Documents that inherit: what is merged, what is not, and where a wrong value was written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.domain.groups.group_documents import brief_document, group_document, merged, parse_group
from corral.domain.groups.inheritance import (
    MAX_CHAIN,
    NOT_INHERITED,
    chain_of,
    changing_part,
    descendants_of,
    merged_document,
    patched_document,
    resolve_group,
    resolve_groups,
    value_origins,
)
from corral.errors import Rejected

MANY = settings(max_examples=120)
BASE: dict[str, Any] = {
    "name": "base",
    "abstract": True,
    "memory_mb": 512,
    "env": {"A": "1", "B": "2"},
    "restart": {"attempts": 7, "delay_ms": 9},
    "templates": ["one", "two"],
    "labels": {"team": "blue"},
}


def resolved(*documents: dict[str, Any], name: str = "lobby") -> Any:
    return resolve_group(name, {each["name"]: each for each in documents})


def test_objects_are_merged_lists_replaced_and_null_is_the_default() -> None:
    child = {
        "name": "lobby",
        "parent": "base",
        "command": ["serve"],
        "memory_mb": None,
        "env": {"A": None, "C": "3"},
        "restart": {"attempts": 2},
        "templates": ["three"],
    }
    spec = resolved(BASE, child)
    assert (spec.memory_mb, spec.env, spec.templates) == (0, {"B": "2", "C": "3"}, ("three",))
    assert (spec.restart.attempts, spec.restart.delay_ms, spec.labels) == (2, 9, {"team": "blue"})
    assert (spec.name, spec.parent, spec.abstract) == ("lobby", "base", False)


def test_a_value_comes_from_the_nearest_ancestor_that_has_it() -> None:
    middle = {"name": "middle", "parent": "base", "abstract": True, "memory_mb": 700}
    child = {"name": "lobby", "parent": "middle", "command": ["serve"]}
    spec = resolved(BASE, middle, child)
    assert (spec.memory_mb, spec.env) == (700, {"A": "1", "B": "2"})
    assert resolved(BASE, {**middle, "memory_mb": None}, child).memory_mb == 0


def test_a_refusal_names_the_document_that_has_the_value() -> None:
    child = {"name": "lobby", "parent": "base", "command": ["serve"]}
    for documents, field, origin in [
        ([{**BASE, "memory_mb": -1}, child], "memory_mb", "base"),
        ([{**BASE, "ports": {"primary": {"range": [2, 1]}}}, child], "ports/primary/range", "base"),
        ([{**BASE, "ports": {"primary": {"range": [1]}}}, child], "ports/primary/range", "base"),
        ([BASE, {**child, "restart": {"attempts": -1}}], "restart/attempts", "lobby"),
        ([{**BASE, "stop": [{"signal": "SIGTREM"}]}, child], "stop/0/signal", "base"),
        ([{**BASE, "nmae": 1}, child], "nmae", "base"),
        ([{**BASE, "max": 1}, {**child, "min": 2}], "max", "base"),
    ]:
        with pytest.raises(Rejected) as refused:
            resolved(*documents)
        assert (refused.value.field, f"(written in '{origin}')" in refused.value.message) == (field, True)


def test_a_missing_parent_has_the_nearest_name_and_a_cycle_is_shown() -> None:
    with pytest.raises(Rejected) as refused:
        resolved(BASE, {"name": "lobby", "parent": "bsae", "command": ["serve"]})
    assert (refused.value.field, refused.value.hint) == ("parent", "did you mean 'base'?")
    with pytest.raises(Rejected) as refused:
        resolved({"name": "lobby", "parent": "loby", "command": ["serve"]})
    assert refused.value.hint == "create it first, or leave the reference out"
    a, b = {"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}
    with pytest.raises(Rejected, match="a -> b -> a"):
        resolved(a, b, name="a")


def test_a_chain_has_at_most_eight_documents() -> None:
    chain = [{"name": "g0", "abstract": True}]
    chain += [{"name": f"g{n}", "parent": f"g{n - 1}", "abstract": True} for n in range(1, MAX_CHAIN + 1)]
    documents = {each["name"]: each for each in chain}
    assert len(chain_of(f"g{MAX_CHAIN - 1}", documents)) == MAX_CHAIN
    with pytest.raises(Rejected, match="more than 8"):
        chain_of(f"g{MAX_CHAIN}", documents)


def test_one_refused_descendant_is_named() -> None:
    documents = {
        "base": {**BASE, "max": 1},
        "fine": {"name": "fine", "parent": "base", "command": ["serve"]},
        "wide": {"name": "wide", "parent": "fine", "min": 2},
    }
    assert descendants_of(["base"], documents) == ["fine", "wide"]
    specs, (fault,) = resolve_groups(["base"], documents)
    assert (sorted(specs), fault.group) == (["base", "fine"], "wide")
    assert "group 'wide', which inherits this" in fault.error.message


def test_a_null_of_a_patch_stays_in_the_document_of_a_child_only() -> None:
    child = {"name": "lobby", "parent": "base", "env": {"C": "3"}}
    patch = {"memory_mb": None, "env": {"A": None, "C": None}, "abstract": None}
    changed = patched_document(child, patch, {"base": BASE})
    assert changed == {"name": "lobby", "parent": "base", "memory_mb": None, "env": {"A": None, "C": None}}
    spec = resolve_group("lobby", {"base": BASE, "lobby": {**changed, "command": ["serve"]}})
    assert (spec.memory_mb, spec.env) == (0, {"B": "2"})
    alone = patched_document({"name": "lobby", "memory_mb": 5, "env": {"A": "1"}}, patch, {})
    assert alone == {"name": "lobby", "env": {}}
    assert patched_document(child, {"parent": None, "max": None}, {"base": BASE}) == {
        "name": "lobby",
        "env": {"C": "3"},
    }


SMALL = st.dictionaries(st.sampled_from("ABC"), st.one_of(st.none(), st.sampled_from("xyz")), max_size=3)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "memory_mb": st.one_of(st.none(), st.integers(0, 5)),
        "env": st.one_of(st.none(), SMALL),
        "labels": SMALL,
        "restart": st.fixed_dictionaries({}, optional={"attempts": st.one_of(st.none(), st.integers(0, 3))}),
        "templates": st.one_of(st.none(), st.lists(st.sampled_from(["a", "b"]), max_size=2)),
        "abstract": st.booleans(),
    },
)
CHAINS = st.lists(DOCUMENTS, min_size=1, max_size=MAX_CHAIN)


def chained(parts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        f"g{n}": {"name": f"g{n}", **({"parent": f"g{n - 1}"} if n else {}), "command": ["serve"], **part}
        for n, part in enumerate(parts)
    }


@MANY
@given(parts=CHAINS)
def test_a_chain_is_the_same_merged_at_once_or_step_by_step(parts: list[dict[str, Any]]) -> None:
    documents = chained(parts)
    step: Any = {}
    for name, document in documents.items():
        own = {key: value for key, value in document.items() if key in NOT_INHERITED}
        step = {key: value for key, value in step.items() if key not in NOT_INHERITED}
        step = merged(step, document)
        assert step == merged_document(name, documents)
        assert {key: step[key] for key in own} == own
        spec = resolve_group(name, documents)
        assert spec == parse_group(step)
        assert parse_group(brief_document(spec)) == spec, "what differs from the defaults is all of it"


@MANY
@given(parts=CHAINS, order=st.randoms(use_true_random=False), changed=st.integers(0, MAX_CHAIN))
def test_the_order_of_documents_does_not_matter(parts: list, order: Any, changed: int) -> None:
    documents = chained(parts)
    documents["side"] = {"name": "side", "parent": "g0", "memory_mb": 9}
    names = list(documents)
    order.shuffle(names)
    shuffled = {name: documents[name] for name in names}
    start = [f"g{changed % len(parts)}"]
    assert resolve_groups(start, shuffled)[0] == resolve_groups(start, documents)[0]


@MANY
@given(parts=CHAINS, patch=DOCUMENTS)
@example(parts=[{"env": {"A": "x", "B": "y"}}, {"env": None}], patch={"env": {"B": "z"}})
def test_a_patched_child_has_what_the_patch_says_whatever_its_parents_have(parts: list, patch: dict) -> None:
    documents = chained(parts)
    last = f"g{len(parts) - 1}"
    before = merged_document(last, documents)
    documents[last] = patched_document(documents[last], patch, documents)
    after = merged_document(last, documents)
    assert parse_group(after) == parse_group(merged(before, patch))


@MANY
@given(parts=CHAINS)
def test_a_patch_that_repeats_what_a_group_has_writes_nothing(parts: list) -> None:
    documents = chained(parts)
    spec = resolve_group(f"g{len(parts) - 1}", documents)
    read = msgspec.json.decode(msgspec.json.encode(spec))
    assert changing_part(read, spec) == {}


@MANY
@given(parts=CHAINS, patch=DOCUMENTS)
def test_what_a_patch_repeats_is_all_that_is_left_out_of_it(parts: list, patch: dict) -> None:
    documents = chained(parts)
    spec = resolve_group(f"g{len(parts) - 1}", documents)
    part = changing_part(patch, spec)
    before = group_document(spec)
    assert parse_group(merged(before, part)) == parse_group(merged(before, patch))
    assert changing_part(part, spec) == part


@MANY
@given(parts=st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_every_value_of_a_group_has_the_nearest_document_that_wrote_it_as_its_origin(parts: list) -> None:
    documents = chained(parts)
    name = list(documents)[-1]
    origins = value_origins(name, documents)
    flat = dict(leaves(merged(None, merged_document(name, documents))))
    assert {path for path in origins if path not in NOT_INHERITED} == {
        path for path in flat if path not in NOT_INHERITED
    }
    for path, origin in origins.items():
        assert dict(leaves(documents[origin]))[path] == flat[path]


def leaves(value: Any, prefix: str = "") -> Any:
    """Paths of all values but objects and nulls."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from leaves(inner, f"{prefix}{key}/")
        elif inner is not None:
            yield f"{prefix}{key}", inner
