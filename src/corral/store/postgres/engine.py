"""The PostgreSQL store: opened, its schema migrated by one controller at a time, and closed."""

from __future__ import annotations

import contextlib
from typing import Any, Final
from urllib.parse import urlsplit

from corral.errors import Code, Rejected
from corral.store.migrations import load_migrations, pending
from corral.store.port import Store
from corral.store.postgres.blobs import PostgresBlobs
from corral.store.postgres.commit_engine import PostgresCommits
from corral.store.postgres.connections import Deadlines, KeptConnection, PostgresConnector, close_connection
from corral.store.postgres.faults import refusing_configuration
from corral.store.postgres.leases import PostgresLeases
from corral.store.postgres.read_engine import PostgresReads
from corral.system.entropy import Entropy, SystemEntropy

_OLDEST: Final = 14
_LOCK: Final = 4859229450158240
"""The advisory lock under which controllers that start together migrate one after the other."""


async def migrate(connection: Any, *, where: str) -> None:
    """Apply the pending migrations, all in one transaction: complete, or unchanged."""
    check_server_version(connection.get_server_version().major, where=where)
    async with connection.transaction():
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK})")
        await connection.execute(
            "create table if not exists schema_version (version int primary key, name text not null)"
        )
        current = await connection.fetchval("select coalesce(max(version), 0) from schema_version")
        for step in pending(load_migrations("corral.store.postgres"), current=current, where=where):
            await connection.execute(step.sql)
            await connection.execute(
                "insert into schema_version (version, name) values ($1, $2)", step.version, step.name
            )


def check_server_version(major: int, *, where: str) -> None:
    if major < _OLDEST:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"{where} is PostgreSQL {major}, Corral needs {_OLDEST} or newer",
            hint="upgrade the database server",
            field="store.url",
        )


_READERS: Final = 4


async def open_postgres(
    url: str, *, entropy: Entropy | None = None, deadlines: Deadlines | None = None
) -> Store:
    """Open the store in this database, migrated. Raises INVALID_CONFIG for what an operator has to change,
    FORMAT_TOO_NEW for a newer schema, `StoreUnavailable` for failures that may pass."""
    server = PostgresConnector(url, entropy=entropy or SystemEntropy(), deadlines=deadlines)
    where = _without_password(url)
    async with contextlib.AsyncExitStack() as undo:
        with refusing_configuration(where):
            connection = await server.connect("corral-migration", statement=0)
            try:
                await migrate(connection, where=where)
            finally:
                await close_connection(connection)
            pool = await server.pool("corral-reader", size=_READERS)
        undo.push_async_callback(pool.close)
        commits = PostgresCommits(server)
        undo.push_async_callback(commits.close)
        lease_connection = KeptConnection(server, "corral-lease")
        undo.push_async_callback(lease_connection.close)
        blobs = PostgresBlobs(server, pool)
        await blobs.sweep()
        return Store(
            name="postgres",
            exclusive=False,
            commits=commits,
            reads=PostgresReads(pool),
            leases=PostgresLeases(lease_connection),
            blobs=blobs,
            close=undo.pop_all().aclose,
        )
    raise AssertionError("unreachable: the exit stack swallows nothing")


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"database {parts.path.lstrip('/') or 'of the user'} at {parts.hostname or 'the local socket'}"
