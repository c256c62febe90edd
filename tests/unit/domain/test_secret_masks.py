"""Values of secrets in texts."""

from __future__ import annotations

import json

import pytest

from corral.domain.groups.secret_masks import SecretMask

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
        ("read pin4711 and ab", "read %PINS% and ab"),
        (f"""amid {"it's " + chr(34) + "it's"!r}""", 'amid %IT% "%IT%'),
        (json.dumps('é"→', ensure_ascii=False), '"%ACCENTS%"'),
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
            "PINS": "pin4711\n  ab\n",
            "IT": "it's",
            "ACCENTS": 'é"→',
            "NONE": "",
        }
    )
    assert mask(text).replace("'", "") == shown.replace("'", "")


def test_without_secrets_there_is_nothing_to_mask():
    assert not SecretMask()
    assert not SecretMask({"EMPTY": ""})
    assert SecretMask()("as it is") == "as it is"


def test_short_lines_of_a_value_are_not_looked_for_in_files():
    first = SecretMask({"PINS": "pin4711\ntrue\nlonger than that"})
    assert first.vague == {"pin4711", "true"}
    assert (first | SecretMask({"WORD": "true"})).vague == {"pin4711"}
    assert SecretMask({"PINS": "pin4711\ntrue", "WORD": "true"}).vague == {"pin4711"}
