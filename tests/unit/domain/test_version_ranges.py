"""Ranges: every form that authors write, and what lies in it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.versions import RANGE_MAX, Version, parse_range, parse_version
from corral.errors import Code, Rejected


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=1.0 <2", "1.0.0 1.0.1 1.99.0 1.5.0+b", "0.9.9 2.0.0 2.0.0-rc.1 1.0.0-rc.1 1.5.0-beta"),
        (">= 1.0  <2", "1.0.0", "2.0.0"),
        (">1.2", "1.3.0 2.0.0", "1.2.0 1.2.9"),
        (">1.2.3", "1.2.4", "1.2.3 1.2.2"),
        ("<=1.2", "1.2.0 1.2.9 0.1.0", "1.3.0"),
        ("<=1.2.3", "1.2.3", "1.2.4"),
        ("=1.2.3", "1.2.3 1.2.3+b", "1.2.4 1.2.3-rc.1"),
        ("1.2.3", "1.2.3", "1.2.4 1.2.2"),
        ("1.2", "1.2.0 1.2.9", "1.3.0 1.1.9"),
        ("1", "1.0.0 1.9.9", "2.0.0 0.9.9"),
        ("1.x", "1.0.0 1.9.9", "2.0.0 0.9.9"),
        ("1.2.X", "1.2.0 1.2.9", "1.3.0"),
        ("1.*", "1.0.0", "2.0.0"),
        ("1.x.x", "1.7.0", "2.0.0"),
        ("^1.2", "1.2.0 1.9.0", "1.1.9 2.0.0 2.0.0-rc.1"),
        ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"),
        ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("^0", "0.0.0 0.9.9", "1.0.0"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0 1.1.9"),
        ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
        ("~1", "1.0.0 1.9.9", "2.0.0"),
        ("[1.0,2.0)", "1.0.0 1.9.9", "2.0.0 0.9.9 2.0.0-rc.1"),
        ("[ 1.0 , 2.0 ]", "2.0.0", "2.0.1"),
        ("(1.0,2.0]", "1.0.1 2.0.0", "1.0.0"),
        ("[1.0,)", "1.0.0 99.0.0", "0.9.9"),
        ("(,2.0)", "0.0.0 1.9.9", "2.0.0"),
        ("[1.2.3]", "1.2.3", "1.2.4"),
        ("*", "0.0.0 9.9.9 1.0.0-alpha", ""),
        ("x", "1.0.0-alpha", ""),
        (">=0.0.0", "0.0.0", "1.0.0-alpha"),
        ("^1.2.3-beta.2", "1.2.3-beta.2 1.2.3-rc.1 1.2.3 1.9.0", "1.2.3-beta.1 1.2.4-beta.3 1.3.0-beta.9"),
        (">=2.0.0-rc.1 <3", "2.0.0-rc.1 2.0.0 2.5.0", "2.0.0-alpha 3.0.0-rc.1 2.5.0-rc.1"),
        ("^1.2 || ^3", "1.2.0 3.5.0", "2.0.0 4.0.0"),
        ("1.0.0||[2.0,3.0)", "1.0.0 2.1.0", "1.0.1 3.0.0"),
    ],
)  # fmt: skip
def test_a_range_lets_in_what_it_says(text: str, inside: str, outside: str) -> None:
    range = parse_range(text)
    assert [each for each in inside.split() if not range.allows(each)] == []
    assert [each for each in outside.split() if range.allows(each)] == []
    assert str(range) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "||", "^1 ||", "abc", ">>1", ">", "1.2.3.4", "1.x.3", "^1.2-beta", "[1,2", "[1,2,3]", "[,]", "(1.0)",
     "[2.0,1.0]", "[1.x,2]", ">*", "<x", "1.0,2.0", "01.2", "1..2", ">=1.0<2", "!=1.0", "latest", "1.0 - 2.0",
     ">=1.0 and <2", "1.2.3-", "^1" + " ^1" * RANGE_MAX],
)  # fmt: skip
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_range(text, field="api")
    assert refused.value.code is Code.INVALID_FIELD
    assert refused.value.field == "api"
    assert "^1.2" in (refused.value.hint or "")


small = st.integers(min_value=0, max_value=4)
releases = st.builds(Version, small, small, small)


@settings(deadline=None)
@given(releases, releases)
def test_a_caret_never_lets_another_first_number_in(base: Version, asked: Version) -> None:
    if parse_range(f"^{base}").allows(asked):
        assert asked >= base
        assert asked.major == base.major


@settings(deadline=None)
@given(releases, releases)
def test_bounds_and_intervals_mean_the_same(low: Version, asked: Version) -> None:
    high = Version(low.major + 1, low.minor)
    assert parse_range(f">={low} <{high}").allows(asked) == parse_range(f"[{low},{high})").allows(asked)
    assert parse_range(f">{low} <={high}").allows(asked) == parse_range(f"({low},{high}]").allows(asked)


@settings(deadline=None)
@given(st.text(alphabet="0123456789.x*^~<>=[](),| -ab", max_size=20), releases)
def test_any_text_is_a_range_or_refused(text: str, asked: Version) -> None:
    with contextlib.suppress(Rejected):
        assert parse_range(text).allows(asked) in (True, False)


def test_a_version_that_is_none_is_refused_when_asked_for() -> None:
    with pytest.raises(Rejected):
        parse_range("*").allows("nonsense")
    assert parse_range("^1").allows(parse_version("1.4.0"))
