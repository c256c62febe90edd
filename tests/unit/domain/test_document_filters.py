"""Filters: what they mean, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.modules.document_filters import MAX_CHOICES, MAX_NODES, MAX_PATTERNS, matches, parse_filter
from corral.errors import Code, Rejected

ADA = {
    "name": "Ada",
    "score": 10,
    "ratio": 0.5,
    "tags": ["vip", 1],
    "stats": {"wins": 3, "last": None},
    "banned": False,
}


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"name": "Ada"},
        {"_id": "ada"},
        {"_id": {"in": ["bob", "ada"]}},
        {"score": 10.0},
        {"score": {"gt": 9, "lte": 10}},
        {"score": {"gte": 9.5}, "stats.wins": {"lt": 4}},
        {"name": {"gt": "AC", "lt": "B"}},
        {"name": {"ne": "Bob"}},
        {"nothing": {"ne": 1}},
        {"nothing": {"exists": False}},
        {"stats.last": {"exists": True}},
        {"stats.last": None},
        {"tags.0": "vip"},
        {"tags": {"contains": 1}},
        {"tags": {"eq": ["vip", 1]}},
        {"stats": {"eq": {"last": None, "wins": 3.0}}},
        {"name": {"regex": "^A"}},
        {"name": {"regex": "(?i)^aDa$"}},
        {"score": {"in": [1, 10, "x"]}},
        {"or": [{"score": 1}, {"name": "Ada"}]},
        {"and": [{"score": 10}, {"name": "Ada"}]},
        {"not": {"score": 11}},
        {"score": {"not": {"gt": 10}}},
        {"nothing": {"not": {"gt": 10}}},
        {"banned": {"lt": True}},
    ],
)
def test_what_fits(wanted: dict) -> None:
    assert matches(parse_filter(wanted), "ada", ADA)


@pytest.mark.parametrize(
    "wanted",
    [
        {"name": "ada"},
        {"_id": {"gt": "ada"}},
        {"banned": 0},
        {"score": True},
        {"score": {"gt": "1"}},
        {"name": {"gt": 1}},
        {"nothing": None},
        {"nothing": {"lt": 5}},
        {"nothing": {"in": [None]}},
        {"stats.last": {"exists": False}},
        {"tags": "vip"},
        {"tags.7": "vip"},
        {"tags.-1": 1},
        {"name": {"contains": "A"}},
        {"score": {"regex": "1"}},
        {"score": {"gte": 10, "lt": 10}},
        {"not": {}},
        {"or": [{"score": 1}, {"name": "Bob"}]},
    ],
)
def test_what_does_not_fit(wanted: dict) -> None:
    assert not matches(parse_filter(wanted), "ada", ADA)


def _nested(depth: int) -> dict:
    wanted: dict = {"a": 1}
    for _ in range(depth):
        wanted = {"not": wanted}
    return wanted


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ([], "object"),
        ({"score": {"above": 3}}, "above"),
        ({"score": {}}, "no operator"),
        ({"": 1}, "path"),
        ({"a..b": 1}, "path"),
        ({"x" * 300: 1}, "path"),
        ({".".join("a" * 20): 1}, "path"),
        ({"or": []}, "list"),
        ({"and": {"a": 1}}, "list"),
        ({"a": {"exists": 1}}, "true or false"),
        ({"a": {"in": 3}}, "list"),
        ({"a": {"in": list(range(MAX_CHOICES + 1))}}, str(MAX_CHOICES)),
        ({"a": {"regex": 3}}, "text"),
        ({"a": {"regex": "("}}, "pattern"),
        ({"a": {"regex": r"(?=x)"}}, "pattern"),
        ({"or": [{"a": {"regex": "x"}} for _ in range(MAX_PATTERNS + 1)]}, "patterns"),
        ({"or": [{"a": 1} for _ in range(MAX_NODES)]}, str(MAX_NODES)),
        (_nested(20), "nested"),
        ({"a": float("nan")}, "nan"),
        ({"a": 2**64}, "64 bits"),
    ],
)
def test_what_cannot_be_understood_is_refused_and_says_why(wanted: object, word: str) -> None:
    with pytest.raises(Rejected, match=re.escape(word)) as refused:
        parse_filter(wanted)
    assert refused.value.code is Code.QUERY_INVALID


@pytest.mark.trap("T42")
def test_a_pattern_that_would_explode_elsewhere_is_answered() -> None:
    wanted = parse_filter({"text": {"regex": "(a+)+$"}})
    assert not matches(wanted, "x", {"text": "a" * 200_000 + "!"})


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["a", "a.b", "and", "or", "not", "in", "gt", "regex", "exists", "_id", ""]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=10,
)


@settings(max_examples=200)
@given(wanted=JUNK, value=JUNK)
def test_anything_is_either_refused_or_answered(wanted: object, value: object) -> None:
    try:
        answer: object = matches(parse_filter(wanted), "id", {"a": value})
    except Rejected as refused:
        answer = refused.code
    assert answer in (True, False, Code.QUERY_INVALID)
