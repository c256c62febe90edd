"""Reading of the fields of a JSON object, with a report of each: taken as it is, mapped to something of ours, or dropped.

What cannot be read is a fault with the file, the path of the value and what to write instead.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

SHOWN: Final = 80
MOST_ENTRIES: Final = 1000
"""Entries of one list or map."""


class FieldAction(enum.StrEnum):
    TAKEN = "taken"
    MAPPED = "mapped"
    """It has another name, form or place here."""
    DROPPED = "dropped"


class FieldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one field of a file."""

    file: str
    field: str
    action: FieldAction
    to: str = ""
    """The field, setting or command that it becomes."""
    note: str = ""
    """Why, or what is different."""


class FieldFault(NamedTuple):
    """A value that cannot be taken over."""

    file: str
    field: str
    """Empty: the file as a whole."""
    message: str
    hint: str

    def sentence(self) -> str:
        """Everything but the file."""
        at = f"{self.field}: " if self.field else ""
        return f"{at}{self.message}; {self.hint}"


class FieldReader:
    """The fields of one object. A field that is missing or null is None, as is one of a wrong type, which is a fault."""

    def __init__(self, file: str, value: Mapping[str, Any], *, path: str = "") -> None:
        self.file = file
        self.path = path
        self.reports: list[FieldReport] = []
        self.faults: list[FieldFault] = []
        self._value = value
        self._read: set[str] = set()

    def taken(self, field: str, to: str, note: str = "") -> None:
        self._report(field, FieldAction.TAKEN, to, note)

    def mapped(self, field: str, to: str, note: str = "") -> None:
        self._report(field, FieldAction.MAPPED, to, note)

    def dropped(self, field: str, why: str, to: str = "") -> None:
        self._report(field, FieldAction.DROPPED, to, why)

    def fault(self, field: str, message: str, hint: str) -> None:
        self.faults.append(FieldFault(self.file, self._at(field), message, hint))

    def has(self, field: str) -> bool:
        return self._value.get(field) is not None

    def raw(self, field: str) -> Any:
        """The value as it is. A null is reported as dropped."""
        self._read.add(field)
        value = self._value.get(field)
        if value is None and field in self._value:
            self.dropped(field, "it is null, as if it were left out")
        return value

    def text(self, field: str) -> str | None:
        value = self.raw(field)
        if value is None or isinstance(value, str):
            return value
        self._wrong(field, value, "text")
        return None

    def boolean(self, field: str) -> bool | None:
        value = self.raw(field)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(field, value, "true or false")
        return None

    def integer(self, field: str, *, low: int, high: int) -> int | None:
        value = self.raw(field)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(field, value, f"an integer from {low} to {high}")
            return None
        if not low <= value <= high:
            self.fault(field, f"{_shown(value)} is out of range", f"write an integer from {low} to {high}")
            return None
        return value

    def number(self, field: str, *, low: float, high: float) -> float | None:
        value = self.raw(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(field, value, f"a number from {low:g} to {high:g}")
            return None
        if not low <= value <= high:
            self.fault(field, f"{_shown(value)} is out of range", f"write a number from {low:g} to {high:g}")
            return None
        return float(value)

    def items(self, field: str) -> list[Any] | None:
        value = self.raw(field)
        if value is None:
            return None
        if not isinstance(value, list):
            self._wrong(field, value, "a list")
            return None
        return None if self._too_many(field, value) else value

    def texts(self, field: str) -> list[str] | None:
        """A list of texts that are not empty."""
        found = self.items(field)
        if found is None:
            return None
        for position, each in enumerate(found):
            if not isinstance(each, str):
                self._wrong(f"{field}[{position}]", each, "text")
            elif not each:
                self.fault(f"{field}[{position}]", "it is empty", "write a name, or leave it out")
        return [each for each in found if isinstance(each, str) and each]

    def object(self, field: str) -> FieldReader | None:
        """The object at a field, with reports and faults of its own."""
        value = self.raw(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._wrong(field, value, "an object")
            return None
        return None if self._too_many(field, value) else FieldReader(self.file, value, path=self._at(field))

    def values(self, field: str) -> dict[str, str] | None:
        """A map to texts; numbers and truth values become the text that JSON has for them."""
        found = self.object(field)
        if found is None:
            return None
        values: dict[str, str] = {}
        for key, value in found._value.items():
            if isinstance(value, bool):
                values[key] = "true" if value else "false"
            elif isinstance(value, str | int | float):
                values[key] = str(value)
            else:
                found._wrong(key, value, "text")
        self.faults += found.faults
        return values

    def join(self, other: FieldReader) -> None:
        """Take over the reports and faults of a part, and report its other fields as unknown."""
        other.drop_unknown()
        self.reports += other.reports
        self.faults += other.faults

    def drop_unknown(self) -> None:
        """Report each field that was not read."""
        for field in self._value:
            if field not in self._read:
                self.dropped(field, "unknown: it is in none of Universe's tables")

    def _report(self, field: str, action: FieldAction, to: str, note: str) -> None:
        self._read.add(field)
        self.reports.append(
            FieldReport(file=self.file, field=self._at(field), action=action, to=to, note=note)
        )

    def _at(self, field: str) -> str:
        field = field if len(field) <= SHOWN else f"{field[:SHOWN]}…"
        return f"{self.path}.{field}" if self.path and field else self.path or field

    def _wrong(self, field: str, value: Any, expected: str) -> None:
        self.fault(field, f"{_kind(value)} is no value of it", f"write {expected}")

    def _too_many(self, field: str, value: list[Any] | dict[str, Any]) -> bool:
        if len(value) > MOST_ENTRIES:
            self.fault(field, f"it has {len(value)} entries", f"use at most {MOST_ENTRIES}")
        return len(value) > MOST_ENTRIES


def object_fault(file: str, value: Any, beginning: str) -> FieldFault | None:
    """The fault of a file that holds no object, or one with too many fields to report."""
    if not isinstance(value, dict):
        return FieldFault(file, "", "it holds no object", f"it begins with {beginning}")
    if len(value) > MOST_ENTRIES:
        return FieldFault(file, "", f"it has {len(value)} fields", f"it may have {MOST_ENTRIES}")
    return None


def name_faults(kind: str, names: Iterable[tuple[str, str]], hint: str) -> list[FieldFault]:
    """Names that several sources would have here; each of `names` is a source and its name."""
    sources: dict[str, list[str]] = {}
    for source, name in names:
        sources.setdefault(name, []).append(source)
    return [
        FieldFault(found[0], "", f"{kind} '{name}' would be made of {' and of '.join(found)}", hint)
        for name, found in sources.items()
        if len(found) > 1
    ]


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _kind(value: Any) -> str:
    """What a value is, in words; never the value itself: it may be a secret."""
    if isinstance(value, bool):
        return "a truth value"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")
