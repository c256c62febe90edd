"""Templates and a catalog in memory, for selections and plans."""

from __future__ import annotations

import datetime as dt
import hashlib

from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.group import Category, ConfigFormat, GroupSpec
from corral.domain.templates import TemplateRecord, TemplateSettings, TemplateVersion, group_of

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DIGEST = "ab" * 32


def template(name: str, *, number: int = 1, **settings: object) -> TemplateRecord:
    version = TemplateVersion(
        number=number,
        manifest=DIGEST,
        hash=hashlib.sha256(f"{name}:{number}".encode()).hexdigest(),
        archive_size=10,
        files=1,
        size=1,
        settings=TemplateSettings(**settings),  # type: ignore[arg-type]
        created_at=NOW,
    )
    return TemplateRecord(
        name=name, current=number, last=number, versions=(version,), created_at=NOW, updated_at=NOW
    )


def entry(platform: str, version: str, **fields: object) -> CatalogRecord:
    known: dict[str, object] = {
        "file": f"{platform}.jar",
        "url": f"https://files.example/{platform}.jar",
        "sha256": DIGEST,
        "size": 7,
        "category": Category.SERVER,
        "config_format": ConfigFormat.PAPER,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return CatalogRecord(platform=platform, version=version, **{**known, **fields})  # type: ignore[arg-type]


class Library:
    """The `PlanSources` of a test."""

    def __init__(
        self,
        *records: TemplateRecord,
        catalog: tuple[CatalogRecord, ...] = (),
        packages: tuple[ExtensionPackage, ...] = (),
    ) -> None:
        self.records = {record.name: record for record in records}
        self.catalog = {record.id: record for record in catalog}
        self._packages = packages

    def template(self, name: str, /) -> TemplateRecord | None:
        return self.records.get(name)

    def templates_in(self, group: str, /) -> list[TemplateRecord]:
        return [self.records[name] for name in sorted(self.records) if group_of(name) == group]

    def artifact(self, platform: str, version: str, /) -> CatalogRecord | None:
        return self.catalog.get(f"{platform}/{version}")

    def packages(self) -> tuple[ExtensionPackage, ...]:
        return self._packages


def never(count: int) -> int:
    raise AssertionError(f"a draw among {count} where there is nothing to draw")


def group(**fields: object) -> GroupSpec:
    return GroupSpec(**{"name": "lobby", "command": ("serve",), **fields})  # type: ignore[arg-type]
