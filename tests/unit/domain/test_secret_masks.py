"""Values of secrets in texts."""

from __future__ import annotations

import json

import pytest

from corral.domain.secret_masks import SecretMask

QUOTED = """say 'hi' "yo\""""
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nabc\n-----END KEY-----"


@pytest.mark.trap("T77")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no secret here", "no secret here"),
        ("cannot log in with hunter2!", "cannot log in with %PW%!"),
        ("hunter2hunter2", "%PW%%PW%"),
        ("hunter2-longer", "%LONG%"),
        (f"bad value {QUOTED!r}", "bad value %QUOTED%"),
        (json.dumps({"v": "two\nlines of it"}), '{"v": "%LINES%"}'),
        ("got: lines of it", "got: %LINES%"),
        (KEY, "%KEY%"),
        ("read MIIEvQIBADANBg", "read %KEY%"),
    ],
)
def test_names_stand_in_place_of_values(text, shown):
    mask = SecretMask(
        {
            "PW": "hunter2",
            "LONG": "hunter2-longer",
            "QUOTED": QUOTED,
            "LINES": "two\nlines of it",
            "KEY": KEY,
            "NONE": "",
        }
    )
    assert mask(text).replace("'", "") == shown.replace("'", "")


def test_without_secrets_there_is_nothing_to_mask():
    assert not SecretMask()
    assert not SecretMask({"EMPTY": ""})
    assert SecretMask()("as it is") == "as it is"
