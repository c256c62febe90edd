"""What `corral group` says about the number of a group's instances."""

from __future__ import annotations

from typing import Any

import pytest

from corral.cli.group_scaling import closed_text, scaling_rows, wants_more

DYNAMIC = {"mode": "DYNAMIC", "min": 1, "max": 4, "players": 33, "unknown": 0, "need": 3, "waits_for": ""}


def group(scaling: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    found = {"name": "lobby", "min": 1, "max": 4, "scaling": {"mode": "DYNAMIC"}, **fields}
    return {**found, "status": {"scaling": {**DYNAMIC, **(scaling or {})}}}


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("MANUAL", "corral group scale lobby COUNT"),
        ("STATIC", "raise its 'min'"),
        ("DYNAMIC", "it follows its players; corral group scale lobby COUNT --for 15m"),
    ],
)
def test_what_lets_a_group_want_more_depends_on_its_mode(mode: str, said: str) -> None:
    assert wants_more(group({"mode": mode})) == said


@pytest.mark.parametrize(
    ("scaling", "row", "said"),
    [
        ({}, "Scaling", "DYNAMIC; 33 players, 3 needed"),
        ({"max": 1, "players": 40, "need": 1}, "Scaling", "DYNAMIC; 40 players, 1 needed (its 'max')"),
        (
            {"players": 3, "floor": {"count": 3, "until": "2026-01-01T00:05:00Z"}},
            "Scaling",
            "DYNAMIC; 3 players, 3 needed (by the order)",
        ),
        (
            {"waits_for": "the cooldown ends in 4 s"},
            "Scaling",
            "DYNAMIC; 33 players, 3 needed; the cooldown ends in 4 s",
        ),
        ({"mode": "STATIC", "need": None}, "Scaling", "STATIC by schedule, else DYNAMIC"),
        ({"min": 3}, "Min", "3 by schedule, else 1"),
        ({"max": None}, "Max", "- by schedule, else 4"),
        ({"unknown": 2}, "Players", "33, unknown on 2"),
        ({}, "Floor", "-"),
        ({"floor": None, "cooldown_until": None}, "Cooldown", "-"),
    ],
)
def test_what_is_in_force_is_shown_beside_what_is_written(
    scaling: dict[str, Any], row: str, said: str
) -> None:
    assert dict(scaling_rows(group(scaling)))[row] == said


def test_schedules_are_named_while_they_are_active() -> None:
    two = {"schedules": [{"name": "a"}, {"name": "b"}]}
    assert dict(scaling_rows(group({"schedules": ["b"]}, **two)))["Schedules"] == "b active, of 2"
    assert dict(scaling_rows(group(**two)))["Schedules"] == "none active, of 2"


def test_a_controller_of_an_earlier_version_has_none_of_it() -> None:
    rows = dict(scaling_rows({"name": "lobby", "min": 2, "max": None, "status": {}}))
    assert (rows["Min"], rows["Scaling"], rows["Maintenance"]) == ("2", "-", "-")


def test_a_closed_group_says_by_what_and_for_whom() -> None:
    assert closed_text({"enabled": False, "message": "x"}) == ""
    closed = {"enabled": True, "message": "a new map", "bypass": ["a", "b"], "schedule": "night"}
    assert closed_text(closed) == "closed by schedule 'night': a new map (2 players may join)"
