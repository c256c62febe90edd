"""Strict reading of a document field by field: what is unknown, missing or out of bounds is noted with its path, and reading
goes on, so that all faults of a file are found at once."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from corral.errors import nearest
from corral.system.document_limits import quoted
from corral.system.spans import span_seconds, span_text

E = TypeVar("E", bound=enum.StrEnum)

MOST_FAULTS_SHOWN: Final = 50
_CHOICES_SHOWN: Final = 20

Path = tuple[str | int, ...]


class ScenarioFault(NamedTuple):
    """Something wrong at a path."""

    path: Path
    message: str

    @property
    def shown_path(self) -> str:
        """`nodes[0].memory_mb`."""
        text = ""
        for step in self.path:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += f".{quoted(step)}" if text else quoted(step)
        return text


class ScenarioFaults:
    """The faults of one document."""

    def __init__(self) -> None:
        self.found: list[ScenarioFault] = []
        self.left_out = 0

    def add(self, path: Path, message: str) -> None:
        if len(self.found) < MOST_FAULTS_SHOWN:
            self.found.append(ScenarioFault(path, message))
        else:
            self.left_out += 1

    def unknown(self, path: Path, what: str, name: str, known: Sequence[str]) -> None:
        """A name that is none of the known ones."""
        guess = nearest(name, known)
        hint = f"did you mean '{guess}'?" if guess else _choice_text(known)
        self.add(path, f"unknown {what} '{quoted(name)}'; {hint}")


def _choice_text(known: Sequence[str]) -> str:
    if not known:
        return "there is none"
    more = f" and {len(known) - _CHOICES_SHOWN} more" if len(known) > _CHOICES_SHOWN else ""
    return f"there are {', '.join(known[:_CHOICES_SHOWN])}{more}"


class ScenarioField:
    """A value at a path. Each reading method answers what is read, or its default after it noted a fault."""

    def __init__(self, value: Any, path: Path, faults: ScenarioFaults) -> None:
        self.value = value
        self.path = path
        self._faults = faults

    def fault(self, message: str) -> None:
        self._faults.add(self.path, message)

    def unknown(self, what: str, name: str, known: Sequence[str]) -> None:
        self._faults.unknown(self.path, what, name, known)

    @property
    def has_faults(self) -> bool:
        """Is something wrong here, or within?"""
        depth = len(self.path)
        return any(each.path[:depth] == self.path for each in self._faults.found)

    def _at(self, step: str | int, value: Any) -> ScenarioField:
        return ScenarioField(value, (*self.path, step), self._faults)

    def object(self, *known: str) -> Mapping[str, ScenarioField]:
        """The fields of an object that has no others than these."""
        fields = {}
        for key, each in self.entries().items():
            if key in known:
                fields[key] = each
            else:
                self._faults.unknown(each.path, "key", key, known)
        return fields

    def entries(self, what: str = "", known: Sequence[str] | None = None) -> Mapping[str, ScenarioField]:
        """The fields of an object with any names, or with those of things that exist."""
        if not isinstance(self.value, dict):
            self.fault("write an object, as {key: value}")
            return {}
        found = {key: self._at(key, value) for key, value in self.value.items()}
        if known is None:
            return found
        for key in [key for key in found if key not in known]:
            self._faults.unknown(found[key].path, what, key, known)
            del found[key]
        return found

    def items(self, *, most: int) -> Iterator[ScenarioField]:
        if not isinstance(self.value, list):
            self.fault("write a list, as [a, b]")
        elif len(self.value) > most:
            self.fault(f"{len(self.value)} entries are more than {most}")
        else:
            yield from (self._at(number, value) for number, value in enumerate(self.value))

    def required(self, fields: Mapping[str, ScenarioField], name: str) -> ScenarioField | None:
        """A field of this object; a fault is noted where it is missing."""
        found = fields.get(name)
        if found is None and isinstance(self.value, dict):
            self._faults.add((*self.path, name), "it is missing; add it")
        return found

    def span(self, *, least: int, most: int, default: int = 0) -> int:
        """Seconds of a span such as `90s`, `5m` or `2d`."""
        value = self.value
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        seconds = span_seconds(text)
        if seconds is None:
            self.fault(f"'{quoted(str(value))}' is not a span of time; write it like 90s, 5m, 24h or 2d")
        elif not least <= seconds <= most:
            self.fault(f"'{quoted(text)}' is not between {span_text(least)} and {span_text(most)}")
        else:
            return seconds
        return default

    def integer(self, *, least: int, most: int, default: int = 0) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fault("write an integer")
        elif not least <= self.value <= most:
            self.fault(f"{self.value} is not between {least} and {most}")
        else:
            return self.value
        return default

    def number(self, *, least: float, most: float, default: float = 0.0) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fault("write a number")
        elif not least <= value <= most:
            self.fault(f"{value:g} is not between {least:g} and {most:g}")
        else:
            return float(value)
        return default

    def text(self, *, longest: int) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.fault("write a text; put it in quotes if it looks like a number")
        elif len(self.value) > longest:
            self.fault(f"it has more than {longest} characters")
        else:
            return self.value
        return ""

    def choice(self, kind: type[E], default: E) -> E:
        words = [str(each) for each in kind]
        if isinstance(self.value, str) and self.value in words:
            return kind(self.value)
        self._faults.unknown(self.path, "word", str(self.value), words)
        return default

    def moment(self, default: dt.datetime) -> dt.datetime:
        """A time with a date; one without a zone is UTC."""
        try:
            found = dt.datetime.fromisoformat(self.value)
        except (TypeError, ValueError):
            self.fault(f"'{quoted(str(self.value))}' is no time; write it like 2026-03-28T00:00:00Z")
            return default
        found = found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found
        if not 1990 <= found.year <= 2200:
            self.fault("write a year between 1990 and 2200")
            return default
        return found.astimezone(dt.UTC)
