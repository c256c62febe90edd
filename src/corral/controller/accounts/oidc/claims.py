"""Who somebody is by the claims of a checked ID token: subject, name and groups.

A user of a provider is its issuer and subject, never a name: names are chosen by people, and a provider's `admin` is not
ours. So its user name begins with `oidc:`, which no local user's name can.
"""

from __future__ import annotations

import base64
import hashlib
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.controller.accounts.oidc.errors import login_failed
from corral.domain.accounts.oidc_bindings import MOST_GROUPS, check_group
from corral.domain.control_characters import refuse_hidden
from corral.errors import CorralError

SUBJECT_MAX: Final = 255
NAME_MAX: Final = 100
_HOST_MAX: Final = 30


class OidcIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A person whom the provider vouches for."""

    issuer: str
    subject: str
    name: str
    """For people to read; two persons may have the same."""
    groups: tuple[str, ...] = ()

    @property
    def user_name(self) -> str:
        return user_name(self.issuer, self.subject)

    @property
    def display_name(self) -> str:
        """The name with the host that vouches for it, so that nobody takes it for a local user."""
        host = f" ({issuer_host(self.issuer)[:_HOST_MAX]})"
        return self.name[: NAME_MAX - len(host)].rstrip() + host


def user_name(issuer: str, subject: str) -> str:
    """`oidc:HOST:DIGEST`: the same for as long as issuer and subject are, and at most 63 characters.

    The host is for people, and may be cut; the digest is of the whole issuer and the subject, because one host may have
    several issuers, and subjects may have any characters."""
    digest = hashlib.sha256(f"{len(issuer)}:{issuer}:{subject}".encode()).digest()[:16]
    text = base64.b32encode(digest).decode().rstrip("=").lower()
    host = issuer_host(issuer).replace(":", ".")[:_HOST_MAX].strip(".-")
    return f"oidc:{host}:{text}"


def issuer_host(issuer: str) -> str:
    return urllib.parse.urlsplit(issuer).hostname or ""


def identity_of(
    claims: Mapping[str, Any], *, issuer: str, name_claim: str, groups_claim: str
) -> OidcIdentity:
    """OIDC_FAILED without a usable subject. A name or group that cannot be used is left out."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_MAX:
        raise _bad_subject()
    if not subject.isascii() or not subject.isprintable():
        raise _bad_subject()
    name = _name(claims, name_claim, subject)
    groups = _groups(claims, groups_claim)
    return OidcIdentity(
        issuer=issuer,
        subject=subject,
        name=name,
        groups=groups,
    )


def _bad_subject() -> CorralError:
    return login_failed(
        f"the provider's token has no subject of 1 to {SUBJECT_MAX} printable ASCII characters",
        hint="ask whoever runs the provider",
    )


def _name(claims: Mapping[str, Any], claim: str, subject: str) -> str:
    found = _claim(claims, claim)
    if isinstance(found, str) and 0 < len(found.strip()) <= NAME_MAX and _is_plain(found):
        return found.strip()
    return subject[:NAME_MAX].strip() or "?"


def _is_plain(text: str) -> bool:
    try:
        refuse_hidden(text, "name")
    except CorralError:
        return False
    return True


def _groups(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """The texts of the claim. An address of mail counts only if the provider has checked that it is the person's."""
    if claim == "email" and claims.get("email_verified") is not True:
        return ()
    found = _claim(claims, claim)
    listed = found if isinstance(found, list) else [found]
    groups: dict[str, None] = {}
    for each in listed[:MOST_GROUPS]:
        try:
            groups[check_group(each if isinstance(each, str) else "")] = None
        except ValueError:
            continue  # the table has no such group
    return tuple(groups)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, or, as `a.b`, what lies within another."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
