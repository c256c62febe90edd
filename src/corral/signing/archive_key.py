"""Keys that sign archives and logs: which are strong enough, and whether one made a signature."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""Verifying with a much larger key takes too long."""

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PLAIN: Final[Mapping[str, str]] = {"secp256r1": "P-256"}
_CERTIFIED: Final[Mapping[str, str]] = {"secp256r1": "P-256", "secp384r1": "P-384"}
_PREHASHED: Final = Prehashed(hashes.SHA256())


class WeakKey(ValueError):
    """The key is of a kind or size that is not accepted; the message names it."""


class ArchiveKey:
    """A public key that is strong enough: ECDSA on P-256, or RSA of 2048 bits and more.

    In certificates P-384 is accepted as well: some signers of the public Sigstore use it.
    """

    def __init__(self, key: object, *, certified: bool = False) -> None:
        """Raises `WeakKey`."""
        self._key = _strong(key, _CERTIFIED if certified else _PLAIN)
        self.encoded = self._key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.sha256 = hashlib.sha256(self.encoded).hexdigest()
        """The key's id: SHA-256 of its DER encoding, as transparency logs name theirs."""

    def signed(self, signature: bytes, digest: bytes) -> bool:
        """Whether this key made `signature` over something with this SHA-256."""
        try:
            if isinstance(self._key, rsa.RSAPublicKey):
                self._key.verify(signature, digest, padding.PKCS1v15(), _PREHASHED)
            else:
                self._key.verify(signature, digest, ec.ECDSA(_PREHASHED))
        except InvalidSignature:
            return False
        return True

    def signed_text(self, signature: bytes, text: bytes) -> bool:
        return self.signed(signature, hashlib.sha256(text).digest())


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A new signing key: the private half for the author, the public half for trust roots."""

    private_pem: bytes
    public_pem: bytes
    sha256: str


def new_key(passphrase: bytes | None = None) -> KeyPair:
    """A P-256 key; with a passphrase its private half is encrypted."""
    key = ec.generate_private_key(ec.SECP256R1())
    sealing = (
        serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    )
    public = key.public_key()
    return KeyPair(
        private_pem=key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealing),
        public_pem=public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        sha256=ArchiveKey(public).sha256,
    )


def sign_digest(key: SigningKey, digest: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(digest, padding.PKCS1v15(), _PREHASHED)
    return key.sign(digest, ec.ECDSA(_PREHASHED))


def _strong(key: object, curves: Mapping[str, str]) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    if isinstance(key, rsa.RSAPublicKey):
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise WeakKey(f"an RSA key of {key.key_size} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are accepted")
        return key
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in curves:
            accepted = " and ".join(curves.values())
            raise WeakKey(f"a key on curve {key.curve.name}; of the curves {accepted} may be used")
        return key
    kind = type(key).__name__.removesuffix("PublicKey").lstrip("_")
    raise WeakKey(f"a key of kind {kind}; ECDSA on P-256 and RSA are accepted")
