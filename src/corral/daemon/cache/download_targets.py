"""Targets of downloads: which schemes, hosts and addresses are allowed."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import urllib.parse
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.urls import shown_url
from corral.errors import Code, Rejected, Retryable

PORTS: Final = {"http": 80, "https": 443}
_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


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


async def addresses_of(target: DownloadTarget, *, allow_private: bool, timeout: float) -> list[str]:
    """The addresses that may be dialled. The connection goes to the addresses checked here: a name that resolves to
    something else a moment later changes nothing."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise _unresolved(target, f"no answer within {timeout:g} s") from None
    except (OSError, UnicodeError) as error:
        raise _unresolved(target, str(error)) from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if allow_private:
        return addresses
    public = [address for address in addresses if is_public(address)]
    if not public:
        raise Rejected(
            Code.ARTIFACT_REFUSED,
            f"{target.shown} is refused: '{target.host}' is {', '.join(addresses)}, no public address",
            hint="downloads.allow_private permits it, for development",
        )
    return public


def is_public(address: str) -> bool:
    """Reachable from anywhere: not loopback, link-local, private, shared, reserved or multicast, also when
    an IPv6 address only wraps such an IPv4 one."""
    ip: _Ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        wrapped = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in _NAT64:
            wrapped.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if any(inner is not None and not is_public(str(inner)) for inner in wrapped):
            return False
        if ip.ipv4_mapped is not None or ip in _NAT64:
            return True
        if ip.is_reserved or ip.is_site_local:  # `::127.0.0.1` is among them
            return False
    return ip.is_global and not ip.is_multicast


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
