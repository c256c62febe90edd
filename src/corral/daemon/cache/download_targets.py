"""Targets of downloads: which schemes, hosts and addresses are allowed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import socket
import threading
import urllib.parse
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.urls import shown_url
from corral.errors import Code, Rejected, Retryable

PORTS: Final = {"http": 80, "https": 443}
_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))
# The special-purpose registries of IANA. The standard library's `is_global` differs from one Python to the next.
_SPECIAL_IPV4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL_IPV6: Final = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
"""Within the global ones. Teredo (in `2001::/23`) and 6to4 (`2002::/16`) lead to any IPv4 address."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
LOOKUPS: Final = 64
"""Names that are looked up at a time."""


class DownloadTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    """With its query, as it goes into the request."""
    authorization: str = ""

    @property
    def shown(self) -> str:
        """For people: without user, password and query."""
        return shown_url(self.url)

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str) -> DownloadTarget:
    """Read a URL; ARTIFACT_REFUSED for anything but http and https."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused(shown_url(url), "it cannot be read") from None
    if parts.scheme not in PORTS:
        raise _refused(shown_url(url), "only http and https are allowed")
    if not host or port == 0:
        raise _refused(shown_url(url), "it names no host")
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    path = urllib.parse.quote(path, safe="%/:=&?~#+!$,;'@()*[]-._")
    if not _VISIBLE.issuperset(path) or not _VISIBLE.issuperset(host):
        raise _refused(shown_url(url), "it holds characters that no URL has")
    return DownloadTarget(
        url=url,
        scheme=parts.scheme,
        host=host.lower().removesuffix("."),
        port=port or PORTS[parts.scheme],
        path=path,
        authorization=_authorization(parts),
    )


def redirected(target: DownloadTarget, location: str) -> DownloadTarget:
    """The target of a redirect. Credentials stay with the host they were given for."""
    try:
        url = urllib.parse.urljoin(target.url, location)
    except ValueError:
        raise _refused(target.shown, "it redirects to something that is no URL") from None
    following = parse_target(url)
    if target.scheme == "https" and following.scheme == "http":
        raise _refused(target.shown, f"it redirects from https to {following.shown}")
    if following.origin == target.origin and not following.authorization:
        return msgspec.structs.replace(following, authorization=target.authorization)
    return following


def check_host(target: DownloadTarget, allowed: Sequence[str]) -> None:
    """With a list of hosts, only those are allowed; `*.example.org` means every host below it."""
    if not allowed:
        return
    for pattern in allowed:
        if pattern.startswith("*."):
            if target.host.endswith(pattern[1:].lower()):
                return
        elif target.host == pattern.lower():
            return
    raise Rejected(
        Code.ARTIFACT_REFUSED,
        f"{target.shown} is refused: host '{target.host}' is not in downloads.allow_hosts",
        hint=f"allowed are {', '.join(allowed)}",
    )


class NameLookups:
    """The system's resolver. Each lookup has a thread of its own: the loop has two threads for all of them, so that two
    names whose servers do not answer would hold up every other. The process may end while a lookup waits."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LOOKUPS)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Its addresses, each once. OSError or UnicodeError when there are none."""
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def finish(addresses: list[str], error: Exception | None) -> None:
            self._turns.release()
            if found.done():
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(addresses)

        def look() -> None:
            addresses, failure = [], None
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(finish, addresses, failure)

        try:
            threading.Thread(target=look, name=f"corral/resolve/{host}", daemon=True).start()
        except RuntimeError as error:
            self._turns.release()
            raise OSError(f"no thread to look up its name: {error}") from error
        return await found


async def addresses_of(
    target: DownloadTarget, lookups: NameLookups, *, allow_private: bool, timeout: float
) -> list[str]:
    """The addresses that may be dialled. The connection goes to the addresses checked here: a name that resolves to
    something else a moment later changes nothing."""
    try:
        async with asyncio.timeout(timeout):
            addresses = await lookups.addresses(target.host, target.port)
    except TimeoutError:
        raise _unresolved(target, f"no answer within {timeout:g} s") from None
    except (OSError, UnicodeError) as error:
        raise _unresolved(target, str(error)) from None
    if allow_private:
        return addresses
    public = [address for address in addresses if is_public(address)]
    if not public:
        raise Rejected(
            Code.ARTIFACT_REFUSED,
            f"{target.shown} is refused: '{target.host}' has no public address",
            hint="downloads.allow_private permits it, for development",
        )
    return public


def is_public(address: str) -> bool:
    """Reachable from anywhere: not loopback, link-local, private, shared, reserved or multicast, also when
    an IPv6 address only wraps such an IPv4 one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        wrapped = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else ip.ipv4_mapped
        if wrapped is None:
            return ip in _GLOBAL_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)
        ip = wrapped
    return not any(ip in network for network in _SPECIAL_IPV4)


def _authorization(parts: urllib.parse.SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _refused(shown: str, why: str) -> Rejected:
    return Rejected(
        Code.ARTIFACT_REFUSED,
        f"{shown} is refused: {why}",
        hint="use the http(s) URL of the file itself",
        field="url",
    )


def _unresolved(target: DownloadTarget, why: str) -> Retryable:
    return Retryable(Code.CACHE_DOWNLOAD_FAILED, f"{target.shown}: the host cannot be resolved: {why}")
