"""Numbers kept as runs equal a set, and the next free one is found."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import instance_number
from corral.domain.number_runs import NumberRuns


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=80))
def test_runs_equal_a_set(steps: list[tuple[bool, int]]) -> None:
    runs, model = NumberRuns(), set[int]()
    for added, number in steps:
        if added:
            runs.add(number)
            model.add(number)
        else:
            runs.discard(number)
            model.discard(number)
        assert bool(runs) == bool(model)
        assert [n for n in range(-1, 15) if n in runs] == sorted(model)
        for first in range(15):
            free = [n for n in range(first, 20) if n not in model]
            assert runs.next_free(first) == free[0]
            assert list(itertools.takewhile(lambda n: n < 20, runs.free(first))) == free


def test_only_ids_as_they_are_given_out_have_a_number() -> None:
    assert instance_number("a-1-12") == ("a-1", 12)
    for id in ("lobby", "lobby-", "lobby-0", "lobby-01", "lobby-x", "lobby-\u0661", "lobby-" + "9" * 30):
        assert not instance_number(id)[1], id
