"""Query plan: how documents are found: by their ids, along a range of an index, or by a scan of everything.

Pure. A plan only narrows the candidates; the search checks each document against the whole filter. So a plan
can be slow, but never wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.controller.modules.data.collection_facts import IndexFacts
from corral.controller.modules.data.spaces import is_id
from corral.domain.modules.document_filters import ID_PATH, Compare, Filter, OneOf, conjuncts
from corral.domain.modules.document_values import (
    MISSING,
    KeyRange,
    Path,
    invalid,
    order,
    parse_path,
    range_between,
    range_of_prefix,
    rank,
)

MAX_SORT_FIELDS: Final = 8
_MAX_RANGES: Final = 50


class SortField(msgspec.Struct, frozen=True):
    path: Path
    down: bool


Sort = tuple[SortField, ...]


class ByIds(msgspec.Struct, frozen=True):
    ids: tuple[str, ...]


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A walk along the collection itself (`index` None), or along an index. `sorted`: documents come in the
    requested order, so that the walk may end early. `prefix`: the values that the first fields of the index
    have in all of them, when there is one range only."""

    ranges: tuple[KeyRange, ...]
    index: IndexFacts | None = None
    prefix: tuple[Any, ...] = ()
    down: bool = False
    sorted: bool = False


Plan = ByIds | Walk


def parse_sort(fields: Sequence[str]) -> Sort:
    if len(fields) > MAX_SORT_FIELDS:
        raise invalid(f"at most {MAX_SORT_FIELDS} fields can be sorted by")
    found = tuple(SortField(parse_path(text.removeprefix("-")), text.startswith("-")) for text in fields)
    if len({field.path for field in found}) != len(found):
        raise invalid("a field is sorted by twice")
    return found


def ties_go_down(sort: Sort) -> bool:
    """Documents that are equal in all sort fields are ordered by id, in the direction of the last field."""
    return bool(sort) and sort[-1].down


def plan(where: Filter, sort: Sort, indexes: Sequence[IndexFacts]) -> Plan:
    limits = _limits(where)
    own = limits.get(ID_PATH)
    if own is not None and own.choices is not None:
        return ByIds(tuple(dict.fromkeys(each for each in own.choices if is_id(each))))
    candidates = [_along(index, limits, sort) for index in indexes if index.built]
    best = max((each for each in candidates if each is not None), key=lambda each: each[0], default=None)
    return _through_all(own, sort) if best is None else best[1]


class _Limit(msgspec.Struct):
    """The requirement of a filter on one path: one of some values, or within bounds of one rank."""

    choices: tuple[Any, ...] | None = None
    kind: int | None = None
    low: Any = MISSING
    high: Any = MISSING


def _limits(where: Filter) -> dict[Path, _Limit]:
    found: dict[Path, _Limit] = {}
    for condition in conjuncts(where):
        match condition:
            case Compare(path, "eq", value):
                found.setdefault(path, _Limit()).choices = (value,)
            case OneOf(path, values):
                limit = found.setdefault(path, _Limit())
                if limit.choices is None or len(values) < len(limit.choices):
                    limit.choices = values
            case Compare(path, operator, value) if operator != "ne":
                _bound(found.setdefault(path, _Limit()), operator, value)
    return found


def _bound(limit: _Limit, operator: str, value: Any) -> None:
    if limit.kind is None:
        limit.kind = rank(value)
    if limit.kind != rank(value):
        return  # no value fits both; the evaluation finds no document
    if operator in ("gt", "gte"):
        if limit.low is MISSING or order(value) > order(limit.low):
            limit.low = value
    elif limit.high is MISSING or order(value) < order(limit.high):
        limit.high = value


def _along(
    index: IndexFacts, limits: dict[Path, _Limit], sort: Sort
) -> tuple[tuple[int, bool, bool], Walk] | None:
    """A walk along this index and its score; None when the index is of no use."""
    prefixes: list[tuple[Any, ...]] = [()]
    fixed = 0
    for path in index.fields:
        choices = limits[path].choices if path in limits else None
        if choices is None or len(prefixes) * len(choices) > _MAX_RANGES:
            break
        prefixes = [(*prefix, value) for prefix, value in itertools.product(prefixes, choices)]
        fixed += 1
    bounded = limits.get(index.fields[fixed]) if fixed < len(index.fields) else None
    if bounded is None or bounded.kind is None:
        ranges = [range_of_prefix(prefix) for prefix in prefixes]
    else:
        ranges = [
            range_between(prefix, bounded.kind, low=bounded.low, high=bounded.high) for prefix in prefixes
        ]
    narrowed = bounded is not None and bounded.kind is not None
    in_order = len(ranges) == 1 and _keeps_order(index, fixed, sort)
    if not fixed and not narrowed and not in_order:
        return None
    walk = Walk(
        index=index,
        prefix=prefixes[0] if len(prefixes) == 1 else (),
        ranges=tuple(dict.fromkeys(ranges)),
        down=in_order and ties_go_down(sort),
        sorted=in_order,
    )
    return (fixed, narrowed, in_order), walk


def resumed(walk: Walk, id: str, values: Sequence[Any], sort: Sort) -> Walk:
    """The rest of a sorted walk, after the document with this id and these values of the sort fields."""
    mark = id
    if walk.index is not None:
        given = {field.path: value for field, value in zip(sort, values, strict=True)}
        rest = [given[path] for path in walk.index.fields[len(walk.prefix) :]]
        entry = walk.index.entry_of(id, [*walk.prefix, *rest])
        if entry.cut:
            return walk
        mark = entry.id
    (whole,) = walk.ranges
    if walk.down:
        bound = KeyRange(whole.after, mark if whole.before is None else min(mark, whole.before))
    else:
        bound = KeyRange(max(mark, whole.after), whole.before)
    return msgspec.structs.replace(walk, ranges=(bound,))


def _keeps_order(index: IndexFacts, fixed: int, sort: Sort) -> bool:
    """Does the index yield the sort order? Fields with one value do not affect the order; the others must be
    exactly the remaining fields of the index, or ties would be ordered differently."""
    constant = set(index.fields[:fixed])
    left = [field for field in sort if field.path not in constant]
    down = ties_go_down(sort)
    return [field.path for field in left] == list(index.fields[fixed:]) and all(
        field.down is down for field in left
    )


def _through_all(own: _Limit | None, sort: Sort) -> Walk:
    in_order = not sort or [field.path for field in sort] == [ID_PATH]
    return Walk(ranges=(_id_range(own),), down=in_order and ties_go_down(sort), sorted=in_order)


def _id_range(own: _Limit | None) -> KeyRange:
    after, before = "", None
    if own is not None and isinstance(own.low, str) and "\0" not in own.low:
        after = own.low[:-1]  # the bound itself may match, and a scan excludes it
    if own is not None and isinstance(own.high, str) and "\0" not in own.high:
        before = own.high + "\x01"
    return KeyRange(after, before)
