"""Log probe: waits for a line in a console, from the run's first byte on.

Woken by the console's growth, never by a clock alone, over one inotify descriptor for all these consoles. Lines are
matched in a worker thread with RE2, whose time is linear for every pattern.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, TypeVar

from corral.daemon.console.growth_watch import GrowthWatch
from corral.daemon.probes.port_probes import Mask, shown
from corral.domain.patterns import compile_bytes
from corral.errors import counted
from corral.runtimes.console.log import ConsoleLog
from corral.system.aio.tasks import set_within
from corral.system.threads import to_end


class Growth:
    """Whether one console grew."""

    def __init__(self, watch: GrowthWatch[str], directory: str) -> None:
        self._watch = watch
        self._directory = directory
        self._grown = asyncio.Event()

    def note(self) -> None:
        self._grown.set()

    def arm(self) -> None:
        """Watch from now on; read the console after this call, then wait."""
        self._grown.clear()
        self._watch.arm(self._directory, self._directory)

    async def within(self, seconds: float) -> bool:
        """Wait until it grows, at most so long; False: no growth was reported."""
        return await set_within(self._grown, seconds)


class ConsoleGrowth:
    """The shared watch; one per daemon. Use as a context manager, within a running loop."""

    def __init__(self) -> None:
        self._watch: GrowthWatch[str] = GrowthWatch(self._note_growth)
        self._waiting: dict[str, list[Growth]] = {}

    def __enter__(self) -> ConsoleGrowth:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()

    @contextlib.contextmanager
    def follow(self, directory: str) -> Iterator[Growth]:
        """Watch one console; several followers of the same one are possible."""
        growth = Growth(self._watch, directory)
        self._waiting.setdefault(directory, []).append(growth)
        try:
            yield growth
        finally:
            self._waiting[directory].remove(growth)
            if not self._waiting[directory]:
                del self._waiting[directory]
                self._watch.disarm(directory)

    def _note_growth(self, directory: str) -> None:
        for growth in self._waiting.get(directory, ()):
            growth.note()


LINE_BYTES: Final = 64 * 1024
"""A longer line is matched in parts of this length."""
_BLOCK_BYTES: Final = 256 * 1024
_HOLD_OFF: Final = 0.03
_MOST_HOLD_OFF: Final = 0.15
"""For consoles that are written to all the time: hundreds of servers that start together must not overload the
daemon."""
_FLOOR: Final = 1.0

T = TypeVar("T")


class LogProbe:
    """Waits for one pattern."""

    def __init__(self, pattern: str, console: str, growth: ConsoleGrowth) -> None:
        self._text = pattern
        self._pattern = compile_bytes(pattern, field="pattern")
        self._console = console
        self._growth = growth
        self._offset = 0
        self._rest = b""
        self._lines = 0
        self._last = b""

    def seen(self, mask: Mask) -> str:
        if not self._lines and not self._rest:
            return "there was no output at all"
        last = self._rest or self._last
        return f"none of {counted(self._lines, 'line')} matched, the last one was {shown(last.strip(), mask=mask)}"

    async def until_seen(self) -> None:
        """Return when a line matches. A second call begins again at the first byte."""
        self._offset, self._rest, self._lines = 0, b"", 0
        quiet, hold_off = False, _HOLD_OFF
        with ConsoleLog(self._console) as log, self._growth.follow(self._console) as growth:
            while True:
                growth.arm()
                while (found := await to_end(self._look, log, quiet)) is None:
                    pass
                if found:
                    return
                quiet = not await growth.within(_FLOOR)
                if quiet:
                    hold_off = _HOLD_OFF
                else:
                    await asyncio.sleep(hold_off)
                    hold_off = min(hold_off * 1.5, _MOST_HOLD_OFF)

    def _look(self, log: ConsoleLog, quiet: bool) -> bool | None:
        """Read the next block: whether a line matched, None when there is more to read. `quiet`: an unfinished line
        that does not grow counts, too: it is a prompt, which waits for input."""
        block = log.read(self._offset, _BLOCK_BYTES)
        if block.gap_before is not None:
            self._rest = b""
        self._offset = block.end
        if not block.data:
            log.release_old()
            if block.gap_before is not None:
                return None
            return quiet and bool(self._rest) and self._matches(self._rest)
        *lines, rest = (self._rest + block.data).split(b"\n")
        if len(rest) >= LINE_BYTES:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            self._lines += 1
            self._last = line[:LINE_BYTES] or self._last
            if self._matches(line):
                return True
        return None

    def _matches(self, line: bytes) -> bool:
        line = line.removesuffix(b"\r")
        starts = range(0, max(len(line), 1), LINE_BYTES)
        return any(self._pattern.search(line[at : at + LINE_BYTES]) is not None for at in starts)
