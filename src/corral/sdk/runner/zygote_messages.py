"""Messages between the host and its zygote: one msgpack message a packet, some with descriptors."""

from __future__ import annotations

import array
import socket
from typing import Final

import msgspec

MAX_PACKET: Final = 128 * 1024
_MAX_DESCRIPTORS: Final = 2
EXIT_HOST_GONE: Final = 70
"""Exit code of a module process that saw the end of its input; unless the host is gone, it closed the socket
itself."""
EXIT_MEMORY: Final = 72
"""Exit code of a module process that ran out of memory outside of any call."""
EXIT_BROKEN: Final = 71
"""Exit code of a process that could not become a module process, or whose runner broke."""
PROCESS_LIMIT: Final = "process_limit"
MEMORY_LIMIT: Final = "memory_limit"


class Spawn(msgspec.Struct, frozen=True, array_like=True, tag="spawn"):
    """Fork a module process. Comes with two descriptors: its end of the channel, and a file for the output of
    a crash. `number` identifies it from here on; numbers are never used twice."""

    number: int
    name: str
    paths: tuple[str, ...]
    memory_bytes: int
    processes: int
    """Limit of processes and threads, all its descendants included."""
    nice: int
    """On top of the zygote's own."""
    uid: int = -1
    """-1: the host's own user."""
    gid: int = -1
    groups: tuple[int, ...] = ()


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Kill it, with all its descendants."""

    number: int


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Everything is loaded; orders are accepted."""


class Born(msgspec.Struct, frozen=True, array_like=True, tag="born"):
    """Comes with a pidfd."""

    number: int
    pid: int


class NotBorn(msgspec.Struct, frozen=True, array_like=True, tag="not-born"):
    number: int
    why: str


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The process was reaped, and none of its descendants is left."""

    number: int
    status: int
    """The raw wait status."""
    reason: str
    """Why the zygote itself ended it; else empty."""
    strays: int
    """Descendants that had to be killed after it."""
    cpu_seconds: float
    peak_bytes: int


class Used(msgspec.Struct, frozen=True, array_like=True, tag="used"):
    """Its memory use, with all descendants; sent when it has changed."""

    number: int
    memory_bytes: int


Order = Spawn | End
Report = Ready | Born | NotBorn | Ended | Used


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet and the descriptors that came with it; BlockingIOError when there is none. The standard
    library's function would block, and leave the descriptors inheritable to every program started later."""
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * descriptors.itemsize)
    packet, extra, _, _ = control.recvmsg(MAX_PACKET, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return packet, list(descriptors)
