"""The field `update` of a group's document."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.drift import start_basis
from corral.domain.groups.group_documents import brief_document, parse_group
from corral.domain.groups.inheritance import resolve_group
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.spec import share_of
from corral.errors import Rejected

BARE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}


def update(*, static: bool = False, **fields: Any) -> UpdateSpec:
    return parse_group({**BARE, "static": static, "update": fields}).update


def refusal(*, static: bool = False, **fields: Any) -> Rejected:
    with pytest.raises(Rejected) as refused:
        update(static=static, **fields)
    return refused.value


@pytest.mark.parametrize(
    ("part", "whole", "count"),
    [(3, 10, 3), ("25%", 4, 1), ("25%", 5, 2), ("1%", 1, 1), ("100%", 7, 7), ("0%", 9, 0), ("30%", 0, 0)],
)
def test_a_share_is_rounded_up(part: int | str, whole: int, count: int) -> None:
    assert share_of(part, whole) == count


def test_the_defaults_of_static_groups_are_the_other_way_round() -> None:
    given = update()
    assert (given.surge(8, False), given.unavailable(8, False)) == (1, 0)
    given = update(static=True)
    assert (given.surge(8, True), given.unavailable(8, True)) == (0, 1)


def test_counts_and_shares_are_taken_of_the_wanted_number() -> None:
    given = update(max_surge="25%", max_unavailable=2, canary="10%")
    assert (given.surge(10, False), given.unavailable(10, False)) == (3, 2)
    assert [given.canaries(wanted) for wanted in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert update(canary=5).canaries(2) == 2


@pytest.mark.parametrize(
    "value", ["25", "101%", "-1%", "1.5%", "05%", "%", "25%\n", "", -1, 10_001, 0.5, True]
)
@pytest.mark.parametrize("field", ["max_surge", "max_unavailable", "canary"])
def test_other_texts_and_numbers_are_refused_with_their_path(field: str, value: Any) -> None:
    assert refusal(**{field: value}).field == f"update/{field}"


@pytest.mark.parametrize(
    ("static", "fields", "field"),
    [
        (False, {"max_surge": 0}, "max_surge"),
        (False, {"max_surge": "0%", "max_unavailable": "0%"}, "max_surge"),
        (True, {"max_unavailable": 0}, "max_unavailable"),
        (True, {"max_surge": 0, "max_unavailable": "0%"}, "max_unavailable"),
    ],
)
def test_a_rollout_that_could_never_move_is_refused(static: bool, fields: dict[str, Any], field: str) -> None:
    refused = refusal(static=static, **fields)
    assert refused.field == f"update/{field}"
    assert "both 0" in refused.message


@pytest.mark.parametrize("surge", [1, "25%"])
def test_a_static_group_has_no_surge(surge: Any) -> None:
    assert refusal(static=True, max_surge=surge).field == "update/max_surge"
    assert update(static=True, max_surge=0, max_unavailable="50%").unavailable(4, True) == 2


@pytest.mark.parametrize(
    ("gate", "field"),
    [
        ({"tps": {}}, "gate/tps"),
        ({"tps": {"min": 3, "max": 2}}, "gate/tps"),
        ({"tps": {"min": float("inf")}}, "gate/tps"),
        ({"tps": {"max": float("nan")}}, "gate/tps"),
        ({f"m{number}": {"min": 0} for number in range(17)}, "gate"),
    ],
)
def test_a_gate_that_nothing_passes_or_everything_is_refused(gate: dict[str, Any], field: str) -> None:
    assert refusal(gate=gate).field == f"update/{field}"


def test_a_metric_has_a_name_that_a_workload_can_report() -> None:
    assert refusal(gate={"two words": {"min": 0}}).field.startswith("update/gate")
    assert update(gate={"tps": {"min": 18}, "mspt:p95": {"max": 50.5}}).gate["mspt:p95"].max == 50.5


def test_there_is_at_least_one_canary_and_each_cause_is_named_once() -> None:
    assert refusal(canary="0%").field == refusal(canary=0).field == "update/canary"
    assert refusal(auto=["template", "template"]).field == "update/auto"
    assert refusal(auto=["clock"]).field == "update/auto/0"
    assert [each.value for each in update(auto=["module", "document"]).auto] == ["module", "document"]


def test_null_goes_back_to_the_default_of_a_static_group() -> None:
    base = {"name": "base", "abstract": True, "update": {"max_surge": "50%", "drain_seconds": 30}}
    child = {**BARE, "parent": "base", "static": True}
    documents = {"base": base, "lobby": child}
    with pytest.raises(Rejected, match="static"):
        resolve_group("lobby", documents)
    documents["lobby"] = {**child, "update": {"max_surge": None}}
    given = resolve_group("lobby", documents).update
    assert (given.surge(4, True), given.drain_seconds) == (0, 30)


def test_it_is_no_reason_to_restart_an_instance_and_is_written_back_as_it_was() -> None:
    written = {"strategy": "canary", "max_surge": "25%", "gate": {"tps": {"min": 18}}}
    spec = parse_group({**BARE, "update": written})
    assert brief_document(spec)["update"] == written
    assert start_basis(spec, (), None, ()) == start_basis(parse_group(BARE), (), None, ())


@pytest.mark.parametrize("field", ["canary", "max_surge", "max_unavailable"])
def test_a_wrong_share_is_refused_in_words(field: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_group({"name": "lobby", "command": ["serve"], "update": {field: "many"}})
    assert "regex" not in refused.value.message
    assert refused.value.hint == "write a number, or a share such as 25%"


def test_more_available_than_there_can_be_are_refused() -> None:
    document = {"name": "lobby", "command": ["serve"], "max": 3}
    with pytest.raises(Rejected, match="5 can never be available: max is 3") as refused:
        parse_group({**document, "min_available": 5})
    assert refused.value.field == "min_available"
    assert parse_group({**document, "min_available": 3}).min_available == 3
    assert parse_group({**document, "max": None, "min_available": 5}).min_available == 5
