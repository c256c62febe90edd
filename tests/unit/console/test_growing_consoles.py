"""Consoles that are polled: those whose turn it is, the one that waits longest first, and never more than a part of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.daemon.console.growing import AT_ONCE, GrowingConsoles


class Feed:
    watched = False


@given(
    st.lists(st.tuples(st.sampled_from(("add", "poll", "discard", "watch", "unwatch")), st.integers(0, 4)))
)
def test_each_console_that_grows_is_polled_as_what_it_is(steps):
    feeds = [Feed() for _ in range(5)]
    growing, model = GrowingConsoles(), set[Feed]()
    for now, (step, number) in enumerate(steps):
        feed = feeds[number]
        if step == "discard":
            growing.discard(feed)
            model.discard(feed)
        elif step in ("add", "poll"):
            growing.add(feed, AT_ONCE if step == "add" else float(now))
            model.add(feed)
        else:
            feed.watched = step == "watch"
            growing.note(feed)
        for watched in (True, False):
            turns = growing.turns(watched=watched, before=float(len(steps)), part=1.0)
            assert len(turns) == len(set(turns))
            assert set(turns) == {each for each in model if each.watched == watched}
        assert len(growing) == len(model)
        assert [each in growing for each in feeds] == [each in model for each in feeds]


def test_a_part_of_them_has_its_turn_and_all_have_theirs_after_so_many():
    feeds = [Feed() for _ in range(10)]
    growing = GrowingConsoles()
    for feed in feeds:
        growing.add(feed, 0.0)
    served = []
    for now in (1.0, 2.0, 3.0, 4.0):
        for feed in growing.turns(watched=False, before=now - 1, part=0.25):
            growing.add(feed, now)
            served.append(feed)
    assert served == feeds + feeds[:2]


def test_what_must_not_wait_goes_first_and_takes_no_place_of_others():
    quiet, others = Feed(), [Feed() for _ in range(4)]
    growing = GrowingConsoles()
    for feed in others:
        growing.add(feed, 0.0)
    growing.add(quiet)
    assert list(growing.turns(watched=False, before=0.0, part=0.2)) == [quiet, others[0]]
    assert growing.next_at(lambda _: 0.04) == AT_ONCE


def test_a_console_is_not_polled_before_its_pause_is_over():
    feed = Feed()
    growing = GrowingConsoles()
    growing.add(feed, 5.0)
    assert not growing.turns(watched=False, before=4.9, part=1.0)
    assert growing.next_at(lambda watched: 0.01 if watched else 0.02) == 5.02
