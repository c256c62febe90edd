"""What a variable may hold, and how a document says so."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from corral.domain.spec import Argument, Spec


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
