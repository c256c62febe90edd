"""The values of secrets, told apart from the text around them."""

from __future__ import annotations

import pytest

from corral.daemon.workload.variable_values import filled_in


@pytest.mark.parametrize(
    ("text", "result", "found"),
    [
        ("%PW%", "old one", {"PW": "old one"}),
        ("%PW%", "", {"PW": ""}),
        ("%PW%", "two\nlines", {"PW": "two\nlines"}),
        ("db://%USER%:%PW%@%HOST%/x", "db://me:a(b.*@h.example/x", {"USER": "me", "PW": "a(b.*"}),
        ("%NOBODY% %PW%", "%NOBODY% old", {"PW": "old"}),
        ("key=%PW%", "something else", {"PW": "something else"}),
        ("x" * 2000 + "%PW%", "x" * 2000 + "old", {"PW": "x" * 2000 + "old"}),
    ],
)
def test_what_was_filled_in_is_found_again(text, result, found):
    assert filled_in(text, result, {"HOST": "h.example"}, {"PW", "USER"}) == found
