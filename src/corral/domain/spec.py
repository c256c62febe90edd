"""The base of the parts of operators' documents: strict parsing, bounded numbers and texts, and declared variables."""

from __future__ import annotations

import enum
import re
from typing import Annotated, Final

import msgspec

from corral.errors import Code, Rejected

MOST_COUNTED: Final = 10_000
"""Instances of one group, and other things that an operator counts."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=31_536_000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Argument = Annotated[str, msgspec.Meta(max_length=131_072)]
PathText = Annotated[str, msgspec.Meta(max_length=4096)]
"""A path or a glob, relative to a working directory; see `file_paths`."""
_PERCENT: Final = "^(100|[1-9]?[0-9])%"
Share = Annotated[str, msgspec.Meta(pattern=rf"{_PERCENT}(?!\n)$")]
"""A part of a number of instances, such as `25%`; see `share_of`."""
MetricName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}(?!\n)$")]
"""The name of a value that a workload reports."""
Digest = Annotated[str, msgspec.Meta(pattern=r"^(|[0-9a-f]{64})$")]
"""A SHA-256 in lower-case hex, or empty for none."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Base of the parts of a document: an unknown key is an error."""


def share_of(part: int | str, whole: int) -> int:
    """A number as it is, or a share (`25%`) of `whole`, rounded up."""
    if isinstance(part, int):
        return part
    return -(-int(part.removesuffix("%")) * whole // 100)


_EXPECTED: Final = re.compile(r"Expected `(?P<kinds>[a-z_ |]+)`(?P<bounds>.*)", re.DOTALL)
_KINDS: Final = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def next_step(problem: str) -> str | None:
    """What to write instead, from the sentence of a decoder about a value; None: the sentence does not say."""
    found = _EXPECTED.match(problem)
    if found is None:
        return None
    if _PERCENT in problem:
        return "write a number, or a share such as 25%"
    kinds = [_KINDS.get(kind.strip(), kind.strip()) for kind in found["kinds"].split("|")]
    bounds = "" if found["bounds"].startswith(", got") else found["bounds"].replace("`", "")[:120]
    return f"write {' or '.join(kinds)}{bounds}"


def invalid(field: str, why: str, hint: str) -> Rejected:
    return Rejected(Code.INVALID_FIELD, f"{field}: {why}", hint=hint, field=field)


class VariableType(enum.StrEnum):
    STRING = "string"
    INT = "int"
    BOOL = "bool"
    ENUM = "enum"
    SECRET = "secret"  # noqa: S105 - the name of a type
    """Its value is a reference, `file://NAME` or `env://CORRAL_SECRET_NAME`, that the node looks up."""


class VariableSpec(Spec, frozen=True, kw_only=True):
    """The declaration of a variable."""

    type: VariableType = VariableType.STRING
    default: Argument | None = None
    required: bool = False
    """Without a value nothing is started."""
    choices: tuple[Argument, ...] = ()
    """Of an `enum`."""
    min: int | None = None
    max: int | None = None
    """Of an `int`; of a `string` the number of its characters."""
    pattern: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """RE2; the whole of a `string` must match."""
    description: Annotated[str, msgspec.Meta(max_length=1000)] = ""
