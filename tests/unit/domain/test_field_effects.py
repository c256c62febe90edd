"""When a change of a field takes effect."""

from __future__ import annotations

import pathlib
import re

from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.field_effects import (
    EFFECTS,
    FIELDS_NEXT_START,
    FIELDS_NOW,
    FIELDS_RESTART,
    FieldEffect,
    effect_of,
)
from corral.domain.groups.group import GroupSpec


def test_every_field_of_a_group_is_in_exactly_one_class() -> None:
    assert EFFECTS.keys() == set(GroupSpec.__struct_fields__)
    assert len(EFFECTS) == len(FIELDS_NOW) + len(FIELDS_NEXT_START) + len(FIELDS_RESTART)
    assert {effect_of(each, 1, 2) for each in ("min", "nodes", "env")} == set(FieldEffect)


def test_what_a_node_is_told_of_a_lost_controller_takes_effect_with_a_restart() -> None:
    before = DisconnectSpec()
    sooner = DisconnectSpec(replace_after_seconds=30)
    stopping = DisconnectSpec(stop_after_seconds=5)
    assert effect_of("disconnect", before, sooner) is FieldEffect.NOW
    assert effect_of("disconnect", before, stopping) is FieldEffect.RESTART


def test_the_documentation_has_the_same_classes() -> None:
    page = pathlib.Path(__file__).parents[3] / "docs" / "concepts" / "groups.md"
    rows = dict(
        re.findall(r"^\| \*\*(now|at the next placement)\*\*[^|]*\| (.*) \|$", page.read_text(), re.M)
    )
    assert set(re.findall(r"`(\w+)`", rows["now"])) == FIELDS_NOW
    assert set(re.findall(r"`(\w+)`", rows["at the next placement"])) == FIELDS_NEXT_START
