"""Checks of requests that a browser may have been led to: the `Host` that it was sent to, and the page that it came from.

A page elsewhere can make a browser send requests to this controller, with the cookies of this host name. `AllowedHosts`
refuses names that are not ours, which is what DNS rebinding uses; `BrowserChecks` refuses pages that are not ours where
a request changes something or opens a stream. Both look at the head of a request alone, before its body is read.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, Self

from corral.controller.http.messages.request import HttpRequest
from corral.errors import Code, Rejected
from corral.system.addresses import MAX_PORT, WILDCARDS, parse_address, parse_host, plain_address
from corral.system.http_config import HttpSection

LOCALHOST: Final = ("localhost", "127.0.0.1", "::1")
"""The names of this machine for itself."""

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.{1,300})")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Of `Sec-Fetch-Site`: a page of ours, or no page at all (an address that was typed)."""
_SHOWN: Final = 100


class HostAndPort(NamedTuple):
    """A `Host` header: its name as `canonical_host` writes it; None where it names no port."""

    host: str
    port: int | None


class Origin(NamedTuple):
    """Scheme, host and port of a page."""

    scheme: str
    host: str
    port: int


def canonical_host(text: str) -> str:
    """A name or address in the one form in which they are compared; empty: it is neither."""
    try:
        host = parse_host(text).lower().removesuffix(".")
        return str(plain_address(ipaddress.ip_address(host)))
    except Rejected:
        return ""
    except ValueError:
        return host


def read_host(text: str) -> HostAndPort | None:
    """The meaning of a `Host` header; None when it has none."""
    found = _HOST.fullmatch(text)
    host = canonical_host(found[1]) if found else ""
    if found is None or not host:
        return None
    port = int(found[2]) if found[2] else None
    return None if port is not None and port > MAX_PORT else HostAndPort(host, port)


def read_origin(text: str) -> Origin | None:
    """The meaning of an `Origin` header; None when it has none, as `null`."""
    found = _ORIGIN.fullmatch(text)
    place = read_host(found[2]) if found else None
    if found is None or place is None:
        return None
    return Origin(found[1], place.host, place.port or _DEFAULT_PORTS[found[1]])


class AllowedHosts:
    """The names and addresses under which browsers are answered. Ports do not matter: they may be forwarded."""

    def __init__(self, names: Iterable[str] = LOCALHOST, *, own_addresses: bool = False) -> None:
        """`own_addresses`: also the address, whichever it is, at which a request reached this machine."""
        self.names: Final = frozenset(filter(None, map(canonical_host, names)))
        self._own_addresses = own_addresses

    @classmethod
    def of(cls, http: HttpSection) -> Self:
        """Those of a configuration: the listed ones, or those of its listen, advertised and public addresses and of the
        machine."""
        if http.allowed_hosts:
            return cls(http.allowed_hosts)
        listen = parse_address(http.listen, any_port=True).host
        names = [*LOCALHOST, listen, http.public_host]
        if http.advertise:
            names.append(parse_address(http.advertise).host)
        everywhere = listen in WILDCARDS
        if everywhere:
            name = socket.gethostname()
            names += [name, name.partition(".")[0]]
        return cls((name for name in names if name not in WILDCARDS), own_addresses=everywhere)

    def admits(self, request: HttpRequest) -> bool:
        """Whether its one well-formed `Host` is among them."""
        return self.host_of(request) is not None

    def host_of(self, request: HttpRequest) -> HostAndPort | None:
        """The `Host` of a request if it is among them; None: it is missing, malformed, given twice or another one."""
        given = _only(request, b"host")
        place = read_host(given) if given is not None else None
        if place is None:
            return None
        return place if place.host in self.names or self._is_own(place.host, request) else None

    def text_of(self, request: HttpRequest) -> str:
        """The `Host` of a request in the browser's own words: letters, digits and `_.-:[]`. MISDIRECTED_REQUEST unless it is
        among them."""
        self.require(request)
        return request.header(b"host") or ""

    def _is_own(self, host: str, request: HttpRequest) -> bool:
        reached, _ = request.scope.get("server") or ("", 0)
        return self._own_addresses and canonical_host(str(reached)) == host

    def require(self, request: HttpRequest) -> None:
        """MISDIRECTED_REQUEST unless the request was sent to one of them."""
        if self.admits(request):
            return
        given = request.header(b"host") or ""
        raise Rejected(
            Code.MISDIRECTED_REQUEST,
            f"browsers are not answered under the host {given[:_SHOWN]!r}",
            hint="use a name or an address of http.allowed_hosts, or add this one there",
            field="Host",
        )


class BrowserChecks:
    """Refuses what a page of another origin may have made a browser send.

    A request with `Authorization: Bearer` needs no check of its origin: no page can add that header without being
    allowed to by CORS. One that no browser sends, without `Origin` and `Sec-Fetch-Site`, needs none either.
    """

    def __init__(self, hosts: AllowedHosts | None = None, *, origins: Collection[str] = ()) -> None:
        """`origins`: pages of other origins that may call the API."""
        self.hosts: Final = hosts or AllowedHosts()
        self._listed = frozenset(origins)

    def check(self, request: HttpRequest, *, browser: bool = False, stream: bool = False) -> None:
        """MISDIRECTED_REQUEST, ORIGIN_REFUSED. `browser`: the route is one of pages before anybody is known; `stream`:
        it opens an event stream."""
        if browser or request.header(b"cookie") is not None:
            self.hosts.require(request)
        if (stream or request.is_socket or request.method not in _SAFE) and not has_bearer(request):
            self._check_origin(request)

    def _check_origin(self, request: HttpRequest) -> None:
        given, site = request.header(b"origin"), request.header(b"sec-fetch-site")
        if given is None and (site is None or site.lower() == "none"):
            return
        if given is not None and _only(request, b"origin") in self._listed:
            return
        if site is not None and site.lower() not in _OWN_SITES:
            raise _refused(given or f"a page of another site (Sec-Fetch-Site: {site[:_SHOWN]})")
        place = self.hosts.host_of(request)
        if place is None:
            raise _refused(given or f"a page of {(request.header(b'host') or '')[:_SHOWN]!r}")
        if given is None:
            return
        scheme = "https" if request.is_secure else "http"
        own = Origin(scheme, place.host, place.port or _DEFAULT_PORTS[scheme])
        if read_origin(_only(request, b"origin") or "") != own:
            raise _refused(given)


def refuse_embedded(request: HttpRequest) -> None:
    """ORIGIN_REFUSED for a request that a page of another site embeds; one that a person is led by is fine."""
    site, mode = request.header(b"sec-fetch-site"), request.header(b"sec-fetch-mode")
    if site is not None and site.lower() not in _OWN_SITES and (mode or "").lower() != "navigate":
        raise _refused(f"a page of another site (Sec-Fetch-Site: {site[:_SHOWN]})")


def has_bearer(request: HttpRequest) -> bool:
    """Whether it carries a token in its header, valid or not."""
    scheme, _, text = (request.header(b"authorization") or "").partition(" ")
    return scheme.lower() == "bearer" and bool(text.strip())


def _only(request: HttpRequest, name: bytes) -> str | None:
    """A header that is there once; None otherwise."""
    found = [value for each, value in request.scope["headers"] if each == name]
    return found[0].decode("latin-1").strip() if len(found) == 1 else None


def _refused(origin: str) -> Rejected:
    return Rejected(
        Code.ORIGIN_REFUSED,
        f"{origin[:_SHOWN]} may not do this here",
        hint="open the controller's own address, or list the origin of the page in http.cors.origins",
        field="Origin",
    )
