"""The last lines of a run's console, as they are told with its end."""

from __future__ import annotations

import pathlib
from typing import Final

import msgspec

from corral.domain.secret_masks import SecretMask
from corral.runtimes.console.log import ConsoleLog

_MOST_LINES: Final = 100


class LastLines(msgspec.Struct, frozen=True):
    """Where they begin, where the console ends, and when its last byte came."""

    lines: tuple[str, ...] = ()
    offset: int = 0
    end: int = 0
    last_ms: int = 0


def console_end(console: pathlib.Path) -> int:
    with ConsoleLog(console) as log:
        return log.end_offset


def read_last_lines(console: pathlib.Path, mask: SecretMask) -> LastLines:
    """They leave the node, and are kept in places where the console is not: without the run's secrets. Where these
    are not known any more nobody can take them out, and the lines stay behind. Blocks, but for a bounded time: at most
    the last 256 KiB are read."""
    with ConsoleLog(console) as log:
        end = log.end_offset
        found = log.tail(_MOST_LINES)
        times = log.times(max(0, end - 1), end)
    lines = tuple(mask(line.text) for line in found)
    return LastLines(
        lines=(_withheld(mask.unknown),) if mask.unknown and lines else lines,
        offset=found[0].offset if found else end,
        end=end,
        last_ms=times[-1].timestamp_ms if times else 0,
    )


def _withheld(names: frozenset[str]) -> str:
    """In place of a crash's last lines."""
    changed = ", ".join(f"%{name}%" for name in sorted(names))
    return (
        f"(withheld: {changed} was changed while no daemon ran, and these lines may hold the value before;"
        " the console has them)"
    )
