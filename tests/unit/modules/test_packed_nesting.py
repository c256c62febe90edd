"""Depth and parts of msgpack, counted without decoding it: the same as of the decoded value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.sdk.protocol.frame_limits import nesting

pytestmark = pytest.mark.trap("T82")

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.sampled_from(["x" * 40, "x" * 300, "x" * 70_000])
    | st.sampled_from([b"", b"x" * 31, b"x" * 300, b"x" * 70_000])
    | st.sampled_from([0, 1, 2, 4, 5, 8, 16, 17, 300]).map(lambda size: msgspec.msgpack.Ext(5, b"z" * size))
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=40,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def parts_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + parts_of(each) for each in value.values())
    return 1 + sum(map(parts_of, value)) if isinstance(value, list) else 1


@given(VALUES)
def test_what_is_counted_is_what_is_decoded(value: Any) -> None:
    raw, depth, parts = msgspec.msgpack.encode(value) + b"\x01 and more", depth_of(value), parts_of(value)
    assert nesting(raw, depth=depth, parts=parts).problem == ""
    if depth:
        assert (
            nesting(raw, depth=depth - 1, parts=parts).problem == f"is nested deeper than {depth - 1} levels"
        )
    if parts > 1:
        assert nesting(raw, depth=depth, parts=parts - 1).problem == f"has more than {parts - 1} parts"


@pytest.mark.parametrize("raw", [b"", b"\xdf\xff", b"\x9f" * 3, b"\xda\xff\xff", b"\xc1", b"\x82\xa1a"])
def test_what_is_cut_is_left_to_the_decoder(raw: bytes) -> None:
    assert nesting(raw, depth=0, parts=100).problem in ("", "is nested deeper than 0 levels")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\x91" * 4_000_000, "deeper than 33"),
        (b"\xdd\xff\xff\xff\xff" + b"\x90" * 4_000_000, "more than 10,000 parts"),
        (b"\xdf\xff\xff\xff\xff" + b"\xa0\x80" * 2_000_000, "more than 10,000 parts"),
    ],
)
def test_a_large_value_is_read_no_further_than_its_bounds(raw: bytes, told: str) -> None:
    found = nesting(raw, depth=33, parts=10_000)
    assert told in found.problem
    assert found.parts <= 10_000
