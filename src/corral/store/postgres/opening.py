"""Putting the cluster's store together, and taking it apart again."""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import urlsplit

from corral.store.port import Store
from corral.store.postgres.blobs import PostgresBlobs
from corral.store.postgres.committing import PostgresCommits
from corral.store.postgres.connections import Deadlines, KeptConnection, PostgresServer, close_connection
from corral.store.postgres.faults import refusing_configuration
from corral.store.postgres.leases import PostgresLeases
from corral.store.postgres.reading import PostgresReads
from corral.store.postgres.schema import migrate
from corral.system.entropy import Entropy, SystemEntropy

_READERS: Final = 4


async def open_postgres(
    url: str, *, entropy: Entropy | None = None, deadlines: Deadlines | None = None
) -> Store:
    """Open the store in this database, migrated. Raises INVALID_CONFIG for what an operator has
    to change, FORMAT_TOO_NEW for a newer schema, `StoreUnavailable` for what time may heal."""
    server = PostgresServer(url, entropy=entropy or SystemEntropy(), deadlines=deadlines)
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
