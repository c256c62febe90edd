"""Certificate timestamps (RFC 6962): a certificate transparency log has seen the signer's certificate."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.certificate_transparency import LogEntryType, SignedCertificateTimestamp

from corral.signing.refusals import refused
from corral.signing.trust_root import LogKey, find_log
from corral.signing.unreadable import UNREADABLE


def check_timestamps(chain: Sequence[x509.Certificate], logs: Sequence[LogKey]) -> None:
    """At least one timestamp in the certificate is by a trusted log. `chain` is leaf, issuer, ….

    Nothing is checked without logs: PEM trust roots name none, and a private authority has none.
    """
    if not logs:
        return
    if len(chain) < 2:
        raise refused("the trust root names its certificate itself, so no log can vouch for its issue")
    certificate, issuer = chain[0], chain[1]
    try:
        found = certificate.extensions.get_extension_for_class(
            x509.PrecertificateSignedCertificateTimestamps
        ).value
    except UNREADABLE as error:
        raise refused("its certificate carries no certificate timestamp") from error
    if not any(_proven(stamp, certificate, issuer, logs) for stamp in found):
        raise refused("no certificate timestamp in its certificate is by a trusted log")


def signed_form(
    certificate_body: bytes, issuer_key: bytes, milliseconds: int, extensions: bytes = b""
) -> bytes:
    """What a log signs about a certificate before it is issued."""
    head = struct.pack("!BBQH", 0, 0, milliseconds, LogEntryType.PRE_CERTIFICATE.value)
    length = struct.pack("!I", len(certificate_body))[1:]
    tail = struct.pack("!H", len(extensions)) + extensions
    return head + hashlib.sha256(issuer_key).digest() + length + certificate_body + tail


def _proven(
    stamp: SignedCertificateTimestamp,
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    logs: Sequence[LogKey],
) -> bool:
    log = find_log(logs, stamp.log_id.hex())
    at = stamp.timestamp.replace(tzinfo=dt.UTC)
    if log is None or not log.window.holds(at):
        return False
    if stamp.entry_type is not LogEntryType.PRE_CERTIFICATE:
        return False
    if not isinstance(stamp.signature_hash_algorithm, hashes.SHA256):
        return False
    issuer_key = issuer.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    milliseconds = round(at.timestamp() * 1000)
    text = signed_form(certificate.tbs_precertificate_bytes, issuer_key, milliseconds, stamp.extension_bytes)
    return log.key.signed_text(stamp.signature, text)
