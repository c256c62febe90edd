"""The schema in PostgreSQL, brought up to date at open by one controller at a time."""

from __future__ import annotations

from typing import Any, Final

from corral.errors import Code, Rejected
from corral.store.migrations import load_migrations, pending

_OLDEST: Final = 14
_LOCK: Final = 4859229450158240
"""The advisory lock under which controllers that start together migrate one after the other."""


async def migrate(connection: Any, *, where: str) -> None:
    """Apply what is pending, all in one transaction: the schema is whole or as it was."""
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
