"""The reader of a `.cosign.bundle`: the classic JSON of `cosign sign-blob --bundle`, or a Sigstore bundle.

The result is the same for both formats: nothing of it is verified yet.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from corral.errors import Rejected
from corral.signing.archive_key import ArchiveKey, WeakKey
from corral.signing.foreign_certificates import load_der, load_pem
from corral.signing.refusals import UNREADABLE, refused, shown


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a transparency log as the bundle claims it."""

    body: bytes
    """Canonical JSON of the entry; what the log hashed and signed."""
    integrated_time: int | None
    log_index: int
    log_id: str
    """Hexadecimal; SHA-256 of the log's public key."""
    promise: bytes | None
    """The signed entry timestamp: the log's signature over all of the above."""


class BundleParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a bundle. The signer is a certificate, or a key (named in the bundle or not), never both."""

    signature: bytes
    certificate: x509.Certificate | None
    intermediates: tuple[x509.Certificate, ...]
    """Certificates in the bundle; they may be links of a chain, but no anchors."""
    key: ArchiveKey | None
    """The key that the bundle names; it only selects among trusted ones."""
    entry: LogEntry | None
    stated_digest: bytes | None
    for_library: bool
    """Whether `sigstore` can verify it too: the newer format, signed by a certificate."""


_MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle"
_MAX_INTERMEDIATES: Final = 8
_REMAKE: Final = "make the bundle anew with `cosign sign-blob --bundle FILE.cosign.bundle FILE`"


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _BundlePart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a foreign format: unknown fields are ignored."""


class _RekorPayload(_BundlePart, frozen=True, kw_only=True):
    body: str
    integrated_time: _Count
    log_index: _Count
    log_id: str = msgspec.field(name="logID")


class _RekorBundle(_BundlePart, frozen=True, kw_only=True):
    promise: str = msgspec.field(name="SignedEntryTimestamp", default="")
    payload: _RekorPayload = msgspec.field(name="Payload")


class _Classic(_BundlePart, frozen=True, kw_only=True):
    signature: str = msgspec.field(name="base64Signature")
    cert: str = ""
    rekor_bundle: _RekorBundle | None = None


class _Bytes(_BundlePart, frozen=True, kw_only=True):
    raw_bytes: str


class _Chain(_BundlePart, frozen=True, kw_only=True):
    certificates: tuple[_Bytes, ...] = ()


class _LogId(_BundlePart, frozen=True, kw_only=True):
    key_id: str


class _Promise(_BundlePart, frozen=True, kw_only=True):
    signed_entry_timestamp: str = ""


class _TlogEntry(_BundlePart, frozen=True, kw_only=True):
    log_index: str = "0"
    log_id: _LogId
    integrated_time: str = ""
    inclusion_promise: _Promise | None = None
    canonicalized_body: str


class _Material(_BundlePart, frozen=True, kw_only=True):
    certificate: _Bytes | None = None
    chain: _Chain | None = msgspec.field(name="x509CertificateChain", default=None)
    tlog_entries: tuple[_TlogEntry, ...] = ()


class _Digest(_BundlePart, frozen=True, kw_only=True):
    algorithm: str
    digest: str


class _MessageSignature(_BundlePart, frozen=True, kw_only=True):
    message_digest: _Digest | None = None
    signature: str


class _Newer(_BundlePart, frozen=True, kw_only=True):
    media_type: str
    verification_material: _Material
    message_signature: _MessageSignature | None = None


class _BundleHead(_BundlePart, frozen=True, kw_only=True):
    media_type: str = ""


def read_bundle(content: bytes) -> BundleParts:
    """The parts of a bundle of either format. A malformed one is refused with the field."""
    try:
        head = msgspec.json.decode(content, type=_BundleHead)
        if not head.media_type:
            return _classic(msgspec.json.decode(content, type=_Classic))
        if not head.media_type.startswith(_MEDIA_TYPE):
            raise _malformed(f"its media type {shown(head.media_type)!r} is not known")
        return _newer(msgspec.json.decode(content, type=_Newer))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(f"it is not the JSON of a bundle ({shown(error)})") from error


