"""Updates of module documents: operators on paths, applied to a copy.

    {"set": {"name": "Ada"}, "inc": {"stats.kills": 1}, "push": {"seen": "lobby-1"}, "unset": ["draft"]}

Missing objects on the way to a path are made. Operators are applied in the order they are listed in
`OPERATORS`; two of them may not touch the same path, or one below the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from corral.domain.modules.document_values import (
    MISSING,
    Path,
    check_number,
    check_value,
    invalid,
    order,
    parse_path,
    rank,
    same,
    value_at,
)
from corral.errors import Code, unknown_choice

MAX_STEPS: Final = 100
OPERATORS: Final = ("set", "unset", "inc", "min", "max", "push", "pull")


class UpdateStep(msgspec.Struct, frozen=True):
    operator: str
    path: Path
    value: Any = None


Update = tuple[UpdateStep, ...]


def parse_update(document: object) -> Update:
    """The steps of an update; QUERY_INVALID names what is wrong with it."""
    if not isinstance(document, dict) or not document:
        raise invalid("an update is an object of operators", hint='for example {"set": {"name": "Ada"}}')
    for operator in document:
        if operator not in OPERATORS:
            raise unknown_choice("operator", str(operator)[:40], OPERATORS, code=Code.QUERY_INVALID)
    steps = [step for operator in OPERATORS if operator in document for step in _steps(operator, document)]
    if len(steps) > MAX_STEPS:
        raise invalid(f"an update may have {MAX_STEPS} steps at most")
    _check_paths(steps)
    return tuple(steps)


def apply_update(value: dict[str, Any], update: Update) -> dict[str, Any]:
    """A changed copy; QUERY_INVALID when a step does not fit the document."""
    changed: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    for step in update:
        if step.operator == "unset":
            _remove(changed, step.path)
            continue
        there = value_at(changed, step.path)
        after = _STEPS[step.operator](there, step)
        if after is not there:
            _place(changed, step.path, after)
    return changed


def _steps(operator: str, document: dict[str, Any]) -> list[UpdateStep]:
    given = document[operator]
    if operator == "unset":
        if not isinstance(given, list):
            raise invalid("'unset' takes a list of paths")
        return [UpdateStep(operator, parse_path(path)) for path in given]
    if not isinstance(given, dict):
        raise invalid(f"'{operator}' takes an object of paths and values")
    found = []
    for path, value in given.items():
        check_value(value, what=f"'{operator}' of '{str(path)[:80]}'")
        if operator == "inc" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise invalid(f"'inc' of '{str(path)[:80]}' takes a number")
        found.append(UpdateStep(operator, parse_path(path), value))
    return found


def _check_paths(steps: list[UpdateStep]) -> None:
    ordered = sorted(step.path for step in steps)
    for path, following in itertools.pairwise(ordered):
        if following[: len(path)] == path:
            raise invalid(f"an update touches '{'.'.join(path)}' and '{'.'.join(following)}' at once")
    for path in ordered:
        if path[0] == "_id":
            raise invalid("the id of a document cannot be changed", hint="insert another one")


def _inc(there: Any, step: UpdateStep) -> Any:
    if there is MISSING:
        return step.value
    if isinstance(there, bool) or not isinstance(there, int | float):
        raise _misfit(step, "a number")
    result = there + step.value
    check_number(result, what=f"'inc' of '{'.'.join(step.path)}'")
    return result


def _push(there: Any, step: UpdateStep) -> Any:
    if there is MISSING:
        return [step.value]
    if not isinstance(there, list):
        raise _misfit(step, "an array")
    return [*there, step.value]


def _pull(there: Any, step: UpdateStep) -> Any:
    if there is MISSING:
        return there
    if not isinstance(there, list):
        raise _misfit(step, "an array")
    return [element for element in there if not same(element, step.value)]


def _least(there: Any, step: UpdateStep) -> Any:
    return step.value if _unlike(there, step) or order(step.value) < order(there) else there


def _greatest(there: Any, step: UpdateStep) -> Any:
    return step.value if _unlike(there, step) or order(step.value) > order(there) else there


def _unlike(there: Any, step: UpdateStep) -> bool:
    """True when there is nothing to compare with."""
    if there is MISSING:
        return True
    if rank(there) != rank(step.value):
        raise _misfit(step, "a value of the same kind")
    return False


_STEPS: Final[dict[str, Callable[[Any, UpdateStep], Any]]] = {
    "set": lambda _there, step: step.value,
    "inc": _inc,
    "min": _least,
    "max": _greatest,
    "push": _push,
    "pull": _pull,
}


def _misfit(step: UpdateStep, expected: str) -> Exception:
    return invalid(f"'{step.operator}' of '{'.'.join(step.path)}' needs {expected} there")


def _place(document: Any, path: Path, value: Any) -> None:
    holder = document
    for depth, part in enumerate(path[:-1]):
        inner = value_at(holder, (part,))
        if inner is MISSING and isinstance(holder, dict):
            inner = holder[part] = {}
        if not isinstance(inner, dict | list):
            raise invalid(
                f"'{'.'.join(path)}' leads through '{'.'.join(path[: depth + 1])}', which is no object"
            )
        holder = inner
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif value_at(holder, path[-1:]) is not MISSING:
        holder[int(path[-1])] = value
    else:
        raise invalid(f"'{'.'.join(path)}' is no place in the array", hint="add to an array with 'push'")


def _remove(document: Any, path: Path) -> None:
    holder = value_at(document, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    elif isinstance(holder, list):
        raise invalid(f"'unset' of '{'.'.join(path)}' is in an array", hint="take it out with 'pull'")
