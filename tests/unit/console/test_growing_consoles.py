"""Consoles that are polled: the watched ones among them, and their order, are what a walk finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.daemon.console.sender import GrowingConsoles


class Feed:
    watched = False


@given(
    st.lists(st.tuples(st.sampled_from(("add", "discard", "turn", "watch", "unwatch")), st.integers(0, 4)))
)
def test_watched_consoles_are_those_that_a_walk_finds(steps):
    feeds = [Feed() for _ in range(5)]
    growing, model = GrowingConsoles(), list[Feed]()
    for step, number in steps:
        feed = feeds[number]
        if step in ("discard", "turn"):
            growing.discard(feed)
            model = [each for each in model if each is not feed]
        if step in ("add", "turn"):
            growing.add(feed)
            model += [feed] if feed not in model else []
        if step in ("watch", "unwatch"):
            feed.watched = step == "watch"
            growing.note(feed)
        watched = [each for each in model if each.watched]
        assert list(growing.turns(everybody=True)) == model
        assert set(growing.turns(everybody=False)) == set(watched)
        assert growing.kinds() == sorted({each.watched for each in model}, reverse=True)
        assert [each in growing for each in feeds] == [each in model for each in feeds]
