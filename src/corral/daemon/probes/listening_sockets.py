"""Listening sockets of the processes of a run, from /proc: for TCP and UDP, in the network namespace of the run.

For hundreds of runs the tables of a namespace are read once: they are shared, and a moment old. The descriptors of a
run's processes are read only when its port has a socket, or for the text of a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.errors import short_list

FRESH_SECONDS: Final = 0.2
_KEPT_SECONDS: Final = 10.0
_CHUNK: Final = 64 * 1024
_LISTENS: Final = b"0A"
_NO_PEER: Final = b":0000"
_TABLES: Final = (("tcp", "tcp"), ("tcp", "tcp6"), ("udp", "udp"), ("udp", "udp6"))
_MOST_DESCRIPTORS: Final = 50_000
_MOST_PROCESSES: Final = 1000
"""So many processes of a run are checked, and so many descriptors in all: a run can open any number, and a check keeps
a thread busy that others wait for."""
_NAMED: Final = 5
_SOCKET: Final = "socket:["

PortKey = tuple[int, str]
Processes = Callable[[], Awaitable[Sequence[int] | None]]
"""The pids of a run; None: this node cannot see them."""


class SocketTable(msgspec.Struct, frozen=True, kw_only=True):
    """The listening sockets of one network namespace."""

    by_port: dict[PortKey, set[int]]
    by_inode: dict[int, PortKey]


class SocketTables:
    """The tables of all namespaces that were requested lately. One per daemon; blocks, and may be used by any
    thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[tuple[int, int], tuple[float, SocketTable]] = {}

    def seen_by(self, pid: int, *, max_age: float = FRESH_SECONDS) -> SocketTable | None:
        """Listening sockets of this process's namespace; None when there is no such process, or the daemon may not read
        it."""
        try:
            found = os.stat(f"/proc/{pid}/ns/net")  # noqa: PTH116  # hot
        except OSError:
            return None
        key = found.st_dev, found.st_ino
        with self._lock:
            now = time.monotonic()
            self._read = {each: kept for each, kept in self._read.items() if now - kept[0] < _KEPT_SECONDS}
            if key in self._read and now - self._read[key][0] < max_age:
                return self._read[key][1]
            table = _read_tables(pid)
            self._read[key] = time.monotonic(), table
            return table


def _read_tables(pid: int) -> SocketTable:
    table = SocketTable(by_port={}, by_inode={})
    for protocol, name in _TABLES:
        with contextlib.suppress(OSError):  # it has just ended, or this kernel has no such family
            for port, inode in _listening(f"/proc/{pid}/net/{name}", datagrams=protocol == "udp"):
                table.by_port.setdefault((port, protocol), set()).add(inode)
                table.by_inode[inode] = port, protocol
    return table


def _listening(path: str, *, datagrams: bool) -> Iterator[tuple[int, int]]:
    """Port and inode of each socket that accepts any peer. The kernel lists the listening sockets of TCP before all
    connections, of which there may be many thousands: nothing after the first of these is read."""
    for line in _lines(path):
        words = line.split(maxsplit=10)
        if len(words) < 10 or not words[0].endswith(b":"):
            continue  # the heading
        if datagrams and not words[2].endswith(_NO_PEER):
            continue  # connected to one peer
        if not datagrams and words[3] != _LISTENS:
            return
        yield int(words[1].rpartition(b":")[2], 16), int(words[9])


def _lines(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # hot
        rest = b""
        while chunk := file.read(_CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole


class RunSockets:
    """The sockets of one run. Cancelling a call does no harm."""

    def __init__(
        self, tables: SocketTables, processes: Processes, *, most_descriptors: int = _MOST_DESCRIPTORS
    ) -> None:
        self._tables = tables
        self._most_descriptors = most_descriptors
        self._processes = processes
        self._known: tuple[int, int] | None = None
        """A process of the run, and the inode of the socket that was found last."""

    async def missing(self, port: LeasedPort, *, max_age: float = FRESH_SECONDS) -> str:
        """Why it does not count as listening on this port, of whose protocols one suffices; empty: it listens, or its
        sockets are not visible on this node."""
        known = self._known
        if known is not None and await asyncio.to_thread(self._still, known, port, max_age):
            return ""
        self._known = None
        pids = await self._processes()
        if not pids:
            return "" if pids is None else f"nothing listens on {port_text(port)} yet"
        found, self._known = await asyncio.to_thread(self._look, pids, port, max_age)
        return found

    def _still(self, known: tuple[int, int], port: LeasedPort, max_age: float) -> bool:
        pid, inode = known
        table = self._tables.seen_by(pid, max_age=max_age)
        return table is not None and any(inode in table.by_port.get(key, ()) for key in keys(port))

    def _look(
        self, pids: Sequence[int], port: LeasedPort, max_age: float
    ) -> tuple[str, tuple[int, int] | None]:
        elsewhere: set[PortKey] = set()
        foreign = False
        room = self._most_descriptors
        for pid in pids[:_MOST_PROCESSES]:
            table = self._tables.seen_by(pid, max_age=max_age)
            if table is None:
                continue
            there = {inode for key in keys(port) for inode in table.by_port.get(key, ())}
            own, looked = _own_sockets(pid, room)
            room -= looked
            if own is None:
                if there:  # their owner is not visible; that the port is in use has to suffice
                    return "", None
                continue
            if mine := there & own:
                return "", (pid, mine.pop())
            foreign = foreign or bool(there)
            elsewhere |= {table.by_inode[inode] for inode in own & table.by_inode.keys()}
        return _why(port, elsewhere, foreign=foreign), None


def _own_sockets(pid: int, room: int) -> tuple[set[int] | None, int]:
    """The inodes of its sockets, and how many descriptors were read; None: they are not readable, or more than
    `room`."""
    if not room:
        return None, 0
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:  # as many as fit: it may have millions
            names = [entry.name for entry in itertools.islice(entries, room + 1)]
    except FileNotFoundError:
        return set(), 0
    except OSError:
        return None, 0
    if len(names) > room:
        return None, room
    found = set()
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115  # hot
        except OSError:
            continue
        if target.startswith(_SOCKET):
            found.add(int(target[len(_SOCKET) : -1]))
    return found, len(names)


def _why(port: LeasedPort, elsewhere: Iterable[PortKey], *, foreign: bool) -> str:
    text = f"nothing listens on {port_text(port)} yet"
    if foreign:
        text = f"{port_text(port)} belongs to a process that is not of this run"
    others = sorted(elsewhere)
    if others:
        listed = short_list((f"{number}/{protocol}" for number, protocol in others), _NAMED)
        text += f"; its processes listen on {listed}"
    return text


def keys(port: LeasedPort) -> tuple[PortKey, ...]:
    if port.protocol is PortProtocol.BOTH:
        return (port.port, "tcp"), (port.port, "udp")
    return ((port.port, port.protocol.value),)


def port_text(port: LeasedPort) -> str:
    """The port in the usual notation."""
    return f"{port.port}" + ("" if port.protocol is PortProtocol.BOTH else f"/{port.protocol}")
