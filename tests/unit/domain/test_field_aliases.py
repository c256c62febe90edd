"""Spellings that files of other systems use."""

from __future__ import annotations

import pytest

from corral.domain.groups.field_aliases import OTHER_NAMES, with_field_names
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import brief_document, parse_group
from corral.errors import Rejected


def test_names_of_fields_are_translated_at_any_depth_and_keys_of_operators_are_not() -> None:
    document = with_field_names(
        {
            "name": "lobby",
            "command": ["serve"],
            "maxPlayers": 20,
            "startup-timeout-seconds": 5,
            "dependsOn": [{"group": "db"}],
            "spread": [{"by": "zone", "maxSkew": 2}],
            "restart": {"delayMs": 5},
            "ports": {"the-query": {"port": 5}},
            "env": {"javaHome": "x"},
            "ramMB": 512,
        }
    )
    spec = parse_group(document)
    assert (spec.max_players, spec.startup_timeout_seconds, spec.memory_mb) == (20, 5, 512)
    assert (spec.depends_on[0].group, spec.spread[0].max_skew, spec.restart.delay_ms) == ("db", 2, 5)
    assert (list(spec.ports), spec.env) == (["the-query"], {"javaHome": "x"})


def test_a_document_in_our_spelling_stays_as_it_is() -> None:
    spec = parse_group(
        {"name": "lobby", "command": ["x"], "jvm": None, "probes": [{"kind": "log", "pattern": "x"}]}
    )
    assert with_field_names(brief_document(spec)) == brief_document(spec)
    assert with_field_names({"name": "x", "min": None, "nonsense": {"aB": 1}}) == {
        "name": "x",
        "min": None,
        "nonsense": {"aB": 1},
    }
    assert with_field_names(["no", "document"]) == ["no", "document"]


def test_a_field_in_two_spellings_is_refused() -> None:
    with pytest.raises(Rejected) as refused:
        with_field_names({"name": "x", "restart": {"delay_ms": 1, "delayMs": 2}})
    assert (refused.value.field, bool(refused.value.hint)) == ("restart/delay_ms", True)


def test_other_names_are_of_fields_that_exist_and_are_none_themselves() -> None:
    fields = set(GroupSpec.__struct_fields__)
    assert set(OTHER_NAMES.values()) <= fields
    assert not set(OTHER_NAMES) & fields
