"""Whether the kernel makes moves between control groups wait: the mount option `favordynmods`.

Without it the first move of a process after a pause waits for an RCU grace period, about 20 ms. The option
counts for all hierarchies together, whichever of them has it, but only a v2 tree takes it in a remount.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from corral.runtimes.cgroups.control_files import read_mounts, unescaped_path

OPTION: Final = "favordynmods"
_OF_THE_MOUNT: Final = frozenset({"rw", "ro"})


class Moves(enum.StrEnum):
    """What a move of a process between control groups costs here."""

    QUICK = "quick"
    SLOW = "slow"
    NO_GROUPS = "no-groups"


class MoveDelay(msgspec.Struct, frozen=True, kw_only=True):
    moves: Moves
    remount: str = ""
    """The command that makes slow moves quick; empty where a remount cannot."""


def move_delay(text: str | None = None) -> MoveDelay:
    """Read from the mounts; `text` is a mountinfo file's content."""
    if text is None:
        text = read_mounts()
    found = False
    remount = ""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        found = True
        options = kind[2].split(",")
        if OPTION in options:
            return MoveDelay(moves=Moves.QUICK)
        if kind[0] == "cgroup2" and not remount:
            # The kernel drops options that a remount does not repeat.
            kept = [option for option in options if option not in _OF_THE_MOUNT]
            remount = f"mount -o {','.join(['remount', *kept, OPTION])} {unescaped_path(place[4])}"
    return MoveDelay(moves=Moves.SLOW if found else Moves.NO_GROUPS, remount=remount)
