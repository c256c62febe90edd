"""The credit: never below the floor, more where the line holds more, and never without bound."""

from __future__ import annotations

import pytest

from corral.daemon.console.feed import CEILING_BYTES, FLOOR_BYTES, Departure, SendCredit


class Line:
    """A line of a given rate and delay, both directions together; time is counted, not waited for."""

    def __init__(self, *, bytes_per_second: float, delay: float) -> None:
        self._rate = bytes_per_second
        self._delay = delay
        self._free_at = 0.0
        self.now = 100.0
        self.under_way: list[tuple[float, Departure]] = []

    def arrival(self, size: int) -> float:
        self._free_at = max(self._free_at, self.now) + size / self._rate
        return self._free_at + self._delay


def run(credit: SendCredit, line: Line, *, seconds: float, block: int = 32 * 1024) -> int:
    """Send as much as the credit allows; what was delivered."""
    delivered = 0
    ends = line.now + seconds
    while line.now < ends:
        while credit.left >= block:
            line.under_way.append((line.arrival(block), credit.departed(block, line.now)))
        line.now, departure = line.under_way.pop(0)
        credit.arrived([departure], line.now)
        delivered += block
        assert FLOOR_BYTES <= credit.limit <= CEILING_BYTES
        assert 0 <= credit.under_way <= CEILING_BYTES
    return delivered


@pytest.mark.parametrize(
    ("rate", "delay"), [(10e6, 0.1), (2e6, 0.3), (20e6, 0.05)], ids=["100 ms", "300 ms", "50 ms"]
)
def test_a_long_line_is_filled(rate, delay):
    credit = SendCredit()
    line = Line(bytes_per_second=rate, delay=delay)
    run(credit, line, seconds=5)
    assert run(credit, line, seconds=10) >= 0.9 * rate * 10


def test_a_slow_line_is_not_filled_with_more_than_the_floor():
    credit = SendCredit()
    run(credit, Line(bytes_per_second=1.25e6, delay=0.005), seconds=20)
    assert credit.limit == FLOOR_BYTES


def test_what_the_line_held_long_ago_is_forgotten():
    credit = SendCredit()
    line = Line(bytes_per_second=20e6, delay=0.1)
    run(credit, line, seconds=10)
    assert credit.limit > 2 * FLOOR_BYTES
    slow = Line(bytes_per_second=0.5e6, delay=0.1)
    slow.now = line.now + 1
    credit.arrived([departure for _, departure in line.under_way], line.now + 1)
    run(credit, slow, seconds=60)
    assert credit.limit == FLOOR_BYTES


def test_what_is_lost_is_under_way_no_more():
    credit = SendCredit()
    credit.lost([credit.departed(1000, 0.0), credit.departed(500, 0.0)])
    assert credit.under_way == 0
    assert credit.left == FLOOR_BYTES
