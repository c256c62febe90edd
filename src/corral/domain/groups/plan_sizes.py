"""How large the plan of a group may be, and whether the texts of a document are longer than that: found without making the
plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import PlanRecord
from corral.errors import Code, Rejected

MOST_BYTES: Final = 768 * 1024
"""An order contains a plan's values more than once, and must fit into one frame of the link."""
_QUOTES: Final = 3
"""Of a text in JSON, with the sign behind it."""


def refuse_long_texts(spec: GroupSpec) -> None:
    """Refuse a group whose plan would be too large by what it takes over from the document. It takes no longer than the
    largest plan does, however long the document is."""
    left = MOST_BYTES
    for texts in (
        spec.command,
        spec.args,
        spec.merge,
        spec.substitute,
        spec.protected_paths,
        spec.warmup.paths,
        spec.jvm.args if spec.jvm else (),
        spec.env,
        spec.variables,
        spec.properties,
        *(each.command for each in spec.probes),
    ):
        left -= _texts(texts, left)
    for value in (spec.patches, spec.stop, spec.variable_types):
        left = _left(value, left)
    if left < 0:
        raise _too_large(spec, f"more than {MOST_BYTES}")


def check_plan_size(spec: GroupSpec, record: PlanRecord) -> None:
    size = len(record.body.encode())
    if size > MOST_BYTES:
        raise _too_large(spec, str(size))


def _too_large(spec: GroupSpec, size: str) -> Rejected:
    return Rejected(
        Code.BODY_TOO_LARGE,
        f"the plan of group '{spec.name}' has {size} bytes",
        hint=f"keep it below {MOST_BYTES}: put long values into files of a template",
    )


def _texts(texts: Collection[str], most: int) -> int:
    """The bytes of these, or more than `most`."""
    count = _QUOTES * len(texts)
    if count > most:
        return count
    if isinstance(texts, Mapping):
        return 2 * count + sum(map(len, texts)) + sum(map(len, texts.values()))
    return count + sum(map(len, texts))


def _left(value: Any, left: int) -> int:
    """What is left of so many bytes after this value, below 0 if it has more."""
    if left < 0:
        return left
    if isinstance(value, str):
        return left - len(value) - _QUOTES
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        left -= sum(map(len, names)) + _QUOTES * len(names)
        value = [getattr(value, name) for name in names]
    elif isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, Sequence):
        for each in value:
            left = _left(each, left)
            if left < 0:
                break
        return left
    return left - 2
