"""The group beneath which all groups of one daemon lie, in one hierarchy.

Made when it is needed and removed when nothing is left in it. Daemons of one machine may share its
upper part: what another removes in between is made again.

Run names as names of directories and units: nothing in them leads out of its place.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pathlib
import re
import time
from typing import Final

from corral.runtimes.cgroups import control_files, unified

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")


def escaped(name: str) -> str:
    """As systemd escapes: what may not stand in a unit's name becomes `\\xNN`. Names of runs pass
    unchanged."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in name.encode())


def unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name).encode("latin-1").decode()


def keeper_name(name: str, pid: int) -> str:
    """Of a keeper's group; without a dot, so that it is never taken for a run's."""
    return f"keeper-{escaped(name)}-{pid}".replace(".", "\\x2e")


def is_keeper_name(name: str) -> bool:
    return name.startswith("keeper-") and "." not in name


RUN: Final = "run-"
"""What the names of the groups of runs begin with."""

_TRIES: Final = 5
_ENDING_SECONDS: Final = 1.0
_PAUSE: Final = 0.01


class RootGroup:
    """`<mount>/<root>`; `v2` hands controllers down on the way to it."""

    def __init__(self, mount: str, root: str, *, v2: bool) -> None:
        """`OSError` when this process may not make it or use it."""
        self._mount = pathlib.Path(mount)
        self._parts = pathlib.PurePosixPath(root).parts
        self._v2 = v2
        self.path = str(self._mount.joinpath(*self._parts))
        self.make()
        if not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, "not writable", self.path)

    def make(self) -> None:
        """Idempotent."""
        for attempt in range(_TRIES):
            try:
                self._make_once()
            except FileNotFoundError:  # another daemon removed the upper part as empty
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    def make_child(self, name: str) -> str:
        """A new group of ours; `FileExistsError` when there is one."""
        child = f"{self.path}/{name}"
        try:
            pathlib.Path(child).mkdir()
        except FileNotFoundError:
            self.make()
            pathlib.Path(child).mkdir()
        return child

    def house_keeper(self, pid: int, name: str) -> None:
        """A group for a keeper; those of dead ones go."""
        self.prune(keep=keeper_name(name, pid))
        child = f"{self.path}/{keeper_name(name, pid)}"
        if not pathlib.Path(child).is_dir():
            self.make_child(keeper_name(name, pid))
        control_files.move(pid, child)

    def prune(self, *, keep: str = "") -> None:
        for name in unified.groups_below(self.path, "keeper-"):
            if f"keeper-{name}" != keep and is_keeper_name(f"keeper-{name}"):
                control_files.remove_unless_busy(f"{self.path}/keeper-{name}")

    async def remove_if_empty(self) -> None:
        """A keeper that was just told to end is given a moment to do so; one that minds runs stays."""
        ends = time.monotonic() + _ENDING_SECONDS
        self.prune()
        while unified.groups_below(self.path, "keeper-") and not unified.groups_below(self.path, RUN):
            if time.monotonic() > ends:
                return
            await asyncio.sleep(_PAUSE)
            self.prune()
        self._remove_upwards()

    def _remove_upwards(self) -> None:
        path = pathlib.Path(self.path)
        while path != self._mount:
            try:
                path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:  # something lies in it: a run, a keeper, another daemon
                return
            path = path.parent

    def _make_once(self) -> None:
        made = self._mount
        for part in self._parts:
            if self._v2:
                unified.hand_down(str(made))
            made /= part
            made.mkdir(exist_ok=True)
        if self._v2:
            unified.hand_down(str(made))
