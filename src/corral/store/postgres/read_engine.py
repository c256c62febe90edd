"""Reads in PostgreSQL, from a small pool; a read of several statements uses one snapshot."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from corral.domain.audit_chain import ChainedEntry, ChainState
from corral.domain.events import Cursor, Event
from corral.store.port import CHAINED_JOURNAL, Change, Document, Entry, EventBounds, Head, IndexRow, Snapshot
from corral.store.postgres.faults import translated
from corral.store.rows import (
    bounds_of,
    chain_of,
    chained_entry_of,
    change_of,
    check_commit,
    check_cursor,
    document_of,
    event_of,
    head_of,
    index_row_of,
)

_HEAD: Final = """select commit_number, sequence, event_epoch, entry, batch,
    (select epoch from leader) as epoch from head"""

_HELD: Final = """coalesce(sum(length({body})) over
    (order by {order} rows between unbounded preceding and 1 preceding), 0) as held"""
"""The bytes of all rows before this one. The length is known without reading the body."""
_ANY_SIZE: Final = 2**62


class PostgresReads:
    """The `ReadEngine`."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def head(self) -> Head:
        with translated():
            return head_of(await self._pool.fetchrow(_HEAD))

    async def snapshot(self, collections: Sequence[str] | None = None) -> Snapshot:
        async with self._one_snapshot() as connection:
            head = head_of(await connection.fetchrow(_HEAD))
            rows = await connection.fetch(
                """select collection, id, revision, body from document
                where body is not null and ($1::text[] is null or collection = any ($1))
                order by collection, id""",
                None if collections is None else list(collections),
            )
        return Snapshot(head=head, documents=tuple(map(document_of, rows)))

    async def get(self, collection: str, id: str) -> Document | None:
        with translated():
            row = await self._pool.fetchrow(
                """select collection, id, revision, body from document
                where collection = $1 and id = $2 and body is not null""",
                collection,
                id,
            )
        return None if row is None else document_of(row)

    async def get_many(self, collection: str, ids: Sequence[str]) -> list[Document]:
        with translated():
            rows = await self._pool.fetch(
                """select collection, id, revision, body from document
                where collection = $1 and id = any ($2::text[]) and body is not null""",
                collection,
                list(ids),
            )
        return list(map(document_of, rows))

    async def scan(
        self,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[Document]:
        bounds = [after] if before is None else [after, before]
        upper = "" if before is None else "and id < $5"
        way = "desc" if newest else "asc"
        with translated():
            rows = await self._pool.fetch(
                f"""select collection, id, revision, body from
                    (select *, {_HELD.format(body="body", order=f"id {way}")} from
                        (select collection, id, revision, body from document
                        where collection = $1 and id > $4 {upper} and body is not null
                        order by id {way} limit $2) as page) as sized
                where held < $3 order by id {way}""",  # noqa: S608 - fixed words
                collection,
                limit,
                _ANY_SIZE if size is None else size,
                *bounds,
            )
        return list(map(document_of, rows))

    async def scan_index(
        self,
        index: str,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[IndexRow]:
        upper = "" if before is None else "and id < $6"
        way = "desc" if newest else "asc"
        values = [index, after, limit, collection, _ANY_SIZE if size is None else size]
        with translated():
            # The offset forces the planner to join by one look-up per entry.
            rows = await self._pool.fetch(
                f"""select key, entry_id, entry_revision, entry_body, collection, id, revision, body from
                    (select entry.*, found.*, {_HELD.format(body="found.body", order=f"entry_id {way}")} from
                        (select collection as key, id as entry_id, revision as entry_revision,
                            body as entry_body from document
                        where collection = $1 and id > $2 {upper} and body is not null
                        order by id {way} limit $3) as entry
                    left join lateral
                        (select collection, id, revision, body from document
                        where collection = $4 and id = convert_from(entry_body, 'UTF8')::json ->> 0
                        and body is not null offset 0) as found on true) as sized
                where held < $5 order by entry_id {way}""",  # noqa: S608 - fixed words
                *(values if before is None else [*values, before]),
            )
        return list(map(index_row_of, rows))

    async def changes(self, after: int, *, limit: int) -> list[Change]:
        async with self._one_snapshot() as connection:
            trimmed, last = await connection.fetchrow(
                "select tombstone, (select commit_number from head) from trimmed"
            )
            check_commit(after, trimmed=trimmed, last=last)
            if after == last:
                return []  # the result for a follower that is up to date, without a scan
            rows = await connection.fetch(
                """select collection, id, revision, body from document
                where revision > $1 and revision <= coalesce(
                    (select revision from document where revision > $1
                     order by revision limit 1 offset $2::bigint - 1), $3)
                order by revision, collection, id""",
                after,
                limit,
                last,
            )
        return list(map(change_of, rows))

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        async with self._one_snapshot() as connection:
            trimmed, trimmed_epoch, last, before, behind = await connection.fetchrow(
                """select sequence, event_epoch, (select sequence from head),
                    (select epoch from event where sequence <= $1 order by sequence desc limit 1),
                    (select epoch from event where sequence >= $1 order by sequence limit 1) from trimmed""",
                after.sequence,
            )
            oldest = Cursor(trimmed_epoch, trimmed)
            check_cursor(after, trimmed=oldest, last=last, epoch_before=before, epoch_behind=behind)
            rows = await connection.fetch(
                """select sequence, epoch, type, subject, at, data from event
                where sequence > $1 order by sequence limit $2""",
                after.sequence,
                limit,
            )
        return [event_of(row, time=lambda at: at) for row in rows]

    async def cursor_at(self, sequence: int) -> Cursor:
        async with self._one_snapshot() as connection:
            trimmed, trimmed_epoch, last = await connection.fetchrow(
                "select t.sequence, t.event_epoch, h.sequence from trimmed t, head h"
            )
            place = min(max(sequence, trimmed), last)
            if place == trimmed:
                return Cursor(trimmed_epoch, trimmed)
            epoch = await connection.fetchval(
                "select epoch from event where sequence <= $1 order by sequence desc limit 1", place
            )
            return Cursor(trimmed_epoch if epoch is None else epoch, place)

    async def event_bounds(self, *, events: int, of_modules: int, module_bytes: int) -> EventBounds:
        with translated():
            row = await self._pool.fetchrow(
                """select
                (select sequence from event order by sequence desc limit 1 offset $1),
                (select sequence from event where type = 'MODULE_EVENT'
                    order by sequence desc limit 1 offset $2),
                (select max(sequence) from (
                    select sequence, sum(length(data)) over (order by sequence desc) as held
                    from event where type = 'MODULE_EVENT') as sums where held > $3)""",
                events,
                of_modules,
                module_bytes,
            )
        return bounds_of(row)

    async def entries(
        self,
        journal: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest: bool = False,
        prefix: bool = False,
    ) -> list[Entry]:
        named = "journal >= $1 and starts_with(journal, $1)" if prefix else "journal = $1"
        with translated():
            rows = await self._pool.fetch(
                f"""select journal, number, at, body from entry
                where {named} and number > $2 and ($3::bigint is null or number < $3)
                order by number {"desc" if newest else "asc"} limit $4""",  # noqa: S608 - our own words
                journal,
                after,
                before,
                limit,
            )
        found = [Entry(journal=j, number=n, at=a, body=b) for j, n, a, b in rows]
        return found[::-1] if newest else found

    async def chain(self) -> ChainState:
        with translated():
            row = await self._pool.fetchrow(
                """select first, c.number, c.hash, r.number, r.hash from chain c, chain_removed r"""
            )
        return chain_of(row)

    async def chained_entries(
        self, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[ChainedEntry]:
        with translated():
            rows = await self._pool.fetch(
                """select e.number, e.at, e.body, l.previous, l.hash
                from entry e left join chain_link l on l.number = e.number
                where e.journal = $1 and e.number > $2 and ($3::bigint is null or e.number < $3)
                order by e.number limit $4""",
                CHAINED_JOURNAL,
                after,
                before,
                limit,
            )
        return [chained_entry_of(row, time=lambda at: at) for row in rows]

    async def journals(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        with translated():
            rows = await self._pool.fetch(
                """select journal, min(number), count(*) from entry
                where journal >= $1 and starts_with(journal, $1) group by journal""",
                prefix,
            )
        return {journal: (oldest, count) for journal, oldest, count in rows}

    @contextlib.asynccontextmanager
    async def _one_snapshot(self) -> AsyncIterator[Any]:
        """A connection on which everything read is as of one instant."""
        with translated():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield connection


def _as_it_is(at: dt.datetime) -> dt.datetime:
    return at
