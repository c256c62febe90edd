"""The check of the signer's certificate: it leads to an authority, was valid at that time, names an accepted
signer, and a certificate transparency log has recorded it (RFC 6962 timestamps)."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import verification
from cryptography.x509.certificate_transparency import LogEntryType, SignedCertificateTimestamp
from cryptography.x509.oid import ExtendedKeyUsageOID

from corral.signing.refusals import UNREADABLE, refused, shown
from corral.signing.trust_root import LogKey, find_log

_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ISSUER_PLAIN: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
"""Fulcio's older form of the same: bare text instead of a DER string."""
_FOREIGN: Final = "have it signed under an authority of modules.signing.trust_root, or trust that authority"
_PURPOSE: Final = "use a certificate with the key usage digitalSignature and the purpose codeSigning"
_STALE: Final = "sign the archive anew; the signature must be logged while the certificate is valid"


class AcceptedSigner(msgspec.Struct, frozen=True, kw_only=True):
    """One of `identities`: a name in a certificate, and its issuer, if one is required."""

    name: str
    issuer: str = ""

    def __str__(self) -> str:
        return f"{self.name} issuer={self.issuer}" if self.issuer else self.name


def check_chain(
    certificate: x509.Certificate,
    *,
    intermediates: Sequence[x509.Certificate],
    anchors: Sequence[x509.Certificate],
    at: dt.datetime,
) -> Sequence[x509.Certificate]:
    """The chain from the signer's certificate to an anchor, all of it valid at that time."""
    if not anchors:
        raise refused(f"the trust root names no authority that was trusted on {at:%Y-%m-%d}", hint=_FOREIGN)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= at <= end:
        raise refused(
            f"its certificate was valid from {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC, "
            f"not at {at:%Y-%m-%d %H:%M:%S}",
            hint=_STALE,
        )
    try:
        chain = _policy(anchors, at).verify(certificate, list(intermediates)).chain
    except (verification.VerificationError, *UNREADABLE) as error:
        raise refused(
            f"its certificate does not lead to the trust root ({shown(error)})", hint=_FOREIGN
        ) from error
    _check_usage(certificate)
    return chain


def check_identity(certificate: x509.Certificate, accepted: Sequence[AcceptedSigner]) -> str:
    """The name by which the signer is accepted; the first name in the certificate when every signer is."""
    try:
        names, issuer = _names(certificate), _issuer(certificate)
    except UNREADABLE as error:
        raise refused("its certificate names no signer", hint=_FOREIGN) from error
    if not accepted:
        return names[0] if names else ""
    for signer in accepted:
        if signer.name in names and signer.issuer in ("", issuer):
            return signer.name
    vouched = f" (issuer {shown(issuer)})" if issuer else ""
    raise refused(
        f"it was signed by {shown(', '.join(names) or 'nobody')}{vouched}, who is not accepted",
        hint=f"accepted are: {shown(', '.join(map(str, accepted)))}; see modules.signing.identities",
    )


def _policy(anchors: Sequence[x509.Certificate], at: dt.datetime) -> verification.ClientVerifier:
    """The checks for web certificates except for their purpose, which is code signing, not TLS."""
    any_usage = (x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, None)
    return (
        verification.PolicyBuilder()
        .store(verification.Store(list(anchors)))
        .time(at)
        .extension_policies(
            ca_policy=verification.ExtensionPolicy.webpki_defaults_ca().may_be_present(*any_usage),
            ee_policy=verification.ExtensionPolicy.webpki_defaults_ee().may_be_present(*any_usage),
        )
        .build_client_verifier()
    )


def _check_usage(certificate: x509.Certificate) -> None:
    try:
        extensions = certificate.extensions
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except UNREADABLE as error:
        raise refused("its certificate does not say what it may be used for", hint=_PURPOSE) from error
    if not usage.digital_signature or ExtendedKeyUsageOID.CODE_SIGNING not in purposes:
        raise refused("its certificate is not meant for signing code", hint=_PURPOSE)


def _names(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [
        *names.get_values_for_type(x509.RFC822Name),
        *names.get_values_for_type(x509.UniformResourceIdentifier),
    ]


def _issuer(certificate: x509.Certificate) -> str:
    for extension in certificate.extensions:
        if extension.oid == _ISSUER and isinstance(extension.value, x509.UnrecognizedExtension):
            return asn1.decode_der(str, extension.value.value)
    for extension in certificate.extensions:
        if extension.oid == _ISSUER_PLAIN and isinstance(extension.value, x509.UnrecognizedExtension):
            return extension.value.value.decode()
    return ""


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
    """The bytes that a log signs about a certificate before it is issued."""
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
