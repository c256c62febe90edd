"""Artifacts, the programs and extensions of groups: their sources, their file names, and the catalog's record
of a program by platform and version."""

from __future__ import annotations

import datetime as dt

from corral.domain.file_paths import check_path
from corral.domain.groups.group import ArtifactSpec, Category, ConfigFormat
from corral.domain.ids import checked_name
from corral.domain.records import Record
from corral.domain.spec import invalid
from corral.domain.urls import check_url, url_file
from corral.errors import Rejected


def file_of(spec: ArtifactSpec, record: CatalogRecord | None) -> str:
    """Its path in the working directory, or in an extension's install path."""
    return spec.file or (record.file if record else url_file(spec.url))


def check_artifact(spec: ArtifactSpec, *, field: str) -> None:
    """Either an entry of the catalog, or a URL with its digest."""
    cataloged = bool(spec.platform or spec.version)
    if cataloged == bool(spec.url):
        raise invalid(
            field,
            "an artifact is an entry of the catalog or a URL",
            'give "platform" and "version", or "url" and "sha256"',
        )
    if spec.file:
        check_path(spec.file, field=f"{field}/file")
    if cataloged:
        checked_name(spec.platform, "platform", f"{field}/platform")
        check_version(spec.version, field=f"{field}/version")
        if spec.sha256:
            raise invalid(f"{field}/sha256", "the catalog says the digest", "leave it out")
        return
    check_url(spec.url, field=f"{field}/url")
    if not spec.sha256:
        raise invalid(f"{field}/sha256", "a URL needs the SHA-256 of what it leads to", "sha256sum FILE")
    if not spec.file:
        try:
            check_path(url_file(spec.url))
        except Rejected:
            raise invalid(f"{field}/file", "the URL does not end with a file name", "give one") from None


def check_version(text: str, *, field: str) -> str:
    """A version of the catalog: `1.21.4`, `1.21.4-232`, `2.0+build.7`."""
    fine = (
        text
        and text[0].isalnum()
        and all(sign.isascii() and (sign.isalnum() or sign in "._+-") for sign in text)
    )
    if not fine or len(text) > 63 or ".." in text:
        raise invalid(
            field, f"{text[:80]!r} is not a version", "use 1 to 63 letters, digits, '.', '_', '+' and '-'"
        )
    return text


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
