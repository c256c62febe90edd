"""Versions: which texts are some, and which goes before which."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.versions import VERSION_MAX, Version, parse_version
from corral.errors import Code, Rejected

ORDERED = [
    "0.0.1",
    "0.1.0",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0--",
    "2.0.0",
]

numbers = st.integers(min_value=0, max_value=10**17)
labels = st.from_regex(r"0|[1-9][0-9]{0,5}|[0-9]{0,3}[A-Za-z-][0-9A-Za-z-]{0,5}", fullmatch=True)
versions = st.builds(
    Version,
    numbers,
    numbers,
    numbers,
    st.lists(labels, max_size=4).map(tuple),
    st.from_regex(r"([0-9A-Za-z-]{1,5}(\.[0-9A-Za-z-]{1,5}){0,2})?", fullmatch=True),
)


def test_versions_are_ordered_as_the_standard_says() -> None:
    parsed = [parse_version(text) for text in ORDERED]
    mixed = parsed[1::2] + parsed[::2]
    assert sorted(mixed) == parsed
    assert all(one < other and one != other for one, other in itertools.pairwise(parsed))


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.02.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+",
     "1.2.3-ä", " 1.2.3", "1.2.3\n", "1.2.3+a+b", "-1.2.3", "1.2.x", "1.2.3-a_b", "١.2.3", "1.2." + "9" * 19,
     "1.0.0-" + "a" * VERSION_MAX],
)  # fmt: skip
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_version(text, field="version")
    assert refused.value.code is Code.INVALID_FIELD
    assert refused.value.field == "version"


def test_build_metadata_counts_for_nothing_but_is_kept() -> None:
    one, other = parse_version("1.2.3+linux.7"), parse_version("1.2.3+mac")
    assert one == other
    assert not one < other
    assert hash(one) == hash(other)
    assert str(one) == "1.2.3+linux.7"


@settings(deadline=None)
@given(versions)
def test_a_version_is_read_back_as_it_was_written(version: Version) -> None:
    again = parse_version(str(version))
    assert again == version
    assert str(again) == str(version)


@settings(deadline=None)
@given(versions, versions, versions)
def test_the_order_is_total_and_goes_through(one: Version, two: Version, three: Version) -> None:
    assert (one < two) + (one == two) + (one > two) == 1
    if one <= two <= three:
        assert one <= three


@settings(deadline=None)
@given(versions)
def test_a_pre_release_goes_before_its_release(version: Version) -> None:
    release = Version(*version.release)
    assert (version < release) == bool(version.prerelease)
