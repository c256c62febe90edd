"""Judging a bundle: each thing it claims is checked against the trust root and the archive."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from corral.domain.module_records import SignatureFacts
from corral.signing.archive_key import ArchiveKey, WeakKey
from corral.signing.bundle_parts import BundleParts
from corral.signing.bundle_reading import read_bundle
from corral.signing.certificate_check import AcceptedSigner, check_chain, check_identity
from corral.signing.certificate_timestamps import check_timestamps
from corral.signing.library_check import check_with_library
from corral.signing.log_entry_check import check_promise, check_subject
from corral.signing.refusals import refused
from corral.signing.trust_root import TrustRoot
from corral.signing.unreadable import UNREADABLE

KIND: Final = "cosign-bundle"
_NO_ENTRY: Final = (
    "sign with `cosign sign-blob --bundle` and let it log the signature, "
    "or set modules.signing.rekor.policy to disabled"
)


class BundleRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is judged by."""

    root: TrustRoot
    accepted: tuple[AcceptedSigner, ...]
    entry_required: bool


def check_bundle(content: bytes, digest: bytes, rules: BundleRules, *, now: dt.datetime) -> SignatureFacts:
    """How the archive with this digest is proven by the bundle; refused by the first thing that fails."""
    parts = read_bundle(content)
    if parts.stated_digest not in (None, digest):
        raise refused("its bundle is about another archive")
    if parts.certificate is None:
        return _signed_by_key(parts, digest, rules)
    facts = _signed_by_certificate(parts, parts.certificate, digest, rules, now)
    if parts.for_library and rules.root.document and parts.entry and parts.entry.promise:
        check_with_library(
            content,
            digest=digest,
            document=rules.root.document,
            identify=lambda certificate: check_identity(certificate, rules.accepted),
        )
    return facts


def _signed_by_key(parts: BundleParts, digest: bytes, rules: BundleRules) -> SignatureFacts:
    trusted = [key for key in rules.root.signers if parts.key is None or parts.key.sha256 == key.sha256]
    key = next((key for key in trusted if key.signed(parts.signature, digest)), None)
    if key is None:
        named = f" (it names key {parts.key.sha256[:16]})" if parts.key else ""
        raise refused(
            f"it carries no certificate, and no trusted public key made it over this archive{named}",
            hint="put the signer's public key into modules.signing.trust_root, or sign with a certificate",
        )
    _logged_at(parts, digest, rules, signer=key.encoded)
    return SignatureFacts(kind=KIND, key_sha256=key.sha256)


def _signed_by_certificate(
    parts: BundleParts,
    certificate: x509.Certificate,
    digest: bytes,
    rules: BundleRules,
    now: dt.datetime,
) -> SignatureFacts:
    key = _certified_key(certificate)
    if not key.signed(parts.signature, digest):
        raise refused("the certificate's key did not sign this archive")
    encoded = certificate.public_bytes(serialization.Encoding.DER)
    at = _logged_at(parts, digest, rules, signer=encoded) or now
    chain = check_chain(certificate, intermediates=parts.intermediates, anchors=rules.root.anchors(at), at=at)
    check_timestamps(chain, rules.root.certificate_logs)
    identity = check_identity(certificate, rules.accepted)
    return SignatureFacts(kind=KIND, identity=identity, key_sha256=key.sha256)


def _logged_at(parts: BundleParts, digest: bytes, rules: BundleRules, *, signer: bytes) -> dt.datetime | None:
    """When a trusted log saw the signature; nothing when none did and none had to.

    An entry that is there must be about this archive and signer under either policy; its timestamp
    counts when there is a key to check it with.
    """
    entry = parts.entry
    if entry is None:
        if rules.entry_required:
            raise refused("its bundle carries no entry of a transparency log", hint=_NO_ENTRY)
        return None
    check_subject(entry, digest=digest, signature=parts.signature, signer=signer)
    if rules.entry_required or (entry.promise is not None and rules.root.logs):
        return check_promise(entry, rules.root.logs)
    return None


def _certified_key(certificate: x509.Certificate) -> ArchiveKey:
    try:
        return ArchiveKey(certificate.public_key(), certified=True)
    except WeakKey as error:
        raise refused(f"it was signed by {error}") from error
    except UNREADABLE as error:
        raise refused("the key in its certificate cannot be read") from error
