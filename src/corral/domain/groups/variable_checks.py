"""Checks of values against their declarations. A refusal names the variable, its type and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.domain.file_paths import check_path
from corral.domain.groups.variables import BUILT_IN
from corral.domain.patterns import compile_pattern
from corral.domain.spec import VariableSpec, VariableType
from corral.errors import Code, Rejected

MAX_VARIABLES: Final = 1000
SECRET_PREFIX: Final = "CORRAL_SECRET_"  # noqa: S105 - a prefix of names
"""The prefix of environment variables of a node that may be named as secrets."""
JOIN_VARIABLE: Final = f"{SECRET_PREFIX}JOIN"
"""The variable with a daemon's join token, as an argument would be visible to every user of the host: never a
workload's."""
BOOLEANS: Final = ("true", "false")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,127}")
_INT: Final = re.compile(r"[+-]?[0-9]{1,18}")
_SECRET_NAME: Final = re.compile(re.escape(SECRET_PREFIX) + r"[A-Za-z0-9_]{1,128}")
_SHOWN: Final = 40


class SecretReference(msgspec.Struct, frozen=True, kw_only=True):
    """The place where a node looks a secret up."""

    kind: str
    """`file`: below the node's secrets directory; `env`: in the daemon's environment."""
    name: str


def check_variable_name(name: str, *, field: str) -> str:
    """A name that can be written as `%NAME%`."""
    if _NAME.fullmatch(name) is None:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{field}: {name[:80]!r} cannot be the name of a variable",
            hint="use 1 to 128 of A-Z, 0-9 and '_', beginning with a letter",
            field=field,
        )
    return name


def check_declaration(name: str, spec: VariableSpec, *, field: str) -> None:
    """Refuse a declaration that no value could meet, and a default that does not."""
    check_variable_name(name, field=field)
    problem = ""
    if (spec.type is VariableType.ENUM) != bool(spec.choices):
        problem = "'choices' belong to an enum, and an enum needs them"
    elif spec.min is not None and spec.max is not None and spec.min > spec.max:
        problem = f"min {spec.min} is above max {spec.max}"
    elif spec.pattern and spec.type not in (VariableType.STRING, VariableType.SECRET):
        problem = f"a pattern belongs to a string, not to a variable of type {spec.type}"
    elif (spec.min is not None or spec.max is not None) and spec.type in (
        VariableType.ENUM,
        VariableType.BOOL,
    ):
        problem = f"min and max do not belong to a variable of type {spec.type}"
    if problem:
        raise Rejected(Code.INVALID_FIELD, f"{field}: {problem}", hint="correct the declaration", field=field)
    if spec.pattern:
        compile_pattern(spec.pattern, field=f"{field}/pattern")
    if spec.default is not None:
        check_value(name, spec, spec.default, field=f"{field}/default")


def check_value(name: str, spec: VariableSpec, value: str, *, field: str | None = None) -> str:
    """The value itself when it fits; of a secret its reference is checked, for here it has no other value."""
    at = field or f"variables/{name}"
    if "\0" in value:
        raise _misfit(name, spec, "it holds a NUL character", "a text without it", at)
    match spec.type:
        case VariableType.STRING:
            _check_text(name, spec, value, at, f"{_shown(value)} does not match")
        case VariableType.INT:
            _check_int(name, spec, value, at)
        case VariableType.BOOL if value not in BOOLEANS:
            raise _misfit(name, spec, f"{_shown(value)} is none", "true or false", at)
        case VariableType.ENUM if value not in spec.choices:
            raise _misfit(name, spec, f"{_shown(value)} is none of its choices", _choices(spec), at)
        case VariableType.SECRET:
            check_secret_reference(value, field=at)
    return value


def check_values(
    types: Mapping[str, VariableSpec],
    values: Mapping[str, str],
    *,
    field: str = "variables",
    complete: bool = False,
) -> None:
    """Every value that is declared fits; with `complete` none that is required is missing."""
    for name, spec in types.items():
        value = values.get(name)
        if value is not None:
            check_value(name, spec, value, field=f"{field}/{name}")
        elif complete and spec.required:
            raise Rejected(
                Code.VARIABLE_INVALID,
                f"variable '{name}' ({spec.type}) needs a value",
                hint=f"give it in the group's variables, or with the start; allowed: {_allowed(spec)}",
                field=f"{field}/{name}",
            )


