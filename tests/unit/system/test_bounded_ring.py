"""The ring: the newest items within both bounds, by their numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.system.bounded_ring import BoundedRing


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    capacity=st.integers(1, 12),
    room=st.integers(20, 120),
    floor=st.integers(0, 30),
    clear=st.integers(0, 10),
)
def test_it_holds_the_newest_within_both_bounds(
    sizes: list[int], capacity: int, room: int, floor: int, clear: int
) -> None:
    ring: BoundedRing[int] = BoundedRing(capacity=capacity, capacity_bytes=room, floor=floor)
    for number, size in enumerate(sizes, start=floor + 1):
        before = ring.floor
        dropped = ring.append(number, size)
        assert dropped == (ring.floor if ring.floor > before else None)
        assert 1 <= len(ring) <= capacity
        assert ring.bytes <= room or len(ring) == 1
        assert ring.bytes == sum(sizes[ring.floor - floor : number - floor])
        assert [ring[at] for at in range(ring.floor + 1, ring.head + 1)] == list(
            range(ring.floor + 1, number + 1)
        )
        if number == floor + clear:
            ring.clear()
            assert (len(ring), ring.bytes, ring.floor) == (0, 0, number)


def test_after_a_leap_it_holds_what_comes_then() -> None:
    ring: BoundedRing[str] = BoundedRing(capacity=3, capacity_bytes=10)
    for item in "abc":
        ring.append(item, 1)
    ring.begin_after(7)
    assert (ring.floor, ring.head, len(ring), ring.bytes) == (7, 7, 0, 0)
    ring.append("d", 1)
    assert (ring.head, ring[8]) == (8, "d")
