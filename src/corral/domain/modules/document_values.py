"""JSON values of module documents: which may be stored, paths into them, their order, and the keys of
indexes.

The order is total: missing, null, false, true, numbers, texts, arrays, objects. Numbers compare by value,
whether written as 1 or 1.0; texts by code points; arrays element by element; objects as the sorted list of
their keys and values.

Keys of indexes are texts that sort as the values do from which they were made. A store compares ids by code
points. The key of a value is built so that this order is the order of values, that equal values have equal
keys, and that no key is a prefix of another one. So keys of several fields can simply be concatenated.

A key of many characters is cut, and a digest of the whole is added: entries with a cut key are found where
the whole key would be, and two of them are equal only if the values are, but their order among each other is
undefined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.domain.json_limits import MAX_DEPTH
from corral.errors import Code, Rejected

MAX_PATH: Final = 200
MAX_PATH_PARTS: Final = 16
INTEGER_BITS: Final = 63
"""Whole numbers are signed, of 64 bits, as in all our peers."""


class Missing:
    """The value of a path that does not exist; not the same as null."""

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = Missing()

Order = tuple[int, Any]
"""A value's place in the order: tuples of it compare as the values do."""

RANK_MISSING: Final = 0
RANK_NULL: Final = 1
RANK_BOOLEAN: Final = 2
RANK_NUMBER: Final = 3
RANK_TEXT: Final = 4
RANK_ARRAY: Final = 5
RANK_OBJECT: Final = 6


def rank(value: object) -> int:
    """The kind of a value, as a number that orders the kinds."""
    if value is None:
        return RANK_NULL
    if value is MISSING:
        return RANK_MISSING
    if isinstance(value, bool):
        return RANK_BOOLEAN
    if isinstance(value, int | float):
        return RANK_NUMBER
    if isinstance(value, str):
        return RANK_TEXT
    return RANK_OBJECT if isinstance(value, dict) else RANK_ARRAY


def order(value: Any) -> Order:
    """Values are equal when their orders are; 1 and 1.0 are, true and 1 are not."""
    kind = rank(value)
    if kind in (RANK_MISSING, RANK_NULL):
        return (kind, 0)
    if kind == RANK_ARRAY:
        return (kind, tuple(order(element) for element in value))
    if kind == RANK_OBJECT:
        return (kind, tuple((key, order(value[key])) for key in sorted(value)))
    return (kind, value)


def same(one: Any, other: Any) -> bool:
    return order(one) == order(other)


Path = tuple[str, ...]


