"""How claims are chosen and placed, and what several rounds of one add up to."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from benchmarks.__main__ import chosen
from benchmarks.figures import combined, result
from benchmarks.trees import ROOT, fresh_directory, new_root, shared_root


def _round(value: float, floor: float, *, ok: bool | None) -> list[dict[str, Any]]:
    return [result("P0 a figure", value, "ms", floor=floor, target="≤ 10 ms", ok=ok)]


def test_rounds_become_medians_and_a_ratio_is_of_its_own_round() -> None:
    rounds = [_round(4, 2, ok=True), _round(30, 10, ok=False), _round(8, 8, ok=True)]
    assert combined(rounds) == [
        {
            "name": "P0 a figure",
            "value": 8,
            "unit": "ms",
            "floor": 8,
            "ratio": 2,
            "target": "≤ 10 ms",
            "ok": True,
        }
    ]


def test_a_target_is_met_when_most_rounds_met_it_and_never_where_there_is_none() -> None:
    assert combined([_round(1, 1, ok=True), _round(1, 1, ok=False)])[0]["ok"] is False
    assert combined([_round(1, 1, ok=None), _round(1, 1, ok=None)])[0]["ok"] is None
    assert combined([_round(1, 1, ok=None)])[0]["ok"] is None
    assert combined([]) == []


def test_a_figure_without_a_floor_has_none_after_several_rounds() -> None:
    alone = [result("P0 a figure", value, "MB", target="-", ok=None) for value in (1, 3)]
    assert [
        (each["value"], each["floor"], each["ratio"]) for each in combined([[each] for each in alone])
    ] == [(2, None, None)]


def test_claims_are_chosen_by_number_or_name_in_the_order_of_their_numbers() -> None:
    every = chosen([])
    assert every.index("p2_event_latency") < every.index("p10_store")
    assert chosen(["P10", "p2_event_latency"]) == ["p2_event_latency", "p10_store"]
    assert chosen(["p1"]) == ["p1_controller_start"]
    with pytest.raises(SystemExit, match="no claim is called p99"):
        chosen(["p99"])


def test_fresh_directories_share_a_root_that_goes_as_a_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_BENCH_DIR", str(tmp_path))
    shared_root.cache_clear()
    with new_root() as root:
        monkeypatch.setenv(ROOT, str(root))
        first, second = fresh_directory(), fresh_directory()
        (first / "file").touch()
        assert first != second
        assert {first.parent, second.parent} == {root}
    assert list(tmp_path.iterdir()) == []
    shared_root.cache_clear()
