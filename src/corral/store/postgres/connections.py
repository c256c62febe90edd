"""Connections to PostgreSQL: named by their role, and bounded in every wait.

The names matter: a candidate finds the writers of older epochs by them (`corral-writer:EPOCH:…`)
and ends them before it moves the fence.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import asyncpg
import msgspec

from corral.domain.ids import Epoch
from corral.store.postgres.faults import FAILURES
from corral.store.store_errors import StoreUnavailable
from corral.system.entropy import Entropy, new_id

_NAME_BYTES: Final = 63
"""PostgreSQL truncates an application name at this length, silently."""


_POINT_LOOK_UPS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. The server gives up on a lock, then on a statement, before the client gives up on the server."""

    connect: float = 5.0
    lock: float = 4.0
    statement: float = 8.0
    answer: float = 10.0
    idle_in_transaction: float = 5.0
    reading: float = 60.0

    def server_settings(self, name: str, *, statement: float) -> dict[str, str]:
        """Settings of one session. The TCP ones free the locks of a client that vanished."""
        assert len(name.encode()) <= _NAME_BYTES, name
        return {
            "application_name": name,
            "lock_timeout": _milliseconds(self.lock),
            "statement_timeout": _milliseconds(statement),
            "idle_in_transaction_session_timeout": _milliseconds(self.idle_in_transaction),
            "client_connection_check_interval": _milliseconds(2.0),
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": _milliseconds(self.answer),
            "jit": "off",
        }


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


class PostgresConnector:
    """Where the database is, and how to connect to it in a role."""

    def __init__(self, url: str, *, entropy: Entropy, deadlines: Deadlines | None = None) -> None:
        self._url = url
        self._entropy = entropy
        self.deadlines = deadlines or Deadlines()

    async def connect(
        self, name: str, *, statement: float | None = None, settings: Mapping[str, str] | None = None
    ) -> Any:
        """A connection under this application name; `statement` 0 means no limit."""
        limit = self.deadlines.statement if statement is None else statement
        return await asyncpg.connect(
            self._url,
            timeout=self.deadlines.connect,
            command_timeout=None if limit == 0 else self.deadlines.answer,
            server_settings={**self.deadlines.server_settings(name, statement=limit), **(settings or {})},
        )

    async def connect_writer(self, name: str) -> Any:
        """A connection for batches: they look up single rows only, so their plans never change."""
        return await self.connect(name, settings=_POINT_LOOK_UPS)

    async def pool(self, name: str, *, size: int) -> Any:
        """A pool for reads; its connections keep no state, so nothing is reset between uses."""
        return await asyncpg.create_pool(
            self._url,
            min_size=1,
            max_size=size,
            timeout=self.deadlines.connect,
            command_timeout=self.deadlines.reading,
            server_settings=self.deadlines.server_settings(name, statement=self.deadlines.reading),
            reset=_no_reset,
        )

    def writer_name(self, epoch: Epoch) -> str:
        """The name of one writer connection: its epoch, and a token no other connection has."""
        return new_id(f"corral-writer:{epoch}:w", self._entropy)

    def token(self) -> int:
        """A random positive number, for an upload and its advisory lock."""
        return int.from_bytes(self._entropy.secret(8)) >> 1


async def _no_reset(_connection: Any) -> None:
    return None


class KeptConnection:
    """One connection for one task at a time, opened when needed and again after it broke."""

    def __init__(self, server: PostgresConnector, name: str) -> None:
        self._server = server
        self._name = name
        self._connection: Any = None
        self._turn = asyncio.Lock()
        self._closed = False

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        """The connection, alone. After any failure inside it is thrown away."""
        async with self._turn:
            if self._closed:
                raise StoreUnavailable("it was closed")
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._server.connect(self._name)
            try:
                yield self._connection
            except BaseException:
                self._connection.terminate()
                self._connection = None
                raise

    async def close(self) -> None:
        async with self._turn:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)


async def close_connection(connection: Any) -> None:
    """Close the connection in order if the server responds, otherwise abort it."""
    try:
        await connection.close(timeout=1.0)
    except FAILURES:
        connection.terminate()
