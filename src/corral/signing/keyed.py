"""Keyed signatures: `FILE.sig` is base64 of a signature over the archive's bytes with SHA-256."""

from __future__ import annotations

import base64
import binascii
import pathlib
from collections.abc import Sequence

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from corral.errors import Code, Rejected
from corral.signing.archive_digest import digest_of
from corral.signing.archive_key import ArchiveKey, SigningKey, WeakKey, sign_digest
from corral.signing.refusals import refused


def verify_keyed(content: bytes, digest: bytes, keys: Sequence[ArchiveKey]) -> ArchiveKey:
    """Which of the trusted keys signed this digest; refused when none did."""
    signature = read_signature(content)
    for key in keys:
        if key.signed(signature, digest):
            return key
    known = ", ".join(key.sha256[:16] for key in keys)
    raise refused(f"none of the trusted keys ({known}) signed this archive")


def read_signature(content: bytes) -> bytes:
    try:
        signature = base64.b64decode(b"".join(content.split()), validate=True)
    except binascii.Error:
        signature = b""
    if not signature:
        raise refused(
            "its .sig is not base64",
            hint="write it with `openssl dgst -sha256 -sign KEY FILE | base64 > FILE.sig`",
        )
    return signature


def sign_keyed(archive: pathlib.Path, key_pem: bytes, passphrase: bytes | None = None) -> bytes:
    """The content of FILE.sig for this archive. Blocks; memory does not grow with the archive.

    Refuses a key that no verifier of ours would accept, with `INVALID_FIELD`.
    """
    key = _private_key(key_pem, passphrase)
    return base64.b64encode(sign_digest(key, digest_of(archive))) + b"\n"


def _private_key(pem: bytes, passphrase: bytes | None) -> SigningKey:
    try:
        key = serialization.load_pem_private_key(pem, password=passphrase)
        ArchiveKey(key.public_key())
    except WeakKey as error:
        raise _bad_key(f"it is {error}") from error
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        # A wrong passphrase and a damaged file cannot be distinguished here.
        raise _bad_key("it is no PEM private key that this passphrase opens") from error
    assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return key


def _bad_key(what: str) -> Rejected:
    return Rejected(
        Code.INVALID_FIELD,
        f"the signing key is refused: {what}",
        hint="give a P-256 or RSA private key in PEM, and its passphrase if it has one",
        field="key",
    )
