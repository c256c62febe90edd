"""The checker of the fault campaign: compares what the API tells of a run with what its workload did.

It knows nothing of how consoles are stored. Of each run whose end was told it reads the whole console, finds the
workload by the first line, makes the bytes anew that the workload must have written, and compares byte by byte;
bytes may be missing only where a gap says so. The exit must be what the workload announced, or be told as unknown.
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

from campaigns.workload import TOTAL, chunks

Call = Callable[[str], Awaitable[Any]]
"""A GET of the API."""

_WHOLE_CONSOLE_PAGES = 10_000
_NEVER_RAN = frozenset({"start_failed", "never_started"})


class Tally:
    """What a campaign has seen so far."""

    def __init__(self) -> None:
        self.runs = 0
        self.bytes = 0
        self.declared_bytes = 0
        self.unknown_ends = 0
        self.violations: list[str] = []

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.bytes:,} bytes compared, {self.declared_bytes:,} declared missing, "
            f"{self.unknown_ends} ends told as unknown, {len(self.violations)} violations"
        )


class Checker:
    """Checks each run once. `side` is where the workloads leave their totals."""

    def __init__(self, side: pathlib.Path, get: Call) -> None:
        self.tally = Tally()
        self._side = side
        self._get = get
        self._checked: set[str] = set()
        self._nameless: collections.Counter[str] = collections.Counter()
        self._ended: set[tuple[str, int]] = set()

    async def check(self, end: dict[str, Any]) -> None:
        """`end` is an event that told how a run ended."""
        id, run, exit = end["subject"], end["data"]["incarnation"], end["data"].get("exit") or {}
        if (id, run) in self._ended:
            self._violated(f"{id} run {run}: its end is told twice")
            return
        self._ended.add((id, run))
        console = await self._read(id, run)
        self.tally.runs += 1
        if not exit.get("known"):
            self.tally.unknown_ends += 1
        if exit.get("outcome") in _NEVER_RAN:
            if console.parts:
                self._violated(f"{id} run {run}: told as never executed, and has written")
            return
        name = console.name or self._only_candidate(id)
        if name is None:
            if console.gaps:
                self._nameless[id] += 1
            elif console.parts:
                self._violated(f"{id} run {run}: a console without a first line, and no gap is told")
            return  # one without a byte was ended before it wrote anything, or its side file is left over in the end
        self._checked.add(name)
        self._compare(f"{id} run {run}", name, console)
        self._compare_exit(f"{id} run {run}", name, exit)

    def check_all_told(self) -> None:
        """Every workload was checked; all have ended."""
        for path in self._side.glob("*.side"):
            id = path.stem.partition(".")[0]
            if path.stem in self._checked or not self._written(path.stem):
                continue
            self._nameless[id] -= 1  # one whose first line is declared missing
            if self._nameless[id] < 0:
                self._violated(f"{path.stem} has ended, and nobody was told")
        violations = self._side / "violations"
        if violations.exists():
            self.tally.violations += violations.read_text().splitlines()

    async def _read(self, id: str, run: int) -> Console:
        console = Console()
        after = 0
        for _ in range(_WHOLE_CONSOLE_PAGES):
            path = f"/api/v1/instances/{id}/console?incarnation={run}&after={after}&limit=5000"
            page = await self._get(path)
            console.add(page)
            if page["next_offset"] == after:
                return console
            after = page["next_offset"]
        raise AssertionError(f"the console of {id} run {run} has no end")

    def _only_candidate(self, id: str) -> str | None:
        left = {path.stem for path in self._side.glob(f"{id}.*.side")} - self._checked
        return left.pop() if len(left) == 1 else None

    def _written(self, name: str) -> int:
        """How many bytes the workload has written for certain; it may have been killed before it noted any."""
        noted = (self._side / f"{name}.side").read_bytes()
        return int(TOTAL.unpack(noted)[0]) if noted else 0

    def _compare(self, what: str, name: str, console: Console) -> None:
        written = self._written(name)
        needed = max(written, console.end)
        expected = bytearray()
        for chunk in chunks(name):
            expected += chunk
            if len(expected) > needed:
                break
        for offset, data in console.parts:
            if expected[offset : offset + len(data)] != data:
                self._violated(f"{what} ({name}): other bytes than were written at {offset}")
                return
            self.tally.bytes += len(data)
        missing = console.missing(written)
        undeclared = [part for part in missing if not console.declares(*part)]
        self.tally.declared_bytes += sum(end - begin for begin, end in missing)
        if undeclared:
            self._violated(
                f"{what} ({name}): {undeclared} of {written} bytes are missing, and no gap is told"
            )

    def _compare_exit(self, what: str, name: str, exit: dict[str, Any]) -> None:
        if not exit.get("known"):
            return
        announced = self._side / f"{name}.end"
        told = f"signal {exit['signal']}" if exit.get("signal") else f"code {exit['code']}"
        if not announced.exists():  # only a signal ends a workload that did not say how it would end
            right, truth = bool(exit.get("signal")), "a signal from outside"
        else:
            truth = announced.read_text()
            right = told == truth
        if not right:
            self._violated(f"{what} ({name}): the end is told as {told}, and was {truth}")

    def _violated(self, text: str) -> None:
        self.tally.violations.append(text)


class Console:
    """The console of a run, as the API gave it."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, bytes]] = []
        self.gaps: list[tuple[int, int]] = []
        self.end = 0
        self._open_end: int | None = None

    @property
    def name(self) -> str | None:
        first = next((data for offset, data in self.parts if offset == 0), b"")
        return first.removeprefix(b"begin ").strip().decode() if first.startswith(b"begin ") else None

    def add(self, page: dict[str, Any]) -> None:
        cut = {gap["from_offset"] for gap in page["gaps"]}
        for item in page["items"]:
            cut_off = item["offset"] + len(item["line"].encode()) in cut
            self._take(item, b"" if item.get("partial") or cut_off else b"\n")
        tail = page.get("tail")
        if tail and not page["items"]:
            self._take(tail, b"")
        for gap in page["gaps"]:
            if gap.get("reason") == "unknown":
                self._open_end = min(
                    gap["from_offset"], self._open_end if self._open_end is not None else gap["from_offset"]
                )
            self.gaps.append((gap["from_offset"], gap["to_offset"]))

    def _take(self, line: dict[str, Any], ending: bytes) -> None:
        data = line["line"].encode() + ending
        self.parts.append((line["offset"], data))
        self.end = max(self.end, line["offset"] + len(data))

    def missing(self, written: int) -> list[tuple[int, int]]:
        """Stretches below `written` that no part covers."""
        found: list[tuple[int, int]] = []
        covered = 0
        for offset, data in sorted(self.parts):
            if offset > covered:
                found.append((covered, min(offset, written)))
            covered = max(covered, offset + len(data))
        if covered < written:
            found.append((covered, written))
        return [part for part in found if part[0] < part[1]]

    def declares(self, begin: int, end: int) -> bool:
        """Whether gaps cover that stretch; one of an unknown end covers what lies behind it, too."""
        told = begin
        for first, last in sorted(self.gaps):
            if first <= told:
                told = max(told, last)
        return told >= end or (self._open_end is not None and told >= self._open_end)
