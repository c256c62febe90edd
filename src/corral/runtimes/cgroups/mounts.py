"""Where the kernel's control group hierarchies are mounted; nowhere but in mountinfo is that written."""

from __future__ import annotations

import pathlib
from typing import Final

import msgspec

_MOUNTINFO: Final = "/proc/self/mountinfo"
_OWN: Final = "/proc/self/cgroup"
NAMED: Final = "name=systemd"
"""The service manager's own hierarchy on machines of the older kind; it has no controller."""

_V1_WANTED: Final = ("memory", "cpu", "cpuacct", "pids", "freezer", NAMED)


class Hierarchies(msgspec.Struct, frozen=True, kw_only=True):
    """`unified` is the v2 tree; `controllers` the v1 trees by what each controls. Trees that are
    mounted together (`cpu,cpuacct`) have one path."""

    unified: str | None
    controllers: dict[str, str]


def mounted_hierarchies(text: str | None = None) -> Hierarchies:
    """What is mounted, the first mount of each; `text` is a mountinfo file's content."""
    if text is None:
        text = pathlib.Path(_MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape")
    unified: str | None = None
    controllers: dict[str, str] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) < 5 or len(kind) < 3:
            continue
        point = _unescaped(place[4])
        if kind[0] == "cgroup2" and unified is None:
            unified = point
        elif kind[0] == "cgroup":
            for name in kind[2].split(","):
                if name in _V1_WANTED:
                    controllers.setdefault(name, point)
    return Hierarchies(unified=unified, controllers=controllers)


def own_groups(text: str | None = None) -> dict[str, str]:
    """The group of this process in each hierarchy: by controller, and "" for v2."""
    if text is None:
        text = pathlib.Path(_OWN).read_text(encoding="utf-8", errors="surrogateescape")
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def _unescaped(word: str) -> str:
    """mountinfo writes blanks and backslashes in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, character)
    return word
