"""URLs from outside: their check, and their form in logs and answers, without secrets."""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from typing import Final

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
