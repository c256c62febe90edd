"""Artifacts, the programs and extensions of groups: their sources, their file names, and the catalog's record
of a program by platform and version."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
import urllib.parse
from typing import Final

from corral.domain.file_paths import check_path
from corral.domain.groups.group import ArtifactSpec, Category, ConfigFormat
from corral.domain.ids import checked_name
from corral.domain.records import Record
from corral.domain.spec import invalid
from corral.errors import Code, Rejected

SCHEMES: Final = ("http", "https")
_URL_MAX: Final = 2048
_ADDRESS: Final = re.compile(r"://((?:(?!://)\S)+)")
_BESIDE_PATH: Final = re.compile(r"[?#]")
_CLOSING: Final = "'\")]}>.,;:"
"""Characters that end a URL in a sentence."""


def check_url(url: str, *, field: str) -> str:
    """An HTTP address with a host. Which hosts are allowed is checked by the node, when it downloads."""
    if problem := _url_problem(url):
        raise Rejected(
            Code.ARTIFACT_REFUSED,
            f"{field}: {problem}",
            hint="use http://HOST/PATH or https://HOST/PATH, or upload the file to the catalog",
            field=field,
        )
    return url


def shown_url(url: str) -> str:
    """For logs and answers: without user, password, query and fragment, which may be secret."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def shown_text(text: str) -> str:
    """Free text with every URL in it as by `shown_url`: messages of programs contain the addresses they
    failed at, with secrets. The same text when there is nothing to hide."""
    return _ADDRESS.sub(lambda found: "://" + _shown_rest(found[1]), text) if "://" in text else text


def _shown_rest(rest: str) -> str:
    """The text after `://`. An unquoted password may contain anything, a `/` too."""
    kept = _BESIDE_PATH.split(rest, maxsplit=1)[0]
    authority, _, path = kept.partition("/")
    port = authority.rpartition(":")[2]
    if "@" in authority:
        kept = authority.rpartition("@")[2] + kept[len(authority) :]
    elif "@" in path and ":" in authority and not port.isdecimal():
        kept = kept.rpartition("@")[2]
    closing = rest[len(rest.rstrip(_CLOSING)) :] if not rest.endswith(kept) else ""
    return kept + closing


def url_file(url: str) -> str:
    """The last part of a URL's path, decoded; empty when it has none."""
    path = urllib.parse.urlsplit(url).path
    return posixpath.basename(urllib.parse.unquote(posixpath.basename(path)))


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


def _url_problem(url: str) -> str:
    if len(url) > _URL_MAX or not url.isascii() or any(sign <= " " or sign == "\x7f" for sign in url):
        return "the URL is too long, or holds a space, a control character or one beyond ASCII"
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return "the URL cannot be read"
    if parts.scheme.lower() not in SCHEMES:
        return f"the scheme '{parts.scheme[:20]}' is refused"
    if not parts.hostname:
        return "the URL has no host"
    return "port 0 is none" if port == 0 else ""


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
