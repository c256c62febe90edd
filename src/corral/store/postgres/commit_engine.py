"""Batches in PostgreSQL: one call of `corral_commit` on the writer's own connection.

The driver encodes an array element by element, which costs more than the server needs to store it. Numbers
and names are therefore sent as PostgreSQL's own array text (`{1,2,NULL}`), built here in one go; bodies stay
binary.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from corral.domain.ids import Epoch
from corral.store.port import BatchOutcome, Put, Transaction
from corral.store.postgres.connections import PostgresConnector, close_connection
from corral.store.postgres.faults import FAILURES, describe, ended_connection, fence_error, translated
from corral.store.rows import decode_outcome
from corral.store.store_errors import Fenced, StoreUnavailable

_ENCODE: Final = msgspec.json.Encoder().encode

COMMIT: Final = """select corral_commit($1, $2, $3, $4,
    $5::text::int[], $6::text::text[], $7::text::text[], $8::bytea[], $9::text::bigint[],
    $10::text::int[], $11::text::text[], $12::text::text[], $13::bytea[],
    $14::text::int[], $15::text::text[], $16::bytea[])"""
"""Epoch, batch, time and number of transactions, then the result of `batch_arrays`."""


def batch_arrays(transactions: Sequence[Transaction]) -> tuple[str | list[Any], ...]:
    """Writes, events and entries, column by column; places count the transactions from 1."""
    places: list[int] = []
    collections: list[str] = []
    ids: list[str] = []
    bodies: list[bytes | None] = []
    expected: list[int | None] = []
    event_places: list[int] = []
    types: list[str] = []
    subjects: list[str] = []
    data: list[bytes] = []
    entry_places: list[int] = []
    journals: list[str] = []
    entries: list[bytes] = []
    for place, transaction in enumerate(transactions, 1):
        for write in transaction.writes:
            places.append(place)
            collections.append(write.collection)
            ids.append(write.id)
            bodies.append(write.body if isinstance(write, Put) else None)
            expected.append(write.expect)
        for draft in transaction.events:
            event_places.append(place)
            types.append(draft.type)
            subjects.append(draft.subject)
            data.append(_ENCODE(draft.data))
        for entry in transaction.entries:
            entry_places.append(place)
            journals.append(entry.journal)
            entries.append(entry.body)
    return (
        *(number_array(places), text_array(collections), text_array(ids), bodies, number_array(expected)),
        *(number_array(event_places), text_array(types), text_array(subjects), data),
        *(number_array(entry_places), text_array(journals), entries),
    )


def number_array(numbers: Sequence[int | None]) -> str:
    """A list's own text has the same form but for brackets and the word for null."""
    return "{" + str(list(numbers))[1:-1].replace("None", "NULL") + "}"


def text_array(texts: Sequence[str]) -> str:
    """Every element in quotes; inside them only the quote and the backslash are special."""
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') != 2 * (len(texts) - 1):
        joined = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in texts])
    return '{"' + joined + '"}' if texts else "{}"


log = structlog.get_logger("corral.store")

ROWS_A_TRIM: Final = 500

_END_BACK_END: Final = """select count(pg_terminate_backend(pid, 1000)) from pg_stat_activity
    where datname = current_database() and application_name = $1 and pid <> pg_backend_pid()"""


class PostgresCommits:
    """The `CommitEngine`. Trimming has a connection of its own: no batch waits behind a purge."""

    def __init__(self, server: PostgresConnector) -> None:
        self._batches = FencedConnection(server)
        self._trims = FencedConnection(server)

    async def commit_batch(
        self, *, epoch: Epoch, batch: str, at: dt.datetime, transactions: Sequence[Transaction]
    ) -> BatchOutcome:
        arrays = batch_arrays(transactions)
        answer: str = await self._batches.call(epoch, COMMIT, epoch, batch, at, len(transactions), *arrays)
        return decode_outcome(answer)

    async def resolve_batch(self, batch: str, *, epoch: Epoch) -> BatchOutcome | None:
        last, outcome, fence = await self._batches.ask(
            epoch, "select batch, outcome, (select epoch from leader) from head"
        )
        if last == batch:
            return decode_outcome(outcome)
        if fence != epoch:
            raise Fenced(epoch, fence)
        return None

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        dropped: int = await self._trims.call(
            epoch,
            "select corral_trim($1, $2, $3, $4, $5, $6)",
            epoch,
            events_through,
            tombstones_through,
            [journal for journal, _ in journals],
            [through for _, through in journals],
            ROWS_A_TRIM,
        )
        return dropped

    async def drop_module_events(self, *, epoch: Epoch, through: int) -> int:
        dropped: int = await self._trims.call(
            epoch, "select corral_drop_module_events($1, $2, $3)", epoch, through, ROWS_A_TRIM
        )
        return dropped

    async def close(self) -> None:
        await self._batches.close()
        await self._trims.close()


class FencedConnection:
    """A connection for writes under one epoch at a time, whose name contains the epoch, for candidates to
    see.

    Invariant: no new connection is used before every lost one has ended at the server.
    """

    def __init__(self, server: PostgresConnector) -> None:
        self._server = server
        self._turn = asyncio.Lock()
        self._connection: Any = None
        self._epoch: Epoch | None = None
        self._name = ""
        self._lost: list[str] = []
        self._closed = False

    async def call(self, epoch: Epoch, query: str, *values: Any) -> Any:
        """One statement, one round trip, one value. `StoreUnavailable` contains whether it is in doubt."""
        async with self._turn:
            with translated():
                connection = await self._connect(epoch)
            try:
                return await connection.fetchval(query, *values)
            except FAILURES as error:
                fenced = fence_error(error, epoch)
                if fenced is not None:
                    raise fenced from error
                in_doubt = ended_connection(error)
                if in_doubt:
                    self._abandon()
                raise StoreUnavailable(describe(error), in_doubt=in_doubt) from error
            except BaseException:
                self._abandon()  # cancelled in the middle: the answer is lost
                raise

    async def ask(self, epoch: Epoch, query: str) -> Any:
        """A row, read when no earlier statement can still be in progress."""
        async with self._turn:
            with translated():
                return await (await self._connect(epoch)).fetchrow(query)

    async def close(self) -> None:
        async with self._turn:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)

    async def _connect(self, epoch: Epoch) -> Any:
        if self._closed:
            raise StoreUnavailable("it was closed")
        if self._connection is not None and (self._epoch != epoch or self._connection.is_closed()):
            self._abandon()
        if self._connection is None:
            name = self._server.writer_name(epoch)
            connection = await self._server.connect_writer(name)
            try:
                await self._end_lost(connection)
            except BaseException:
                connection.terminate()
                raise
            self._connection, self._name, self._epoch = connection, name, epoch
        return self._connection

    def _abandon(self) -> None:
        """Drop the connection; its back end may still be executing, so its name is remembered."""
        if self._connection is not None:
            self._lost.append(self._name)
            self._connection.terminate()
            self._connection = None

    async def _end_lost(self, connection: Any) -> None:
        """Return only when no back end of a connection we lost exists any more.

        A batch that such a back end had not committed by then never will be; what it committed
        is visible now, for its entry disappears after its transaction ended.
        """
        while self._lost:
            name = self._lost[0]
            if await connection.fetchval(_END_BACK_END, name) == 0:
                self._lost.pop(0)
            else:
                log.info("store_back_end.stopped", name=name)
