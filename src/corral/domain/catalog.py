"""The catalog: the programs that groups name by platform and version."""

from __future__ import annotations

import datetime as dt

from corral.domain.group_files import Category, ConfigFormat
from corral.domain.records import Record


class CatalogRecord(Record, frozen=True, kw_only=True):
    """One program, at a URL or uploaded. Its id is `PLATFORM/VERSION`."""

    platform: str
    version: str
    file: str
    """Its file name."""
    url: str = ""
    """Empty: it was uploaded, and nodes fetch it from the controller by its digest."""
    sha256: str
    size: int = 0
    """0: not known yet."""
    category: Category = Category.NONE
    config_format: ConfigFormat = ConfigFormat.NONE
    description: str = ""
    created_at: dt.datetime
    updated_at: dt.datetime

    @property
    def id(self) -> str:
        return f"{self.platform}/{self.version}"
