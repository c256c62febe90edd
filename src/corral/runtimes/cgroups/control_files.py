"""Files of control groups: reads, writes, and where the hierarchies are mounted.

A group that does not exist is an ordinary result, not an error. The mount points are taken from mountinfo,
the only place where the kernel lists them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import time
from typing import Final

import msgspec

from corral.errors import Code, Retryable

_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR})
_BUSY_PAUSE: Final = 0.001
_BUSY_TRIES: Final = 20


def read_text(path: str) -> str:
    """The file's content; empty when the file does not exist."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if error.errno in _GONE or error.errno == errno.EOPNOTSUPP:
            return ""
        raise


def read_number(path: str) -> int:
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else 0


def read_field(path: str, key: str) -> int:
    """The number behind `key` in a file of lines `key number`; 0 when it is not there."""
    for line in read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdecimal():
            return int(value)
    return 0


def write_text(path: str, text: str) -> None:
    """Write in one call, as the kernel requires. Never creates a file. EBUSY is retried: the kernel returns
    it while another process changes the same group."""
    for attempt in range(_BUSY_TRIES):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno != errno.EBUSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def write_if_there(path: str, text: str) -> bool:
    """Whether the write worked. False when the group is gone, or the kernel lacks the file or refuses the
    value."""
    try:
        write_text(path, text)
    except OSError:
        return False
    return True


def move(pid: int, group: str) -> bool:
    """Move a process into a group; False when the process is gone."""
    try:
        write_text(f"{group}/cgroup.procs", str(pid))
    except OSError as error:
        if error.errno == errno.ESRCH:
            return False
        raise
    return True


def move_living(pid: int, group: str) -> None:
    """Move a process into a group. Raises OSError, ProcessLookupError when the process is gone."""
    if not move(pid, group):
        raise ProcessLookupError(errno.ESRCH, f"process {pid} is gone")


def member_pids(group: str) -> list[int]:
    """The pids of the group and all groups below it: a workload may divide its own. Zombies may be among
    them."""
    found: list[int] = []
    for directory, _, _ in os.walk(group):
        with contextlib.suppress(OSError):  # gone between the walk and the read
            found += [int(word) for word in read_text(f"{directory}/cgroup.procs").split()]
    return found


def remove_tree(group: str) -> None:
    """Remove an empty group with those below it; a group that does not exist is fine. EBUSY when a process is
    left in it."""
    for directory, _, _ in os.walk(group, topdown=False):
        _remove(directory)


def _remove(directory: str) -> None:
    for attempt in range(_BUSY_TRIES):
        try:
            pathlib.Path(directory).rmdir()
        except OSError as error:
            if error.errno in _GONE:
                return
            if error.errno != errno.EBUSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_PAUSE)  # the last process is dead, the kernel has not released it yet
        else:
            return


def remove_one(group: str) -> bool:
    """Remove a group without those below it; False when it holds a process or a group."""
    try:
        _remove(group)
    except OSError:
        return False
    return True


def remove_unless_busy(group: str) -> None:
    """Remove the group, or keep it when it still holds a process."""
    with contextlib.suppress(OSError):
        remove_tree(group)


def remove_empty(group: str, run: str) -> None:
    """Remove a run's group; `Retryable` when a process of the run is left in it."""
    try:
        remove_tree(group)
    except OSError as error:
        left = member_pids(group)
        raise Retryable(
            Code.CONFLICT,
            f"cannot remove the control group of run '{run}' ({group}): {error.strerror}; processes {left}",
            hint="wait until the run is empty, or kill it",
        ) from error


_MOUNTINFO: Final = "/proc/self/mountinfo"
_OWN: Final = "/proc/self/cgroup"
NAMED: Final = "name=systemd"
"""systemd's own hierarchy on machines with v1; it has no controller."""

_V1_HIERARCHIES: Final = ("memory", "cpu", "cpuacct", "pids", "freezer", NAMED)


class Hierarchies(msgspec.Struct, frozen=True, kw_only=True):
    """Mounted hierarchies: `unified` is the v2 tree; `controllers` are the v1 trees by controller. Trees that
    are mounted together (`cpu,cpuacct`) have one path."""

    unified: str | None
    controllers: dict[str, str]


def mounted_hierarchies(text: str | None = None) -> Hierarchies:
    """The first mount of each hierarchy; `text` is a mountinfo file's content."""
    if text is None:
        text = read_mounts()
    unified: str | None = None
    controllers: dict[str, str] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) < 5 or len(kind) < 3:
            continue
        point = unescaped_path(place[4])
        if kind[0] == "cgroup2" and unified is None:
            unified = point
        elif kind[0] == "cgroup":
            for name in kind[2].split(","):
                if name in _V1_HIERARCHIES:
                    controllers.setdefault(name, point)
    return Hierarchies(unified=unified, controllers=controllers)


def read_mounts() -> str:
    """The mountinfo of this process."""
    return pathlib.Path(_MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape")


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


def unescaped_path(word: str) -> str:
    """Decode mountinfo's octal escapes of blanks and backslashes."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, character)
    return word