def _classic(bundle: _Classic) -> BundleParts:
    certificates, key = _signer(bundle.cert) if bundle.cert else ((), None)
    return _parts(
        signature=_decoded("base64Signature", bundle.signature),
        certificates=certificates,
        key=key,
        entry=_classic_entry(bundle.rekor_bundle) if bundle.rekor_bundle else None,
    )


def _classic_entry(bundle: _RekorBundle) -> LogEntry:
    payload = bundle.payload
    return LogEntry(
        body=_decoded("Payload.body", payload.body),
        integrated_time=payload.integrated_time,
        log_index=payload.log_index,
        log_id=_log_id(payload.log_id),
        promise=_decoded("SignedEntryTimestamp", bundle.promise) if bundle.promise else None,
    )


def _newer(bundle: _Newer) -> BundleParts:
    message = bundle.message_signature
    if message is None:
        raise _malformed("it carries no messageSignature (an attestation is not a signature of the archive)")
    material = bundle.verification_material
    entries = material.tlog_entries
    if len(entries) > 1:
        raise _malformed(f"it carries {len(entries)} log entries; one is expected")
    chain: tuple[_Bytes, ...] = (material.certificate,) if material.certificate else ()
    if material.chain:
        chain += material.chain.certificates
    return _parts(
        signature=_decoded("messageSignature.signature", message.signature),
        certificates=tuple(
            _certificate(_decoded("rawBytes", item.raw_bytes)) for item in chain[: _MAX_INTERMEDIATES + 1]
        ),
        key=None,
        entry=_newer_entry(entries[0]) if entries else None,
        stated_digest=_stated(message.message_digest) if message.message_digest else None,
        for_library=bool(chain),
    )


def _newer_entry(entry: _TlogEntry) -> LogEntry:
    promise = entry.inclusion_promise.signed_entry_timestamp if entry.inclusion_promise else ""
    time = _number("integratedTime", entry.integrated_time) if entry.integrated_time else 0
    return LogEntry(
        body=_decoded("canonicalizedBody", entry.canonicalized_body),
        integrated_time=time or None,
        log_index=_number("logIndex", entry.log_index),
        log_id=_decoded("logId.keyId", entry.log_id.key_id).hex(),
        promise=_decoded("signedEntryTimestamp", promise) if promise else None,
    )


def _parts(
    *,
    signature: bytes,
    certificates: tuple[x509.Certificate, ...],
    key: ArchiveKey | None,
    entry: LogEntry | None,
    stated_digest: bytes | None = None,
    for_library: bool = False,
) -> BundleParts:
    return BundleParts(
        signature=signature,
        certificate=certificates[0] if certificates else None,
        intermediates=certificates[1:],
        key=key,
        entry=entry,
        stated_digest=stated_digest,
        for_library=for_library,
    )


def _signer(text: str) -> tuple[tuple[x509.Certificate, ...], ArchiveKey | None]:
    """A classic bundle's `cert`: PEM, mostly within base64; certificates, or a public key."""
    pem = text.encode() if text.lstrip().startswith("-----BEGIN") else _decoded("cert", text)
    try:
        if b"-----BEGIN CERTIFICATE-----" in pem:
            return tuple(load_pem(pem)[: _MAX_INTERMEDIATES + 1]), None
        return (), ArchiveKey(serialization.load_pem_public_key(pem))
    except WeakKey as error:
        raise refused(f"it was signed by {error}") from error
    except UNREADABLE as error:
        raise _malformed("its cert is neither a PEM certificate nor a PEM public key") from error


def _certificate(encoded: bytes) -> x509.Certificate:
    try:
        return load_der(encoded)
    except UNREADABLE as error:
        raise _malformed("a certificate in it cannot be read") from error


def _stated(digest: _Digest) -> bytes:
    if digest.algorithm != "SHA2_256":
        raise _malformed(f"its digest is {shown(digest.algorithm)}; SHA2_256 is expected")
    return _decoded("messageDigest.digest", digest.digest)


def _decoded(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed(f"{field} is not base64") from error


def _log_id(text: str) -> str:
    try:
        return bytes.fromhex(text).hex()
    except ValueError as error:
        raise _malformed("Payload.logID is not hexadecimal") from error


def _number(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _malformed(f"{field} is not a number")
    return int(text)


def _malformed(what: str) -> Rejected:
    return refused(f"its bundle is malformed: {what}", hint=_REMAKE)
