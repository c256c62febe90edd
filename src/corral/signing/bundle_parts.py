"""What a bundle says, whichever of the two formats it came in: nothing of it is believed yet."""

from __future__ import annotations

import msgspec
from cryptography import x509

from corral.signing.archive_key import ArchiveKey


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a transparency log as the bundle tells it."""

    body: bytes
    """Canonical JSON of the entry; what the log hashed and signed."""
    integrated_time: int | None
    log_index: int
    log_id: str
    """Hexadecimal; SHA-256 of the log's public key."""
    promise: bytes | None
    """The signed entry timestamp: the log's signature over all of the above."""


class BundleParts(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed is a certificate, or a key (named in the bundle or not), never both."""

    signature: bytes
    certificate: x509.Certificate | None
    intermediates: tuple[x509.Certificate, ...]
    """Certificates that came along; they may link, they are no anchors."""
    key: ArchiveKey | None
    """The key that the bundle names; it counts only as a choice among trusted ones."""
    entry: LogEntry | None
    stated_digest: bytes | None
    for_library: bool
    """Whether `sigstore` can judge it too: the newer format, signed by a certificate."""
