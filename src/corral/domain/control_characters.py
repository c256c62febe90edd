"""Characters that steer a terminal or turn the direction of text: refused where people compare texts by eye."""

from __future__ import annotations

import re
from typing import Final

from corral.domain.spec import invalid

_HIDDEN: Final = re.compile(
    "[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees: two names must not look alike."""
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def refuse_control(text: str, field: str) -> None:
    """Refuse a text with one of them, with the field, in which they are spelled out."""
    found = _CONTROL.search(text)
    if found:
        raise invalid(
            _CONTROL.sub(lambda each: _code(each[0]), field[:200]),
            f"it holds the control character {_code(found[0])}",
            "leave it out",
        )


def refuse_hidden(text: str, field: str) -> None:
    """Refuse a name with a control character, or with one that nobody sees."""
    refuse_control(text, field)
    found = _HIDDEN.search(text)
    if found:
        raise invalid(field[:200], f"it holds the invisible character {_code(found[0])}", "leave it out")


def spelled(text: str) -> str:
    """A text in which they are spelled out, but for line breaks: what somebody sent may be shown to somebody else."""
    return _CONTROL.sub(lambda each: each[0] if each[0] == "\n" else _code(each[0]), text)


def without_control(text: str) -> str:
    """The text without them, for what is only shown."""
    return _CONTROL.sub("", text)


def _code(sign: str) -> str:
    return f"U+{ord(sign):04X}"
