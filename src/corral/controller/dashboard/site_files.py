"""Files of the site: read, named, compressed once at start. Nothing of a request ever becomes a path."""

from __future__ import annotations

import gzip
import hashlib
import html
import importlib.resources
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.errors import Bug

ASSETS_PATH: Final = "/ui/assets/"
ACCOUNT: Final = "account.html"
"""The page to log in, and of one's own account."""
DOCS: Final = "docs.html"
"""The page that shows the description of the API."""
_PACKAGE: Final = "corral.controller.dashboard"
_PAGES: Final = (ACCOUNT, DOCS)
_ASSET_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_HTML: Final = "text/html; charset=utf-8"
_HASH_LETTERS: Final = 16
_IMPORT: Final = re.compile(r'(?<=from "\./)[^"]+(?=";)')
"""The name of an asset that another one imports."""
_USE: Final = re.compile(rf'(?<="{ASSETS_PATH})[^"]+(?=")')
"""The name of an asset in a page."""


class SiteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is sent, and as it is sent to those who accept gzip."""

    content_type: str
    content: bytes
    gzipped: bytes
    hash: str


class Site:
    """The pages by the names of their files, and the assets of all. The name of an asset has the hash of its content: under one name
    there is one content for ever."""

    def __init__(self, *, pages: Mapping[str, str], assets: Mapping[str, SiteFile]) -> None:
        self._texts = pages
        self.pages: Final = {name: _file(_HTML, text.encode()) for name, text in pages.items()}
        self.assets: Final = assets

    def refusing(self, page: str, message: str, hint: str) -> SiteFile:
        """A page that shows why nobody can log in, and has no form to type a secret into."""
        text = _with_meta(self._texts[page], "corral-refusal", message)
        return _file(_HTML, _with_meta(text, "corral-refusal-hint", hint).encode())


def open_site(*, provider: str = "", provider_origin: str = "") -> Site:
    """Read the site. `provider` is the name of a provider of OpenID Connect on the login page, which its logins have to begin
    on at `provider_origin`; empty: there is none."""
    folder = importlib.resources.files(_PACKAGE) / "site"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    naming = _Naming({name: text for name, text in texts.items() if name not in _PAGES})
    pages = {page: _USE.sub(lambda found: naming.hashed(found[0]), texts[page]) for page in _PAGES}
    account = _with_meta(pages[ACCOUNT], "corral-provider", provider)
    pages[ACCOUNT] = _with_meta(account, "corral-provider-origin", provider_origin)
    return Site(pages=pages, assets=naming.assets)


class _Naming:
    """Names for assets. What imports another one has that one's name in its content, so an asset is named after all that it imports."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._names: dict[str, str] = {}
        self.assets: Final[dict[str, SiteFile]] = {}
        for name in texts:
            self.hashed(name)

    def hashed(self, name: str, importers: tuple[str, ...] = ()) -> str:
        """The name of an asset with its hash."""
        if name not in self._texts or name in importers:
            raise Bug(f"{' -> '.join((*importers, name))}: the site has no such file, or it imports itself")
        if name not in self._names:
            stem, _, ending = name.rpartition(".")
            text = _IMPORT.sub(lambda found: self.hashed(found[0], (*importers, name)), self._texts[name])
            file = _file(_ASSET_TYPES[ending], text.encode())
            self._names[name] = f"{stem}-{file.hash}.{ending}"
            self.assets[self._names[name]] = file
        return self._names[name]


def _file(content_type: str, content: bytes) -> SiteFile:
    return SiteFile(
        content_type=content_type,
        content=content,
        gzipped=gzip.compress(content, mtime=0),
        hash=hashlib.sha256(content).hexdigest()[:_HASH_LETTERS],
    )


def _with_meta(page: str, name: str, content: str) -> str:
    empty = f'<meta name="{name}" content="">'
    if page.count(empty) != 1:
        raise Bug(f"a page has {empty} {page.count(empty)} times")
    return page.replace(empty, f'<meta name="{name}" content="{html.escape(content)}">')
