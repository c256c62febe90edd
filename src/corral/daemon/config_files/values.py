"""Value of a patch: with its variables, and with the type it takes at its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.domain.groups.variables import substitute

_WHOLE: Final = re.compile(r"%[A-Z][A-Z0-9_]{0,127}%")
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_TRUTHS: Final = {"true": True, "false": False}


class Untyped(msgspec.Struct, frozen=True):
    """A text that is nothing but one variable. Variables are texts, so `%PORT%` does not determine the intended type:
    the existing value at its path does, or its form."""

    text: str


def with_variables(value: Any, values: Mapping[str, str]) -> Any:
    """The value with every known `%NAME%` replaced, in the texts of lists and maps, too; keys stay."""
    if isinstance(value, str):
        text = substitute(value, values).text
        return Untyped(text) if _WHOLE.fullmatch(value) and text != value else text
    if isinstance(value, Mapping):
        return {str(key): with_variables(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_variables(item, values) for item in value]
    return value


def settled(value: Any, *, text: bool = False) -> Any:
    """The value as it is written. `text`: the existing value is a text, so an untyped one becomes a text."""
    if isinstance(value, Untyped):
        return value.text if text else _guessed(value.text)
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item) for item in value]
    return value


def as_text(value: Any) -> str | None:
    """The value in a format that has only texts; None: lists and maps have no such form."""
    if isinstance(value, Untyped):
        return value.text
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _guessed(text: str) -> str | int | bool:
    if _INTEGER.fullmatch(text):
        return int(text)
    return _TRUTHS.get(text, text)