def check_names(values: Mapping[str, str], *, field: str) -> None:
    """The names of a layer, and how many there are."""
    if len(values) > MAX_VARIABLES:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{field}: {len(values)} variables are more than {MAX_VARIABLES}",
            hint="put what is longer into a file of a template",
            field=field,
        )
    for name, value in values.items():
        check_variable_name(name, field=f"{field}/{name[:80]}")
        if name in BUILT_IN:
            raise Rejected(
                Code.VARIABLE_INVALID,
                f"{field}: '{name}' is built in and has its value from Corral",
                hint="choose another name",
                field=f"{field}/{name}",
            )
        if "\0" in value:
            raise Rejected(
                Code.VARIABLE_INVALID,
                f"variable '{name}' holds a NUL character",
                hint="leave it out",
                field=f"{field}/{name}",
            )


def check_secret_reference(value: str, *, field: str) -> SecretReference:
    """`file://NAME` below the node's secrets directory, or `env://CORRAL_SECRET_NAME`. Never shown: a value
    that is no reference may be the secret itself, given by mistake."""
    if value.startswith("file://"):
        name = value.removeprefix("file://")
        try:
            check_path(name, field=field)
        except Rejected:
            raise _no_reference(field, "its path is not beneath the secrets directory") from None
        return SecretReference(kind="file", name=name)
    name = value.removeprefix("env://")
    if value.startswith("env://") and name == JOIN_VARIABLE:
        raise _no_reference(field, f"{JOIN_VARIABLE} is the join token of the daemon itself")
    if value.startswith("env://") and _SECRET_NAME.fullmatch(name):
        return SecretReference(kind="env", name=name)
    raise _no_reference(
        field,
        f"its name has not the prefix {SECRET_PREFIX}"
        if value.startswith("env://")
        else "it is no reference",
    )


def check_secret_value(name: str, spec: VariableSpec, value: str) -> None:
    """Check the value found for a secret, on the node. The refusal does not show it."""
    if "\0" in value:
        raise _misfit(name, spec, "it holds a NUL character", "a text without it", None)
    _check_text(name, spec, value, None, "what its reference leads to does not match")


def _check_text(name: str, spec: VariableSpec, value: str, field: str | None, mismatch: str) -> None:
    low, high = spec.min or 0, spec.max
    if len(value) < low or (high is not None and len(value) > high):
        raise _misfit(name, spec, f"it has {len(value)} characters", _allowed(spec), field)
    if spec.pattern:
        try:
            fits = compile_pattern(spec.pattern).fullmatch(value) is not None
        except UnicodeError:
            fits = False
        if not fits:
            raise _misfit(name, spec, mismatch, _allowed(spec), field)


def _check_int(name: str, spec: VariableSpec, value: str, field: str) -> None:
    if _INT.fullmatch(value) is None:
        raise _misfit(name, spec, f"{_shown(value)} is none", _allowed(spec), field)
    number = int(value)
    if (spec.min is not None and number < spec.min) or (spec.max is not None and number > spec.max):
        raise _misfit(name, spec, f"{number} is out of its bounds", _allowed(spec), field)


def _allowed(spec: VariableSpec) -> str:
    match spec.type:
        case VariableType.BOOL:
            return "true or false"
        case VariableType.ENUM:
            return _choices(spec)
        case VariableType.SECRET if not spec.pattern:
            return f"file://NAME or env://{SECRET_PREFIX}NAME"
    unit = "an integer" if spec.type is VariableType.INT else "text"
    measure = "" if spec.type is VariableType.INT else " characters"
    bounds = [f"at least {spec.min}{measure}"] if spec.min is not None else []
    bounds += [f"at most {spec.max}{measure}"] if spec.max is not None else []
    bounds += [f"matching {spec.pattern[:200]!r} as a whole"] if spec.pattern else []
    return ", ".join([unit, *bounds])


def _choices(spec: VariableSpec) -> str:
    return ", ".join(choice[:_SHOWN] for choice in spec.choices[:50])


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[: _SHOWN - 3] + "...")


def _misfit(name: str, spec: VariableSpec, why: str, allowed: str, field: str | None) -> Rejected:
    return Rejected(
        Code.VARIABLE_INVALID,
        f"variable '{name}' must be of type {spec.type}: {why}",
        hint=f"allowed: {allowed}",
        field=field,
    )


def _no_reference(field: str, why: str) -> Rejected:
    return Rejected(
        Code.VARIABLE_INVALID,
        f"{field}: the reference of a secret is refused: {why}",
        hint=f"write file://NAME (a file in the node's secrets directory) or env://{SECRET_PREFIX}NAME",
        field=field,
    )
