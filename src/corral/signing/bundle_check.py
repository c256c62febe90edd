"""The check of a bundle: each claim in it is verified against the trust root and the archive.

Bundles that the `sigstore` library can verify are verified by it as well. It is imported with the first such
bundle: it costs half a second and 30 MB.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from corral.domain.modules.records import SignatureFacts
from corral.errors import Rejected
from corral.signing.archive_key import ArchiveKey, WeakKey
from corral.signing.bundle_reader import BundleParts, read_bundle
from corral.signing.certificate_check import AcceptedSigner, check_chain, check_identity, check_timestamps
from corral.signing.log_entry_check import check_promise, check_subject
from corral.signing.refusals import UNREADABLE, refused, shown
from corral.signing.trust_root import TrustRoot

KIND: Final = "cosign-bundle"
_NO_ENTRY: Final = (
    "sign with `cosign sign-blob --bundle` and let it log the signature, "
    "or set modules.signing.rekor.policy to disabled"
)


class BundleRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for a bundle."""

    root: TrustRoot
    accepted: tuple[AcceptedSigner, ...]
    entry_required: bool


def check_bundle(content: bytes, digest: bytes, rules: BundleRules, *, now: dt.datetime) -> SignatureFacts:
    """The proof of the archive with this digest by the bundle; refused by the first check that fails."""
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
    """When a trusted log recorded the signature; None when none did and none had to.

    An entry that is present must be about this archive and signer under either policy; its timestamp counts
    when there is a key to check it with.
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


def check_with_library(
    content: bytes, *, digest: bytes, document: bytes, identify: Callable[[x509.Certificate], str]
) -> None:
    """Verify a bundle of the newer kind under a `trusted_root.json`; without network access.

    It repeats our checks and adds the proof of inclusion and the log's checkpoint.
    """
    from sigstore.hashes import Hashed
    from sigstore.models import Bundle, TrustedRoot
    from sigstore.verify import Verifier
    from sigstore_models.common.v1 import HashAlgorithm
    from sigstore_models.trustroot.v1 import TrustedRoot as Document

    try:
        verifier = Verifier(trusted_root=TrustedRoot(Document.from_json(document)))
        verifier.verify_artifact(
            Hashed(algorithm=HashAlgorithm.SHA2_256, digest=digest),
            Bundle.from_json(content),
            _Identified(identify),
        )
    except Rejected:
        raise
    except Exception as error:  # untrusted input may raise anything: the archive is not proven
        raise refused(f"the sigstore library says: {shown(error) or type(error).__name__}") from error


class _Identified:
    """The library's policy, decided by our own list of signers."""

    def __init__(self, identify: Callable[[x509.Certificate], str]) -> None:
        self._identify = identify

    def verify(self, cert: x509.Certificate) -> None:
        self._identify(cert)
