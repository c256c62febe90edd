"""A database that is missing or empty where a cluster was: told apart from a first start.

To found a new cluster there would replace the administrator's token, and SQLite would throw away the
write-ahead log of the lost one. So nothing is touched until somebody says what is meant.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence

from corral.errors import Code, Rejected
from corral.store.opening import is_embedded
from corral.system.config_schema import ControllerConfig


def refuse_lost_database(config: ControllerConfig, *, admin_token: str, on_purpose: bool) -> None:
    """CONFLICT where the file of an embedded store is missing or empty, and a cluster has left its traces beside it.

    With `on_purpose` what would be overwritten is put aside under another name. To be called before the store
    is opened, under the lock of its directory.
    """
    if not is_missing(config):
        return
    from corral.store.sqlite.opening import ARTIFACTS, DATABASE, WRITE_AHEAD_LOG

    database = config.data / DATABASE
    log, artifacts = config.data / WRITE_AHEAD_LOG, config.data / ARTIFACTS
    former = [
        path
        for path in (log, config.cluster_key_path, config.data / admin_token, artifacts)
        if _holds_something(path)
    ]
    if not former:
        return
    if not on_purpose:
        what = f"{database} is {'empty' if database.exists() else 'missing'}"
        raise database_lost(what, former, config.data)
    put_aside([database, log, artifacts])


def is_missing(config: ControllerConfig) -> bool:
    """Is there no file of an embedded store, or nothing in it? False for the store of a server."""
    if not is_embedded(config.store.url):
        return False
    from corral.store.sqlite.opening import DATABASE

    return not _holds_something(config.data / DATABASE)


def database_lost(what: str, former: Sequence[pathlib.Path], data: pathlib.Path) -> Rejected:
    """The refusal, with the choices there are."""
    names = ", ".join(
        str(path.relative_to(data)) if path.is_relative_to(data) else str(path) for path in former
    )
    return Rejected(
        Code.CONFLICT,
        f"{what}, but {data} was the directory of a cluster: it has {names}; nothing was changed",
        hint="restore the database, with its write-ahead log where it has one; or, to found a new cluster that no node of the old one "
        "belongs to, move the directory away, or start once with --found-cluster",
    )


def put_aside(paths: Iterable[pathlib.Path]) -> None:
    """Rename what is there to NAME.former-1, or the next free number."""
    for path in paths:
        if path.exists():
            number = 1
            while (target := path.with_name(f"{path.name}.former-{number}")).exists():
                number += 1
            path.rename(target)


def _holds_something(path: pathlib.Path) -> bool:
    """A file with content, or a directory with a file in it, however deep."""
    try:
        if path.is_dir():
            return any(each.is_file() for each in path.rglob("*"))
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
