"""The section of OpenID Connect in the controller's configuration: one provider, and what its groups may do."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from corral.domain.accounts.oidc_bindings import read_group_table
from corral.system import config_values as kind
from corral.system.addresses import LOOPBACK, counted_as
from corral.system.config_sections import Section, contradiction, described

ISSUER_MAX: Final = 256
_NEEDED: Final = ("client_id", "bindings")
_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))


def is_loopback(host: str) -> bool:
    """Whether the name or address means this host, so that nothing said to it leaves the host."""
    return host == "localhost" or counted_as(host) == LOOPBACK


def check_web_url(url: str, *, http_on_loopback: bool, query: bool = False) -> str:
    """The URL; ValueError unless it is https with a host, or plain http to this host where that is allowed."""
    if not _VISIBLE.issuperset(url):
        raise ValueError("it holds a space, a control character or one beyond ASCII")
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or parts.port == 0 or "@" in parts.netloc or "\\" in url:
        raise ValueError("it has no host, or more than a host and a port before its path")
    if parts.fragment or url.endswith("#") or (not query and "?" in url):
        raise ValueError("it has a fragment" if query else "it has a query or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and http_on_loopback and is_loopback(host)):
        raise ValueError("it has to begin with https://; only addresses of this host may be http://")
    return url


def _issuer(value: str) -> str:
    return check_web_url(value, http_on_loopback=True) if value else ""


def _scopes(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(each and _VISIBLE.issuperset(each) and not {'"', "\\"} & set(each) for each in values):
        raise ValueError("a scope has neither spaces nor quotes")
    return values if "openid" in values else ("openid", *values)


def _bindings(values: dict[str, str]) -> dict[str, str]:
    read_group_table(values)
    return values


class OidcSection(Section, frozen=True, kw_only=True):
    issuer: Annotated[
        str,
        Meta(max_length=ISSUER_MAX, extra={"check": _issuer}),
        described("URL of the provider, as its discovery document names it; empty: no logins by it."),
    ] = ""
    display_name: Annotated[
        str,
        Meta(max_length=60),
        described("Name of the provider on the login page; empty: the issuer's host."),
    ] = ""
    client_id: Annotated[
        str, Meta(max_length=256), described("Id under which the provider knows this cluster.")
    ] = ""
    client_secret_file: Annotated[
        kind.OptionalPath,
        described(
            "File of the client's secret, read at each login; empty: a public client, with PKCE alone."
        ),
    ] = ""
    scopes: Annotated[
        tuple[str, ...],
        Meta(max_length=20, extra={"check": _scopes}),
        described("Scopes that are requested; openid always is."),
    ] = ("openid", "profile")
    name_claim: Annotated[
        str, Meta(min_length=1, max_length=200), described("Claim with the name that people are shown by.")
    ] = "preferred_username"
    groups_claim: Annotated[
        str,
        Meta(min_length=1, max_length=200),
        described("Claim with the groups: a text or a list; a.b is b within a."),
    ] = "groups"
    bindings: Annotated[
        dict[str, str],
        Meta(extra={"check": _bindings}),
        described(
            "Roles by group: ROLE [groups=PATTERN,…] [nodes=PATTERN,…]; several are divided by a semicolon."
        ),
    ] = msgspec.field(default_factory=dict)
    ca_file: Annotated[
        kind.OptionalPath,
        described("PEM certificates that the provider's is checked with; empty: the host's."),
    ] = ""


def check_oidc(section: OidcSection, *, public_url: str) -> None:
    """Refuse half a provider. `public_url`: of the API, where the provider sends people back to."""
    if not section.issuer:
        return
    try:
        check_web_url(public_url, http_on_loopback=True)
    except ValueError as error:
        raise contradiction(
            "http.public_url",
            f"oidc.issuer is set, and the provider cannot send people back to http.public_url {public_url!r}: {error}",
            "set http.public_url to the https://HOST[:PORT] at which browsers find the API, or leave oidc.issuer out",
        ) from None
    for name in _NEEDED:
        if not getattr(section, name):
            raise contradiction(
                f"oidc.{name}",
                f"oidc.issuer is set and oidc.{name} is not: nobody could log in",
                f"set oidc.{name}, or leave oidc.issuer out",
            )
