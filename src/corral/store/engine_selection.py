"""Selection of the store that the configuration names."""

from __future__ import annotations

import pathlib
from urllib.parse import urlsplit

from corral.errors import Code, unknown_choice
from corral.store.port import Store


def is_embedded(url: str) -> bool:
    """Whether it is the store of one controller, in files of its data directory."""
    return (urlsplit(url).scheme or url) == "sqlite"


async def open_store(url: str, *, data: pathlib.Path) -> Store:
    """Open, lock and migrate a store; the caller closes it.

    `sqlite` keeps everything in `data`; `postgres://…` names a database. Raises INVALID_CONFIG
    for anything else, FORMAT_TOO_NEW for a newer schema, `StoreUnavailable` when a database does
    not answer (worth a retry).
    """
    scheme = urlsplit(url).scheme or url
    match scheme:
        case "sqlite":
            # Each driver is imported only when it is used, which keeps the start quick.
            from corral.store.sqlite.engine import open_sqlite

            return await open_sqlite(data)
        case "postgres" | "postgresql":
            from corral.store.postgres.engine import open_postgres

            return await open_postgres(url)
    raise unknown_choice(
        "store", scheme, ("sqlite", "postgres://…"), code=Code.INVALID_CONFIG, field="store.url"
    )
