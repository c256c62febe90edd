"""The section of HTTP in the controller's configuration: addresses, limits, TLS, and whom browsers and proxies may be."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from corral.system import config_values as kind
from corral.system.config_sections import Section, contradiction, described


class CorsSection(Section, frozen=True, kw_only=True):
    origins: Annotated[kind.Origins, described("Origins that browsers may call the API from.")] = ()


class HttpLimitsSection(Section, frozen=True, kw_only=True):
    connections: Annotated[
        kind.Limit,
        described("Connections in all; at most half of the process's file descriptors. 0: no limit."),
    ] = 4096
    connections_per_address: Annotated[
        kind.Limit,
        described(
            "Connections of one address or IPv6 /64; this host and each trusted proxy may have half of all."
        ),
    ] = 256
    head_seconds: Annotated[
        kind.Seconds, described("How long a caller may take for the head of a request.")
    ] = 10
    idle_seconds: Annotated[
        kind.Seconds,
        described("How long a connection is kept between requests, and an answered body read on."),
    ] = 30
    stall_seconds: Annotated[
        kind.Seconds, described("How long a caller may take nothing of an answer that waits for it.")
    ] = 120
    body_pause_seconds: Annotated[
        kind.Seconds, described("How long a body may pause that comes with less than 1 KiB a second.")
    ] = 5
    requests_per_second: Annotated[
        kind.Limit, described("Requests of one token, once its burst is used up; 0: no limit.")
    ] = 50
    burst: Annotated[kind.Count, described("Requests of one token at once.")] = 200
    logins_per_minute: Annotated[
        kind.Limit, described("Logins that one address, or IPv6 /64, may try in a minute; 0: no limit.")
    ] = 10
    streams: Annotated[
        kind.Limit, described("Streams, sockets, downloads and waits that one token has open; 0: no limit.")
    ] = 50
    all_streams: Annotated[kind.Count, described("The same, of all tokens.")] = 2000
    tickets: Annotated[kind.Limit, described("Tickets of one token that are not used yet; 0: no limit.")] = 20
    uploads: Annotated[kind.Limit, described("Uploads that one token sends at once; 0: no limit.")] = 5
    all_uploads: Annotated[kind.Count, described("The same, of all tokens.")] = 200


class TlsSection(Section, frozen=True, kw_only=True):
    mode: Annotated[
        kind.TlsMode,
        described(
            "off: plain HTTP; files: a certificate of your own; cluster: one of the cluster's authority."
        ),
    ] = "off"
    certificate: Annotated[
        kind.OptionalPath,
        described("PEM file of the certificate and its chain, for files; read again when it changes."),
    ] = ""
    key: Annotated[kind.OptionalPath, described("PEM file of its private key, without a password.")] = ""
    hsts_seconds: Annotated[
        int,
        Meta(ge=0, le=63_072_000),
        described(
            "How long browsers shall use nothing but TLS for the host name, on all of its ports; 0: as they like."
        ),
    ] = 31_536_000


class HttpSection(Section, frozen=True, kw_only=True):
    listen: Annotated[kind.Listen, described("Address of the API; port 0 picks a free one.")] = (
        "127.0.0.1:8480"
    )
    advertise: Annotated[
        kind.OptionalAddress, described("HOST:PORT others reach the API at; empty: as listened.")
    ] = ""
    public_url: Annotated[
        kind.OptionalOrigin,
        described(
            "URL under which people and instances reach the API, through a proxy or with OpenID Connect; empty: as advertised."
        ),
    ] = ""
    body_limit_bytes: Annotated[kind.Bytes, described("Largest request body that is read.")] = 1_048_576
    access_log: Annotated[
        bool,
        described("Whether each request is logged: who, what and how it ended, never a query or a body."),
    ] = False
    allowed_hosts: Annotated[
        kind.Hosts,
        described(
            "Names and addresses under which browsers are answered; empty: the listen and advertised ones, that of "
            "public_url, localhost, and of a wildcard all addresses of the host and its name."
        ),
    ] = ()
    allow_insecure_login: Annotated[
        bool,
        described(
            "Whether people may log in over plain HTTP from other hosts; then anybody on the way reads their passwords."
        ),
    ] = False
    trusted_proxies: Annotated[
        kind.Proxies,
        described(
            "Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; empty: of none."
        ),
    ] = ()
    cors: CorsSection = CorsSection()
    tls: TlsSection = TlsSection()
    limits: HttpLimitsSection = HttpLimitsSection()

    @property
    def scheme(self) -> str:
        return "http" if self.tls.mode == "off" else "https"

    @property
    def public_host(self) -> str:
        """The host of `public_url`; empty without one."""
        return urlsplit(self.public_url).hostname or ""


def check_http(http: HttpSection) -> None:
    """Refuse values that are fine alone and wrong together."""
    _check_tls(http.tls)
    public, allowed = http.public_host, http.allowed_hosts
    if public and allowed and public not in allowed:
        raise contradiction(
            "http.allowed_hosts",
            f"http.allowed_hosts does not list {public!r}, the host of http.public_url: browsers would be refused there",
            "add it, or leave http.allowed_hosts out",
        )


def _check_tls(tls: TlsSection) -> None:
    for key, path in (("http.tls.certificate", tls.certificate), ("http.tls.key", tls.key)):
        if tls.mode == "files" and not path:
            raise contradiction(
                key, f"http.tls.mode is files, and {key} is empty", f"set {key} to a PEM file"
            )
        if tls.mode != "files" and path:
            raise contradiction(
                key,
                f"{key} is set, and http.tls.mode is {tls.mode}",
                "set http.tls.mode to files, or leave it out",
            )
