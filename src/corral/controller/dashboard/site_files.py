"""Files of the site: read, named, compressed once at start. Nothing of a request ever becomes a path."""

from __future__ import annotations

import gzip
import hashlib
import html
import importlib.resources
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.errors import Bug

ASSETS_PATH: Final = "/ui/assets/"
_PACKAGE: Final = "corral.controller.dashboard"
_SHELL: Final = "account.html"
_ASSETS: Final = {"account.css": "text/css; charset=utf-8", "account.js": "text/javascript; charset=utf-8"}
_HTML: Final = "text/html; charset=utf-8"
_HASH_LETTERS: Final = 16


class SiteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is sent, and as it is sent to those who accept gzip."""

    content_type: str
    content: bytes
    gzipped: bytes
    hash: str


class Site:
    """The shell, which is the page at every path, and its assets by name. The name of an asset has the hash of its content:
    under one name there is one content for ever."""

    def __init__(self, *, shell: str, assets: Mapping[str, SiteFile]) -> None:
        self._shell = shell
        self.shell: Final = _file(_HTML, shell.encode())
        self.assets: Final = assets

    def refusing(self, message: str, hint: str) -> SiteFile:
        """The shell of a page that shows why nobody can log in, and has no form to type a password into."""
        text = _with_meta(self._shell, "corral-refusal", message)
        return _file(_HTML, _with_meta(text, "corral-refusal-hint", hint).encode())


def open_site(*, provider: str = "", provider_origin: str = "") -> Site:
    """Read the site. `provider` is the name of a provider of OpenID Connect on the login page, which its logins have to begin
    on at `provider_origin`; empty: there is none."""
    folder = importlib.resources.files(_PACKAGE) / "site"
    shell = (folder / _SHELL).read_text(encoding="utf-8")
    assets: dict[str, SiteFile] = {}
    for name, content_type in _ASSETS.items():
        file = _file(content_type, (folder / name).read_bytes())
        stem, _, ending = name.rpartition(".")
        hashed = f"{stem}-{file.hash}.{ending}"
        shell = _replaced(shell, f'"{ASSETS_PATH}{name}"', f'"{ASSETS_PATH}{hashed}"')
        assets[hashed] = file
    shell = _with_meta(shell, "corral-provider", provider)
    return Site(shell=_with_meta(shell, "corral-provider-origin", provider_origin), assets=assets)


def _file(content_type: str, content: bytes) -> SiteFile:
    return SiteFile(
        content_type=content_type,
        content=content,
        gzipped=gzip.compress(content, mtime=0),
        hash=hashlib.sha256(content).hexdigest()[:_HASH_LETTERS],
    )


def _with_meta(shell: str, name: str, content: str) -> str:
    return _replaced(
        shell, f'<meta name="{name}" content="">', f'<meta name="{name}" content="{html.escape(content)}">'
    )


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise Bug(f"{_SHELL} has {old} {text.count(old)} times")
    return text.replace(old, new)
