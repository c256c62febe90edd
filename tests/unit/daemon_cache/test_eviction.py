"""What goes when the cache is full."""

from __future__ import annotations

from corral.daemon.cache.contents import EvictionCandidate, choose


def template(key: str, used_ms: int, **contents: int) -> EvictionCandidate:
    return EvictionCandidate(kind="template", key=key, used_ms=used_ms, size=1, contents=contents)


def keys(eviction) -> list[str]:
    return [entry.key for entry in eviction.entries]


def test_nothing_goes_when_nothing_has_to():
    chosen = choose(0, candidates=[template("a", 1, x=10)], kept=[], present={"x": 10}, protected=())
    assert (chosen.entries, chosen.contents, chosen.freed) == ((), (), 0)


def test_what_was_used_longest_ago_goes_first_and_no_more_than_needed():
    candidates = [template("new", 3, x=10), template("old", 1, y=10), template("middle", 2, z=10)]
    present = {"x": 10, "y": 10, "z": 10}
    chosen = choose(5, candidates=candidates, kept=[], present=present, protected=())
    assert keys(chosen) == ["old"]
    assert chosen.contents == ("y",)
    assert chosen.freed == 11


def test_a_shared_content_goes_with_the_last_one_that_names_it():
    candidates = [template("old", 1, shared=100, own=1), template("new", 2, shared=100)]
    present = {"shared": 100, "own": 1}
    one = choose(2, candidates=candidates, kept=[], present=present, protected=())
    assert keys(one) == ["old"]
    assert one.contents == ("own",)
    both = choose(50, candidates=candidates, kept=[], present=present, protected=())
    assert keys(both) == ["old", "new"]
    assert set(both.contents) == {"own", "shared"}
    assert both.freed == 103


def test_a_content_of_something_that_stays_stays():
    chosen = choose(
        100,
        candidates=[template("old", 1, shared=100)],
        kept=[{"shared": 100}],
        present={"shared": 100},
        protected=(),
    )
    assert chosen.contents == ()
    assert chosen.freed == 1, "all that could be freed"


def test_what_nobody_names_goes_before_anything_that_is_named():
    chosen = choose(
        5, candidates=[template("a", 1, x=10)], kept=[], present={"x": 10, "orphan": 7}, protected=()
    )
    assert chosen.contents == ("orphan",)
    assert chosen.entries == ()


def test_what_is_on_its_way_is_touched_by_nothing():
    chosen = choose(
        100,
        candidates=[template("a", 1, x=10)],
        kept=[],
        present={"x": 10, "arriving": 7},
        protected={"x", "arriving"},
    )
    assert chosen.contents == ()
    assert keys(chosen) == ["a"]


def test_a_content_that_is_not_on_the_disk_frees_nothing():
    chosen = choose(10, candidates=[template("a", 1, x=10)], kept=[], present={}, protected=())
    assert chosen.freed == 1


def test_artifacts_and_templates_are_judged_by_their_last_use_alike():
    artifact = EvictionCandidate(kind="artifact", key="jar", used_ms=1, size=50)
    chosen = choose(
        20, candidates=[template("t", 2, x=10), artifact], kept=[], present={"x": 10}, protected=()
    )
    assert keys(chosen) == ["jar"]
