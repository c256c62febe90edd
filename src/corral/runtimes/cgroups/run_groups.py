"""The root group of one daemon in one hierarchy, and the names of the groups in it.

The root group is made when it is needed and removed when it is empty. Daemons of one machine may share its
upper part: a part that another daemon removes in between is made again. Run names are escaped, so that no
name leads out of its directory or unit.
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
    """The name as systemd escapes it: characters that a unit's name may not have become `\\xNN`. Names of
    runs pass unchanged."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in name.encode())


def unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name).encode("latin-1").decode()


def keeper_name(name: str, pid: int) -> str:
    """The name of a keeper's group; without a dot, so that it is never taken for a run's."""
    return f"keeper-{escaped(name)}-{pid}".replace(".", "\\x2e")


def is_keeper_name(name: str) -> bool:
    return name.startswith("keeper-") and "." not in name


RUN: Final = "run-"
"""The prefix of the names of run groups."""

_TRIES: Final = 5
_ENDING_SECONDS: Final = 1.0
_PAUSE: Final = 0.01


class RootGroup:
    """The group `<mount>/<root>`; in a `v2` tree controllers are enabled on the way to it."""

    def __init__(self, mount: str, root: str, *, v2: bool) -> None:
        """Raises `OSError` when this process may not make or use the group."""
        self._mount = pathlib.Path(mount)
        self._parts = pathlib.PurePosixPath(root).parts
        self._v2 = v2
        self.path = str(self._mount.joinpath(*self._parts))
        self.make()
        if not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, "not writable", self.path)

    def make(self) -> None:
        """Make the group. Idempotent."""
        for attempt in range(_TRIES):
            try:
                self._make_once()
            except FileNotFoundError:  # another daemon removed the upper part as empty
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    def make_child(self, name: str) -> str:
        """Make a new group in it; `FileExistsError` when it exists."""
        child = f"{self.path}/{name}"
        try:
            pathlib.Path(child).mkdir()
        except FileNotFoundError:
            self.make()
            pathlib.Path(child).mkdir()
        return child

    def place_keeper(self, pid: int, name: str) -> None:
        """Move the keeper into a group of its own; groups of dead keepers are removed."""
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
        """Remove the group when it is empty. A keeper that is just quitting gets a moment for it; one that
        supervises runs stays."""
        ends = time.monotonic() + _ENDING_SECONDS
        self.prune()
        while (names := unified.groups_below(self.path, "")) and all(map(is_keeper_name, names)):
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
            except OSError:  # not empty: a run, a keeper, another daemon
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
