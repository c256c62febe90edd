"""Values as YAML text: so that they are read back as what they are, by YAML 1.1 and 1.2 alike."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.daemon.config_files.faults import Impossible
from corral.daemon.config_files.yaml_nodes import NULL, STR

STEP: Final = 2
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*", re.ASCII)
_WORDS: Final = frozenset(["y", "yes", "n", "no", "on", "off", "true", "false", "null"])
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_QUOTABLE: Final = re.compile(r"[ -~]*", re.ASCII)


class Scalar(msgspec.Struct, frozen=True):
    """A scalar that is written as it is: its text there, the tag and the value it is read as."""

    text: str
    tag: str
    value: str


def scalar(value: Any, *, style: str = "") -> Scalar:
    """A scalar's text in one line; a string keeps the single quotes that `style` says it had."""
    if isinstance(value, Scalar):
        return value
    if value is None:
        return Scalar("null", NULL, "null")
    if isinstance(value, str):
        return Scalar(_string(value, style), STR, value)
    if isinstance(value, bool):
        text, kind = "true" if value else "false", "bool"
    elif isinstance(value, int):
        text, kind = str(value), "int"
    else:
        text, kind = _float(float(value)), "float"
    return Scalar(text, f"tag:yaml.org,2002:{kind}", text)


def flow(value: Any) -> str:
    """In one line, with brackets."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key).text}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value).text


def is_one_line(value: Any) -> bool:
    return not (isinstance(value, Mapping | list | tuple) and value)


def block(value: Any, indent: int) -> list[str]:
    """A map or a list that is not empty, over several lines."""
    blanks = " " * indent
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            lines += entry(scalar(key).text, item, indent)
        return lines
    for item in value:
        if is_one_line(item):
            lines.append(f"{blanks}- {flow(item)}")
        else:
            first, *rest = block(item, indent + STEP)
            lines += (f"{blanks}- {first.lstrip(' ')}", *rest)
    return lines


def entry(key: str, value: Any, indent: int) -> list[str]:
    """A key, as it is written, and its value."""
    blanks = " " * indent
    if is_one_line(value):
        return [f"{blanks}{key}: {flow(value)}"]
    return [f"{blanks}{key}:", *block(value, indent + STEP)]


def _string(text: str, style: str) -> str:
    if style == "'" and _QUOTABLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    if not style and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Impossible("YAML has no such text") from None
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _float(number: float) -> str:
    if math.isnan(number):
        return ".nan"
    if math.isinf(number):
        return ".inf" if number > 0 else "-.inf"
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    # YAML 1.1 wants a point in the mantissa.
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"
