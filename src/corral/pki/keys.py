"""Private keys, signing requests, and sealing a key for storage."""

from __future__ import annotations

import base64
import hashlib
import pathlib
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from corral.errors import Code, Rejected
from corral.system.entropy import Entropy
from corral.system.files import read_versioned, write_versioned

_NONCE: Final = 12
_MAX_CSR: Final = 16 * 1024


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return key


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """The id of a public key."""
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()


def make_csr(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """A request that proves possession of the key; the authority ignores the name."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM)


def read_csr(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a request whose signature is valid; everything else in it is ignored."""
    try:
        if len(pem) > _MAX_CSR:
            raise ValueError("it is too large")
        csr = x509.load_pem_x509_csr(pem)
        key = csr.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("the key must be on curve P-256")
        if not csr.is_signature_valid:
            raise ValueError("its signature does not match its key")
    except (ValueError, InvalidSignature) as error:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the certificate request is refused: {error}",
            hint="send a PEM encoded PKCS#10 request with a P-256 key",
            field="csr_pem",
        ) from error
    return key


def derived(secret: bytes, purpose: str) -> bytes:
    """A key of its own for one purpose (HKDF-SHA256)."""
    info = b"corral " + purpose.encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


class _KeyFile(msgspec.Struct, frozen=True, kw_only=True):
    key: str


class ClusterKey:
    """Seals what the store must not have in the clear, such as the authority's private key; stored in a file of each
    controller, never in the store."""

    FORMAT: Final = "corral-cluster-key"
    VERSION: Final = 1

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)

    @classmethod
    def load(cls, path: pathlib.Path) -> ClusterKey | None:
        found = read_versioned(path, _KeyFile, name=cls.FORMAT, version=cls.VERSION)
        if found is None:
            return None
        try:
            return cls(base64.b64decode(found.key, validate=True))
        except ValueError as error:
            raise Rejected(
                Code.FORMAT_INVALID,
                f"the cluster key in {path} is damaged: {error}",
                hint="copy the cluster key file of another controller of this cluster, or restore a backup",
            ) from error

    @classmethod
    def require(cls, path: pathlib.Path) -> ClusterKey:
        """As `load`, for a cluster that exists already."""
        found = cls.load(path)
        if found is None:
            raise Rejected(
                Code.FORMAT_INVALID,
                f"there is no cluster key at {path}",
                hint="copy the cluster key file from another controller of this cluster",
            )
        return found

    @classmethod
    def create(cls, path: pathlib.Path, entropy: Entropy) -> ClusterKey:
        key = entropy.secret(32)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = _KeyFile(key=base64.b64encode(key).decode())
        write_versioned(path, held, name=cls.FORMAT, version=cls.VERSION)
        return cls(key)

    def derive(self, purpose: str) -> bytes:
        """A key for one purpose (HKDF-SHA256): it reveals no other."""
        return derived(self._key, purpose)

    def seal(self, secret: bytes, *, purpose: str, entropy: Entropy) -> str:
        nonce = entropy.secret(_NONCE)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, secret, purpose.encode())).decode()

    def unseal(
        self, sealed: str, *, purpose: str, subject: str = "this cluster's certificate authority"
    ) -> bytes:
        try:
            raw = base64.b64decode(sealed, validate=True)
            return self._cipher.decrypt(raw[:_NONCE], raw[_NONCE:], purpose.encode())
        except (InvalidTag, ValueError) as error:
            raise Rejected(
                Code.FORMAT_INVALID,
                f"the cluster key does not open {subject}",
                hint="copy the cluster key file of another controller of this cluster here",
            ) from error
