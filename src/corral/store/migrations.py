"""Schema versions: numbered SQL files, applied forward only.

Each adapter has its files in its own `migrations` folder, named `0001_what.sql`, and applies the pending ones
at open, each in one transaction with the row it adds to `schema_version`.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.errors import Bug, Code, Rejected

_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    name: str
    sql: str


def load_migrations(package: str) -> tuple[Migration, ...]:
    """The SQL files in this package's `migrations` folder, numbered 1, 2, 3 without a hole."""
    folder = importlib.resources.files(package) / "migrations"
    found = []
    for file in folder.iterdir():
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.append(Migration(version=int(match[1]), name=file.name, sql=file.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise Bug(f"the migrations of {package} are not numbered without a hole")
    return tuple(found)


def pending(migrations: Sequence[Migration], *, current: int, where: str) -> Sequence[Migration]:
    """The migrations still to be applied; a newer schema than the known ones is refused, never touched."""
    newest = len(migrations)
    if current > newest:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"{where} has schema version {current}, this Corral knows up to {newest}",
            hint="run the version of Corral that wrote it, or a newer one",
        )
    return migrations[current:]
