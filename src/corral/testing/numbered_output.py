"""Checks the output of numbered workloads: nothing lost, doubled, reordered or damaged."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from corral.testing.workloads import checksum


class NumberedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the numbered lines of one workload."""

    first: int
    last: int
    """0 when there was no numbered line."""
    lost: tuple[int, ...]
    """Numbers between first and last that never came."""
    doubled: tuple[int, ...]
    reordered: tuple[int, ...]
    """Numbers that came after a greater one, for the first time."""
    damaged: tuple[str, ...]
    """Lines with the tag that are no whole numbered line."""

    @property
    def perfect(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.damaged)

    def check(self, *, first: int = 1, last: int | None = None) -> None:
        """Fail unless all came, once, in order, from `first` (to `last`)."""
        assert self.perfect, self._told()
        assert self.first == first, f"begins with line {self.first}, not {first}"
        assert last is None or self.last == last, f"ends with line {self.last}, not {last}"

    def _told(self) -> str:
        parts = [
            f"{len(values)} {name} (from {values[0]!r})"
            for name in ("lost", "doubled", "reordered", "damaged")
            if (values := getattr(self, name))
        ]
        return f"lines {self.first} to {self.last}: {', '.join(parts)}"


def read_numbered(output: bytes | str | Iterable[str], *, tag: str = "line") -> NumberedOutput:
    """Judge the lines that begin with `tag`. Of bytes and text an unfinished last line does not count."""
    numbers: list[int] = []
    damaged: list[str] = []
    whole = re.compile(rf"{re.escape(tag)} (\d+) (\d+)( x+)?")
    for line in _lines(output):
        if not line.startswith(tag):
            if tag in line:  # the end of one line glued to the next
                damaged.append(line[:200])
            continue
        found = whole.fullmatch(line)
        if found and checksum(int(found[1])) == int(found[2]):
            numbers.append(int(found[1]))
        else:
            damaged.append(line[:200])
    return _judged(numbers, damaged)


def _lines(output: bytes | str | Iterable[str]) -> Iterable[str]:
    if isinstance(output, bytes):
        output = output.decode("utf-8", "replace")
    if isinstance(output, str):
        return output.split("\n")[:-1]
    return (line.rstrip("\n") for line in output)


def _judged(numbers: list[int], damaged: list[str]) -> NumberedOutput:
    seen: set[int] = set()
    doubled: list[int] = []
    reordered: list[int] = []
    highest = 0
    for number in numbers:
        if number in seen:
            doubled.append(number)
        elif number < highest:
            reordered.append(number)
        seen.add(number)
        highest = max(highest, number)
    first = min(numbers, default=0)
    lost = [number for number in range(first, highest) if number not in seen] if numbers else []
    return NumberedOutput(
        first=first,
        last=highest,
        lost=tuple(lost),
        doubled=tuple(doubled),
        reordered=tuple(reordered),
        damaged=tuple(damaged),
    )
