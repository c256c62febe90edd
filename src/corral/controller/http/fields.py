"""Kinds of values that bodies and queries share."""

from __future__ import annotations

from typing import Annotated

import msgspec

NAME_MAX = 64
TEXT_MAX = 500

_PRINTABLE = (
    r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff]"
)
"""Neither control characters nor what turns, breaks or hides the text around it: one name must not look like another."""

Name = Annotated[
    str,
    # Python's `$` also matches before a last line feed, which JSON Schema's does not: hence the look-ahead
    msgspec.Meta(min_length=1, max_length=NAME_MAX, pattern=rf"^{_PRINTABLE}+(?!\n)$"),
]
"""A short text for people, without control characters."""

Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX, pattern=rf"^{_PRINTABLE}*(?!\n)$")]
"""A line for people; may be empty."""
