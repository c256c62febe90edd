"""Leases in PostgreSQL, on a connection of their own: a renewal never waits behind a write."""

from __future__ import annotations

import msgspec

from corral.domain.ids import Epoch
from corral.store.port import LeaseRow
from corral.store.postgres.connections import KeptConnection
from corral.store.postgres.faults import translated


class PostgresLeases:
    """The `LeaseEngine`. Each call is one statement, so a stopped caller holds no lock."""

    def __init__(self, connection: KeptConnection) -> None:
        self._connection = connection

    async def read_lease(self, name: str) -> LeaseRow | None:
        with translated():
            async with self._connection.use() as connection:
                row = await connection.fetchrow(
                    "select name, holder, epoch, counter, info from lease where name = $1", name
                )
        return None if row is None else LeaseRow(**row)

    async def take_lease(
        self, name: str, *, holder: str, seen: LeaseRow | None, info: str = ""
    ) -> LeaseRow | None:
        with translated():
            async with self._connection.use() as connection:
                epoch = await connection.fetchval(
                    "select corral_take_lease($1, $2, $3, $4, $5, $6)",
                    name,
                    holder,
                    info,
                    seen and seen.holder,
                    seen and seen.epoch,
                    seen and seen.counter,
                )
        if epoch is None:
            return None
        return LeaseRow(name=name, holder=holder, epoch=Epoch(epoch), counter=1, info=info)

    async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
        # The counter is not compared: the answer to an earlier renewal may have been lost.
        with translated():
            async with self._connection.use() as connection:
                counter = await connection.fetchval(
                    """update lease set counter = counter + 1
                    where name = $1 and holder = $2 and epoch = $3 returning counter""",
                    row.name,
                    row.holder,
                    row.epoch,
                )
        return None if counter is None else msgspec.structs.replace(row, counter=counter)

    async def release_lease(self, row: LeaseRow) -> None:
        with translated():
            async with self._connection.use() as connection:
                await connection.execute(
                    """update lease set holder = '', info = '', counter = counter + 1
                    where name = $1 and holder = $2 and epoch = $3""",
                    row.name,
                    row.holder,
                    row.epoch,
                )

    async def raise_epoch(self, row: LeaseRow, *, by: int) -> LeaseRow | None:
        with translated():
            async with self._connection.use() as connection:
                counter = await connection.fetchval(
                    "select corral_raise_epoch($1, $2, $3, $4)", row.name, row.holder, row.epoch, by
                )
        if counter is None:
            return None
        return msgspec.structs.replace(row, epoch=Epoch(row.epoch + by), counter=counter)
