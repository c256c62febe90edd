"""Whom an operator trusts: authorities, signing keys, and the logs that saw a signature."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec
from cryptography import x509

from corral.signing.archive_key import ArchiveKey


class ValidityWindow(msgspec.Struct, frozen=True, kw_only=True):
    """When something was trusted; an end that is absent is open."""

    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def holds(self, at: dt.datetime) -> bool:
        return (self.start is None or self.start <= at) and (self.end is None or at <= self.end)


class TrustedAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates that a signer's certificate must lead to."""

    certificates: tuple[x509.Certificate, ...]
    window: ValidityWindow = ValidityWindow()


class LogKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a transparency log, or of a certificate transparency log."""

    key: ArchiveKey
    window: ValidityWindow = ValidityWindow()


class TrustRoot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a verifier judges by."""

    signers: tuple[ArchiveKey, ...] = ()
    authorities: tuple[TrustedAuthority, ...] = ()
    logs: tuple[LogKey, ...] = ()
    certificate_logs: tuple[LogKey, ...] = ()
    """Empty under PEM certificates: there is no key to check certificate timestamps with."""
    document: bytes = b""
    """The `trusted_root.json` itself, for the library; empty under PEM."""

    def anchors(self, at: dt.datetime) -> list[x509.Certificate]:
        return [
            certificate
            for authority in self.authorities
            if authority.window.holds(at)
            for certificate in authority.certificates
        ]


def find_log(logs: Sequence[LogKey], log_id: str) -> LogKey | None:
    return next((log for log in logs if log.key.sha256 == log_id), None)
