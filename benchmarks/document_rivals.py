"""What the databases can do with documents by themselves: SQLite's JSON functions, PostgreSQL's `jsonb`.

A rival keeps the documents where ours lie and writes them by the same writer, so that fence, compare-and-set
and quotas cost the same. It has no index entries: the database keeps expression indexes, and answers filters
and sorts in SQL (`document_sql`).
"""

from __future__ import annotations

import base64
import functools
import pathlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import msgspec
import re2  # type: ignore[import-untyped]  # has no stubs

from benchmarks.document_sql import Dialect, PostgresDialect, SqliteDialect, Statement, order_columns
from corral.controller.modules.data.module_data import ModuleData
from corral.controller.modules.data.query_plan import Sort, parse_sort, ties_go_down
from corral.controller.modules.data.spaces import DataScope, space_of
from corral.domain.modules.document_filters import ID_PATH, parse_filter
from corral.domain.modules.document_values import parse_path, value_at
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol import storage_messages as said
from corral.store.sqlite.engine import open_reader
from corral.store.sqlite.threads import DatabaseThread

_ANSWER_BYTES: Final = 2 * 1024 * 1024


class Rival:
    """`documents.*` for the SDK: writing is ours, without indexes; asking is the database's."""

    def __init__(self, data: ModuleData, dialect: Dialect) -> None:
        self._dialect = dialect
        self._ours = {operation.method: operation.handler for operation in data.operations()}

    def operations(self, data: ModuleData) -> list[Operation]:
        own = {
            said.CREATE: self.create,
            said.FIND: self.find,
            said.COUNT: self.count,
            said.UPDATE_MANY: self.update_many,
            said.DELETE_MANY: self.delete_many,
        }
        return [
            msgspec.structs.replace(each, handler=own.get(each.method, each.handler))
            for each in data.operations()
        ]

    async def rows(self, sql: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        raise NotImplementedError

    async def define(self, name: str, columns: str, where: str, *, unique: bool) -> None:
        raise NotImplementedError

    async def create(self, scope: Any, body: said.CreateCollection) -> said.CollectionBody:
        known = await self._ours[said.CREATE](scope, msgspec.structs.replace(body, indexes=()))
        where = _where(scope, body.collection)
        for index in body.indexes:
            columns = [c for field in index.fields for c in self._dialect.columns(parse_path(field))]
            name = f"own_{body.collection}_" + "_".join(field.replace(".", "_") for field in index.fields)
            ending = [] if index.unique else ["id"]
            await self.define(name, ", ".join([*columns, *ending]), where, unique=index.unique)
        assert isinstance(known, said.CollectionBody)
        return known

    async def find(self, scope: DataScope, body: said.FindDocuments) -> said.DocumentPage:
        statement, sort = Statement(self._dialect), parse_sort(body.sort)
        condition = f"{_where(scope, body.collection)} AND {statement.condition(parse_filter(body.filter))}"
        ordered = order_columns(self._dialect, sort)
        if body.after:
            values, id = msgspec.json.decode(base64.b64decode(body.after))
            condition += f" AND {statement.after(sort, values, id)}"
        way = " DESC" if ties_go_down(sort) else ""
        found = await self.rows(
            f"""SELECT id, revision, body FROM document
            WHERE {condition} ORDER BY {", ".join(f"{column}{way}" for column in [*ordered, "id"])}
            LIMIT {body.limit + 1} OFFSET {body.skip}""",
            statement.values,
        )
        return self._page(found, body.limit, sort)

    def _page(self, found: Sequence[Sequence[Any]], limit: int, sort: Sort) -> said.DocumentPage:
        kept: list[Sequence[Any]] = []
        size = 0
        for row in found[:limit]:
            size += len(row[2])
            if kept and size > _ANSWER_BYTES:
                break
            kept.append(row)
        documents = tuple(said.DocumentBody(id=row[0], revision=row[1], body=row[2]) for row in kept)
        if len(kept) == len(found):
            return said.DocumentPage(documents=documents)
        last = msgspec.json.decode(kept[-1][2])
        values = [value_at(last, field.path) for field in sort if field.path != ID_PATH]
        following = msgspec.json.encode((values, kept[-1][0]))
        return said.DocumentPage(documents=documents, next=base64.b64encode(following).decode())

    async def count(self, scope: DataScope, body: said.CountDocuments) -> said.Counted:
        statement = Statement(self._dialect)
        condition = statement.condition(parse_filter(body.filter))
        ((count,),) = await self.rows(
            f"SELECT count(*) FROM document WHERE {_where(scope, body.collection)} AND {condition}",
            statement.values,
        )
        return said.Counted(count=count)

    async def update_many(self, scope: DataScope, body: said.UpdateMany) -> said.Counted:
        steps = [
            said.Step(kind="update", collection=body.collection, id=id, update=body.update)
            for id in await self._ids(scope, body.collection, body.filter)
        ]
        return await self._in_parts(scope, steps)

    async def delete_many(self, scope: DataScope, body: said.DeleteMany) -> said.Counted:
        ids = await self._ids(scope, body.collection, body.filter)
        return await self._in_parts(
            scope, [said.Step(kind="delete", collection=body.collection, id=id) for id in ids]
        )

    async def _ids(self, scope: DataScope, collection: str, wanted: dict[str, Any]) -> list[str]:
        statement = Statement(self._dialect)
        condition = statement.condition(parse_filter(wanted))
        found = await self.rows(
            f"SELECT id FROM document WHERE {_where(scope, collection)} AND {condition}", statement.values
        )
        return [id for (id,) in found]

    async def _in_parts(self, scope: Any, steps: Sequence[said.Step]) -> said.Counted:
        for start in range(0, len(steps), said.MAX_STEPS):
            part = tuple(steps[start : start + said.MAX_STEPS])
            await self._ours[said.TRANSACTION](scope, said.RunTransaction(steps=part))
        return said.Counted(count=len(steps))


class SqliteRival(Rival):
    """Reads on a connection of its own, so that nobody else's reading waits behind a long statement."""

    def __init__(self, data: ModuleData, path: pathlib.Path) -> None:
        super().__init__(data, SqliteDialect())
        self._path = path
        self._thread = DatabaseThread(functools.partial(_reader, path), name="benchmark/read")

    async def open(self) -> None:
        await self._thread.open()

    async def close(self) -> None:
        await self._thread.close()

    async def rows(self, sql: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        return await self._thread.call(lambda db: db.execute(sql, values).fetchall())

    async def define(self, name: str, columns: str, where: str, *, unique: bool) -> None:
        def work(_: sqlite3.Connection) -> None:
            with sqlite3.connect(self._path, timeout=60) as db:
                kind = "UNIQUE INDEX" if unique else "INDEX"
                db.execute(f"CREATE {kind} IF NOT EXISTS {name} ON document ({columns}) WHERE {where}")
            db.close()

        await self._thread.call(work)


def _reader(path: pathlib.Path) -> sqlite3.Connection:
    db = open_reader(path)
    patterns = functools.lru_cache(re2.compile)
    db.create_function(
        "re2_found", 2, lambda pattern, text: patterns(pattern).search(text) is not None, deterministic=True
    )
    return db


class PostgresRival(Rival):
    """Documents have a second column, `jsonb`, which the database fills; indexes are built beside writers."""

    def __init__(self, data: ModuleData, url: str) -> None:
        super().__init__(data, PostgresDialect())
        self._url = url
        self._pool: Any = None

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._url, min_size=4, max_size=4, server_settings={"jit": "off"}
        )
        await self._pool.execute(
            """create function as_json(body bytea) returns jsonb language sql immutable strict parallel safe
                as $$ select convert_from(body, 'UTF8')::jsonb $$;
            alter table document add column value jsonb generated always as
                (case when collection like 'mod/%/d/%' then as_json(body) end) stored"""
        )

    async def close(self) -> None:
        await self._pool.close()

    async def rows(self, sql: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = await self._pool.fetch(sql, *values)
        return found

    async def define(self, name: str, columns: str, where: str, *, unique: bool) -> None:
        kind = "unique index" if unique else "index"
        await self._pool.execute(
            f"create {kind} concurrently if not exists {name} on document ({columns}) where {where}"
        )
        if await self._pool.fetchval(f"select exists (select from document where {where})"):
            await self._pool.execute("analyze document")


def _where(scope: DataScope, collection: str) -> str:
    """Written out: a partial index is used only where its own condition stands in the statement."""
    return f"collection = '{space_of(scope).documents(collection)}' AND body IS NOT NULL"
