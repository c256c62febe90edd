"""Requests that trusted proxies pass on: the address of the client and the scheme that it used, by the proxy's word.

Only `X-Forwarded-For` and `X-Forwarded-Proto` are read, and only of a peer in `http.trusted_proxies`. `Forwarded` is not:
a proxy that sets one of the two headers passes the other one on as the client sent it, so only one can be believed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

from corral.controller.http.messages.request import AsgiApp, Receive, Scope, Send
from corral.system.addresses import Network, is_within, plain_address

MOST_HOPS: Final = 16
"""Addresses that are looked at, from the last one. What is left of them may be of any length: a client sent it."""

_LONGEST_ENTRY: Final = 64
_ENTRY: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+)(?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")
_SECURE: Final = {"http": False, "ws": False, "https": True, "wss": True}
_SCHEMES: Final = {
    ("http", False): "http",
    ("http", True): "https",
    ("websocket", False): "ws",
    ("websocket", True): "wss",
}


class ForwardedRequests:
    """Puts the client of a trusted proxy in the place of the proxy: in `client` and `scheme` of the scope, which all others
    read. A request of any other peer passes unchanged, whatever it claims."""

    def __init__(self, app: AsgiApp, *, proxies: Sequence[Network]) -> None:
        self._app = app
        self._proxies = tuple(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and is_within(client[0], self._proxies):
            # In place: what surrounds this application holds the same scope.
            scope["client"] = (self._client(client[0], scope["headers"]), 0)
            secure = _forwarded_security(scope["headers"])
            if secure is not None:
                scope["scheme"] = _SCHEMES[scope["type"], secure]
        await self._app(scope, receive, send)

    def _client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The last address that is none of a trusted proxy. Each proxy adds the address of its own peer at the end, so
        what is left of an untrusted one is a client's claim. Where the list ends or cannot be read, it is the last
        address before that."""
        given = ",".join(_values(headers, b"x-forwarded-for"))
        known = peer
        for entry in reversed(given.rsplit(",", MOST_HOPS)[-MOST_HOPS:]):
            address = read_entry(entry)
            if not address:
                return known
            known = address
            if not is_within(address, self._proxies):
                return known
        return known


def read_entry(text: str) -> str:
    """An entry of `X-Forwarded-For` as an address, without the port that some proxies add; empty: it is none."""
    entry = text.strip(" \t")
    found = _ENTRY.fullmatch(entry) if len(entry) <= _LONGEST_ENTRY else None
    if found is None:
        return ""
    try:
        return str(plain_address(ipaddress.ip_address(found[1] or found[2] or found[3])))
    except ValueError:
        return ""


def _forwarded_security(headers: Iterable[tuple[bytes, bytes]]) -> bool | None:
    """Whether the client used TLS, as the nearest proxy says; None: it says nothing that can be read."""
    given = ",".join(_values(headers, b"x-forwarded-proto"))
    return _SECURE.get(given.rpartition(",")[2].strip(" \t").lower())


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in headers if each == name]
