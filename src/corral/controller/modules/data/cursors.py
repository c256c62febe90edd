"""Where a page of documents ended, as a text that the next question brings back."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from corral.controller.modules.data.evaluation import Hit
from corral.controller.modules.data.planning import Sort
from corral.controller.modules.data.spaces import is_id
from corral.domain.document_values import MISSING, invalid


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A sort field's value is in a list, which is empty where there is none."""

    sort: tuple[str, ...]
    values: tuple[list[Any], ...]
    id: str

    @property
    def found(self) -> list[Any]:
        return [value[0] if value else MISSING for value in self.values]


def cursor_of(last: Hit, sort: Sort) -> str:
    values = tuple([] if value is MISSING else [value] for value in last.values)
    return base64.urlsafe_b64encode(msgspec.json.encode(Cursor(_named(sort), values, last.id))).decode()


def read_cursor(text: str, sort: Sort) -> Cursor | None:
    """None for the beginning. QUERY_INVALID for what is not from an answer to the same question."""
    if not text:
        return None
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text), type=Cursor)
    except (ValueError, msgspec.DecodeError):
        raise _foreign() from None
    if cursor.sort != _named(sort) or len(cursor.values) != len(sort):
        raise _foreign()
    if not is_id(cursor.id) or any(len(value) > 1 for value in cursor.values):
        raise _foreign()
    return cursor


def _foreign() -> Exception:
    return invalid("'after' is not from an answer to this query", hint="pass on 'next' as it came")


def _named(sort: Sort) -> tuple[str, ...]:
    return tuple(("-" if field.down else "") + ".".join(field.path) for field in sort)
