"""The field `disconnect` of a group's document."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.drift import start_basis
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import brief_document, parse_group
from corral.domain.groups.inheritance import changing_part, patched_document, resolve_group
from corral.errors import Rejected

BARE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}
LADDER = [{"signal": "SIGTERM", "wait_seconds": 2.5}]
NEVER = {"replace_after_seconds": None}


def document(**fields: Any) -> dict[str, Any]:
    return {**BARE, "stop": LADDER, "disconnect": fields}


def resolved(*documents: dict[str, Any]) -> GroupSpec:
    return resolve_group("lobby", {each["name"]: each for each in documents})


def test_an_instance_is_replaced_after_a_minute_and_not_stopped_by_its_node() -> None:
    spec = parse_group(BARE)
    assert (spec.disconnect.replace_after_seconds, spec.disconnect.stop_after_seconds) == (60, 0)


@pytest.mark.parametrize(
    ("replace", "fits"), [(32, False), (42, False), (43, True), (60, True), (None, True)]
)
def test_a_replacement_waits_until_the_node_has_ended_its_copy(replace: int | None, fits: bool) -> None:
    written = document(replace_after_seconds=replace, stop_after_seconds=30)
    if fits:
        parse_group(written)
        return
    with pytest.raises(Rejected) as refused:
        parse_group(written)
    assert refused.value.field == "disconnect/replace_after_seconds"
    assert "42.5 s" in refused.value.message
    assert "set it to 43 or more" in str(refused.value.hint)


def test_the_default_does_not_fit_beside_a_long_stop() -> None:
    with pytest.raises(Rejected, match="60 s is too early"):
        parse_group(document(stop_after_seconds=60))


def test_static_instances_are_never_replaced_so_any_stop_fits() -> None:
    parse_group({**document(stop_after_seconds=600), "static": True})


def test_null_is_a_value_of_its_own_and_is_inherited() -> None:
    base = {"name": "base", "abstract": True, "disconnect": NEVER}
    child = {**BARE, "parent": "base"}
    assert resolved(base, child).disconnect.replace_after_seconds is None
    again = {**child, "disconnect": {"replace_after_seconds": 90}}
    assert resolved(base, again).disconnect.replace_after_seconds == 90
    assert (
        resolved({**base, "disconnect": {}}, {**child, "disconnect": NEVER}).disconnect
        == resolved(base, child).disconnect
    )
    assert resolved(base, {**child, "disconnect": None}).disconnect.replace_after_seconds == 60


def test_null_stays_in_what_is_written_back() -> None:
    spec = parse_group({**BARE, "disconnect": NEVER})
    assert brief_document(spec)["disconnect"] == NEVER
    assert parse_group(brief_document(spec)) == spec
    assert changing_part({"disconnect": NEVER}, spec) == {}
    assert changing_part({"disconnect": NEVER}, parse_group(BARE)) == {"disconnect": NEVER}
    patched = patched_document(BARE, {"disconnect": NEVER}, {"lobby": BARE})
    assert parse_group(patched).disconnect.replace_after_seconds is None


def test_only_what_the_node_is_told_makes_a_run_outdated() -> None:
    def basis(**fields: Any) -> str:
        return start_basis(parse_group(document(**fields)), (), None, ())

    assert basis() == basis(replace_after_seconds=90) == basis(replace_after_seconds=None)
    assert basis() != basis(stop_after_seconds=10)