def parse_path(text: object) -> Path:
    """The parts of `stats.kills`; a number is an index of an array. QUERY_INVALID when it is no path."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_PATH:
        raise invalid(
            f"{str(text)[:80]!r} is not a path",
            hint=f"write field names joined by dots, {MAX_PATH} characters at most",
        )
    parts = tuple(text.split("."))
    if not all(parts) or len(parts) > MAX_PATH_PARTS:
        raise invalid(
            f"{text!r} is not a path", hint=f"between 1 and {MAX_PATH_PARTS} names joined by single dots"
        )
    return parts


def value_at(value: Any, path: Path) -> Any:
    """The value at the path, or MISSING."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit():
            place = int(part) if len(part) < 8 else len(value)
            value = value[place] if place < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def check_value(value: Any, *, what: str, depth: int = 0) -> None:
    """Refuse what is no JSON value, is nested too deeply, or is a number that some peer cannot represent."""
    if depth > MAX_DEPTH:
        raise invalid(f"{what} is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        check_number(value, what=what)
    elif isinstance(value, list):
        for element in value:
            check_value(element, what=what, depth=depth + 1)
    elif isinstance(value, dict):
        for key, element in value.items():
            if not isinstance(key, str):
                raise invalid(f"{what} has a key that is not text: {str(key)[:40]!r}")
            check_value(element, what=what, depth=depth + 1)
    else:
        raise invalid(f"{what} holds a {type(value).__name__}, which is no JSON value")


def check_number(value: float, *, what: str) -> None:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise invalid(f"{what} holds {value}, which is no JSON value")
    elif not -(2**INTEGER_BITS) <= value < 2**INTEGER_BITS:
        raise invalid(f"{what} holds a whole number beyond 64 bits")


def invalid(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected(Code.QUERY_INVALID, message, hint=hint)


KEY_LENGTH: Final = 200
"""Characters. PostgreSQL takes about 2,700 bytes in an index; a character has up to four."""

_END: Final = "\x01"
"""Ends texts, arrays and objects, so that what is shorter comes first."""
_ESCAPES: Final = str.maketrans({"\x00": "\x02\x01", "\x01": "\x02\x02", "\x02": "\x02\x03"})
_CUT: Final = "\x01#"
_OWNER: Final = "!"
"""Between the key and the part that distinguishes entries of equal keys. Lower than every tag."""
_ABOVE: Final = ":"
"""Higher than everything that may follow a key or a part of one."""

_BIAS: Final = 2048
_FRACTION_BITS: Final = 64
_COMPLEMENT: Final = str.maketrans("0123456789abcdef", "fedcba9876543210")


def key_of(value: Any) -> str:
    """The key of one value, however long. Its first character is the value's rank."""
    kind = rank(value)
    tag = str(kind)
    if kind == RANK_BOOLEAN:
        return tag + ("1" if value else "0")
    if kind == RANK_NUMBER:
        return tag + _number(value)
    if kind == RANK_TEXT:
        return tag + _text(value)
    if kind == RANK_ARRAY:
        return tag + "".join(map(key_of, value)) + _END
    if kind == RANK_OBJECT:
        return tag + "".join("0" + _text(key) + key_of(value[key]) for key in sorted(value)) + _END
    return tag


def entry_id(key: str, owner: str) -> str:
    """The id of an index entry. An index that allows a key only once leaves the owner empty."""
    return cut(key) + _OWNER + owner


def cut(key: str) -> str:
    return key if len(key) <= KEY_LENGTH else key[:KEY_LENGTH] + _CUT + _digest(key)


def is_cut(key: str) -> bool:
    return len(key) > KEY_LENGTH


class KeyRange(msgspec.Struct, frozen=True):
    """Entries between two bounds, neither included: `after` and `before` of a scan."""

    after: str
    before: str | None = None


def range_of_prefix(values: Sequence[Any]) -> KeyRange:
    """All entries whose first fields are these values; perhaps some more, when the key is cut."""
    prefix = "".join(map(key_of, values))
    return KeyRange(prefix[:KEY_LENGTH], _upper(prefix + _ABOVE))


def range_between(values: Sequence[Any], kind: int, *, low: Any = MISSING, high: Any = MISSING) -> KeyRange:
    """Entries whose first fields are these values and whose next one is of this rank, within `low` and
    `high`, both included, where they are given; perhaps some more, when a key is cut."""
    prefix = "".join(map(key_of, values))
    lower = prefix + (str(kind) if low is MISSING else key_of(low))
    upper = prefix + (str(kind + 1) if high is MISSING else key_of(high) + _ABOVE)
    return KeyRange(lower[:KEY_LENGTH], _upper(upper))


def _upper(bound: str) -> str:
    return bound if len(bound) <= KEY_LENGTH else bound[:KEY_LENGTH] + _ABOVE


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _text(value: str) -> str:
    return value.translate(_ESCAPES) + _END


def _number(value: float) -> str:
    """Sign, exponent and fraction of the exact binary value: the same digits for 1 and 1.0."""
    if value == 0:
        return "1"
    numerator, denominator = abs(value).as_integer_ratio()
    bits = numerator.bit_length()
    exponent = bits - denominator.bit_length()  # exact, for the denominator is a power of two
    shift = _FRACTION_BITS + 1 - bits
    # To the right nothing is lost: so large a number is a float, and ends in zeros.
    mantissa = numerator << shift if shift >= 0 else numerator >> -shift
    fraction = mantissa - (1 << _FRACTION_BITS)
    digits = f"{exponent + _BIAS:03x}{fraction:016x}"
    return "2" + digits if value > 0 else "0" + digits.translate(_COMPLEMENT)
