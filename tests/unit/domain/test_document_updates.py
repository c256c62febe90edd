"""Changing documents in place."""

from __future__ import annotations

import re

import pytest

from corral.domain.modules.document_updates import MAX_STEPS, apply_update, parse_update
from corral.errors import Code, Rejected


@pytest.mark.parametrize(
    ("before", "update", "after"),
    [
        ({}, {"set": {"a": 1}}, {"a": 1}),
        ({"a": 1}, {"set": {"a": {"b": 2}}}, {"a": {"b": 2}}),
        ({}, {"set": {"a.b.c": 1}}, {"a": {"b": {"c": 1}}}),
        ({"a": [1, 2]}, {"set": {"a.1": 9}}, {"a": [1, 9]}),
        ({"a": 1, "b": 2}, {"unset": ["a", "nothing", "b.c"]}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"unset": ["a.b"]}, {"a": {"c": 2}}),
        ({"n": 1}, {"inc": {"n": 2, "m": -1}}, {"n": 3, "m": -1}),
        ({"n": 1}, {"inc": {"n": 0.5}}, {"n": 1.5}),
        ({"n": 5}, {"min": {"n": 3, "m": 1}}, {"n": 3, "m": 1}),
        ({"n": 5}, {"min": {"n": 7}}, {"n": 5}),
        ({"n": 5}, {"max": {"n": 7}}, {"n": 7}),
        ({"n": 5}, {"max": {"n": 3}}, {"n": 5}),
        ({"n": "b"}, {"max": {"n": "c"}}, {"n": "c"}),
        ({}, {"push": {"a": 1}}, {"a": [1]}),
        ({"a": [1]}, {"push": {"a": [2]}}, {"a": [1, [2]]}),
        ({"a": [1, 2, 1.0, True]}, {"pull": {"a": 1}}, {"a": [2, True]}),
        ({}, {"pull": {"a": 1}}, {}),
        ({"a": 1}, {"set": {"b": 2}, "inc": {"a": 1}, "push": {"c": 3}}, {"a": 2, "b": 2, "c": [3]}),
    ],
)
def test_what_an_update_does(before: dict, update: dict, after: dict) -> None:
    untouched = repr(before)
    assert apply_update(before, parse_update(update)) == after
    assert repr(before) == untouched


@pytest.mark.parametrize(
    ("before", "update", "word"),
    [
        ({}, {}, "operators"),
        ({}, [], "operators"),
        ({}, {"rename": {"a": "b"}}, "rename"),
        ({}, {"set": ["a"]}, "paths"),
        ({}, {"unset": {"a": 1}}, "list"),
        ({}, {"inc": {"a": "1"}}, "number"),
        ({}, {"inc": {"a": True}}, "number"),
        ({"a": "x"}, {"inc": {"a": 1}}, "number"),
        ({"a": 2**63 - 1}, {"inc": {"a": 1}}, "64 bits"),
        ({"a": 1e308}, {"inc": {"a": 1e308}}, "inf"),
        ({"a": 1}, {"push": {"a": 1}}, "array"),
        ({"a": 1}, {"pull": {"a": 1}}, "array"),
        ({"a": 1}, {"max": {"a": "x"}}, "same kind"),
        ({"a": 1}, {"set": {"a.b": 1}}, "no object"),
        ({"a": [1]}, {"set": {"a.5": 1}}, "no place"),
        ({"a": [1]}, {"unset": ["a.0"]}, "array"),
        ({}, {"set": {"a": 1}, "inc": {"a": 1}}, "at once"),
        ({}, {"set": {"a": {}}, "inc": {"a.b": 1}}, "at once"),
        ({}, {"set": {"_id": "x"}}, "id of a document"),
        ({}, {"set": {str(n): 1 for n in range(MAX_STEPS + 1)}}, str(MAX_STEPS)),
        ({}, {"set": {"a": float("inf")}}, "inf"),
    ],
)
def test_what_does_not_fit_is_refused_and_says_why(before: dict, update: object, word: str) -> None:
    with pytest.raises(Rejected, match=re.escape(word)) as refused:
        apply_update(before, parse_update(update))
    assert refused.value.code is Code.QUERY_INVALID
