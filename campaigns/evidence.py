"""What the checker of decisions looks at: processes by /proc, and the store by its own query language.

Nothing of Corral's own logic is used to read either: documents are plain JSON here.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any, Protocol

import asyncpg

Document = dict[str, Any]


class Process:
    """A living workload."""

    def __init__(self, pid: int, environment: dict[str, str], ports: list[int]) -> None:
        self.pid = pid
        self.instance = environment["CORRAL_INSTANCE_ID"]
        self.run = environment["CORRAL_RUN"]
        self.node = environment["CORRAL_NODE_ID"]
        self.ports = ports


def workloads(side: pathlib.Path) -> list[Process]:
    """The processes that were started with this side directory, zombies excepted."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, KeyError, ValueError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if str(side).encode() in arguments and b"-I" in arguments:
                    found.append(_process(entry, arguments))
    return found


def _process(entry: pathlib.Path, arguments: list[bytes]) -> Process:
    pairs = (part.partition(b"=") for part in (entry / "environ").read_bytes().split(b"\0"))
    environment = {name.decode(): value.decode() for name, _, value in pairs}
    ports = [
        int(part) for part in arguments[7:] if part
    ]  # behind the program, its directory, kind and address
    return Process(int(entry.name), environment, ports)


class Store(Protocol):
    """The tables of the store."""

    async def rows(self, query: str) -> list[tuple[Any, ...]]: ...


class SqliteStore:
    """The file, opened for reading only."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=30)) as db:
            return db.execute(query).fetchall()


class PostgresStore:
    """The database, by a connection of its own for each question."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self._url)
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()


class Evidence:
    """The contents of the store at one time after another."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def documents(self, collection: str) -> dict[str, Document]:
        rows = await self._store.rows(
            f"SELECT id, body FROM document WHERE collection = '{collection}' AND body IS NOT NULL"  # noqa: S608
        )
        return {id: json.loads(bytes(body)) for id, body in rows}

    async def events(self, after: int = 0) -> list[Document]:
        rows = await self._store.rows(
            f"SELECT sequence, epoch, type, subject, data FROM event WHERE sequence > {after} ORDER BY sequence"  # noqa: S608
        )
        return [
            {
                "sequence": sequence,
                "id": f"{epoch}-{sequence}",
                "type": type,
                "subject": subject,
                "data": json.loads(bytes(data)),
            }
            for sequence, epoch, type, subject, data in rows
        ]

    async def decisions(self, after: int = 0) -> list[Document]:
        """The newest last, each once for each of its journals; `journal` and `number` are added."""
        rows = await self._store.rows(
            "SELECT number, journal, body FROM entry "  # noqa: S608
            f"WHERE journal >= 'decisions:' AND journal < 'decisions;' AND number > {after} ORDER BY number"
        )
        return [
            {**json.loads(bytes(body)), "journal": journal.removeprefix("decisions:"), "number": number}
            for number, journal, body in rows
        ]

    async def requests(self) -> set[str]:
        """The ids of all requests that changed something."""
        rows = await self._store.rows("SELECT body FROM entry WHERE journal = 'audit'")
        return {json.loads(bytes(body)).get("request", "") for (body,) in rows}

    async def heads(self) -> tuple[int, int]:
        """The numbers of the last event and of the last decision."""
        rows = await self._store.rows(
            "SELECT (SELECT coalesce(max(sequence), 0) FROM event), "
            "(SELECT coalesce(max(number), 0) FROM entry WHERE journal >= 'decisions:' AND journal < 'decisions;')"
        )
        return int(rows[0][0]), int(rows[0][1])


def port_keys(port: int, protocol: str) -> Iterator[tuple[int, str]]:
    """The transports that a port occupies."""
    for kind in ("tcp", "udp"):
        if protocol in (kind, "both"):
            yield port, kind
