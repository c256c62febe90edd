"""Checked addresses, tokens and header values, and the targets of requests. Imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

_PORTS: Final = {"http": 80, "https": 443}


class Address(NamedTuple):
    """Where a controller answers."""

    url: str
    """As it was given, without a slash at the end."""
    secure: bool
    host: str
    port: int
    prefix: str
    """The path before `/api`, for a controller behind a proxy."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.secure else "http"] else f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine, as far as its name tells."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def checked_address(url: str) -> Address:
    """Of a text like `https://controller:8480`; ValueError for anything else, credentials and queries included."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        usable = False
    if usable:
        usable = not (parts.query or parts.fragment or parts.username is not None)
        usable = usable and parts.path.isascii() and parts.path.isprintable() and " " not in parts.path
    if not usable:
        raise ValueError("not an address of a controller; write it like http://127.0.0.1:8480")
    return Address(
        url=url.rstrip("/"),
        secure=parts.scheme == "https",
        host=parts.hostname or "",
        port=port,
        prefix=parts.path.rstrip("/"),
    )


def checked_token(token: str | None) -> str | None:
    """Without the space around it; ValueError when it holds characters that no token has. The error does not show it."""
    if token is None:
        return None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token holds characters that no token has; copy it again as one line")
    return token


def checked_header(name: str, value: str) -> str:
    """A value that cannot end its line; ValueError for others."""
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"{name} holds characters that no header may have; use visible ASCII")
    return value


def segment(text: str) -> str:
    """A value as one part of a path, whatever is in it. ValueError for `.` and `..`, which would mean another path."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} is no name of anything; a part of a path is neither empty nor dots")
    return quote(text, safe="")


def segments(text: str) -> str:
    """A value as the rest of a path, slashes included."""
    return "/".join(segment(part) for part in text.split("/"))


def query_string(values: Mapping[str, Any]) -> str:
    """`?a=1&b=2`, or nothing. None and empty sequences are left out, booleans are `true` and `false`, a sequence repeats its name."""
    given: list[tuple[str, str]] = []
    for name, value in values.items():
        if value is None:
            continue
        several = value if isinstance(value, list | tuple | set | frozenset) else (value,)
        given += [(name, _text(each)) for each in several]
    return "?" + urlencode(given) if given else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
