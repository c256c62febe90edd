"""The two formats of a bundle, and what may be wrong with one."""

from __future__ import annotations

import base64
import enum
import hashlib
import json
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_NEWER: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"


class Wrong(enum.Enum):
    """One thing that is wrong with a bundle."""

    NOTHING = enum.auto()
    FOREIGN_ROOT = enum.auto()
    EXPIRED_CERTIFICATE = enum.auto()
    """Logged after the certificate's end."""
    EARLY_ENTRY = enum.auto()
    """Logged before the certificate's beginning."""
    WRONG_IDENTITY = enum.auto()
    NOT_FOR_CODE = enum.auto()
    """The certificate is for TLS clients."""
    WEAK_KEY = enum.auto()
    """The certificate's key is on a curve that is not accepted."""
    ANOTHER_SIGNATURE = enum.auto()
    """The signature is by the right key, over another archive; the entry agrees with the bundle."""
    ENTRY_OF_ANOTHER_DIGEST = enum.auto()
    ENTRY_BY_ANOTHER_KEY = enum.auto()
    """The entry names another certificate of the same signer."""
    ENTRY_WITH_ANOTHER_SIGNATURE = enum.auto()
    ENTRY_OF_ANOTHER_KIND = enum.auto()
    SET_BY_ANOTHER_KEY = enum.auto()
    SET_OF_ANOTHER_TIME = enum.auto()
    """The log signed the entry, but not with this time."""
    FOREIGN_LOG = enum.auto()
    """Signed throughout by a log that nobody trusts."""
    MISSING_SET = enum.auto()
    MISSING_ENTRY = enum.auto()
    MISSING_TIMESTAMP = enum.auto()
    """The certificate was never shown to a certificate log."""
    FOREIGN_TIMESTAMP = enum.auto()
    """The certificate was shown to a certificate log that nobody trusts."""
    WRONG_INCLUSION = enum.auto()
    """The proof of inclusion leads elsewhere; the newer format only."""
    WRONG_CHECKPOINT = enum.auto()
    """The log's checkpoint is signed by another key; the newer format only."""


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """What both formats are written from."""

    signature: bytes
    signer_pem: bytes
    certificate: x509.Certificate | None
    digest: bytes
    body: bytes
    integrated_time: int
    log_id: bytes
    promise: bytes
    checkpoint_key: ec.EllipticCurvePrivateKey


def entry_body(
    content: bytes, key: ec.EllipticCurvePrivateKey, signature: bytes, pem: bytes, wrong: Wrong
) -> bytes:
    if wrong is Wrong.ENTRY_OF_ANOTHER_DIGEST:
        content += b"!"
        signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
    if wrong is Wrong.ENTRY_WITH_ANOTHER_SIGNATURE:
        signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
    body = {
        "apiVersion": "0.0.1",
        "kind": "intoto" if wrong is Wrong.ENTRY_OF_ANOTHER_KIND else "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}},
            "signature": {"content": b64(signature), "publicKey": {"content": b64(pem)}},
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def write_classic(signed: Signed, wrong: Wrong) -> bytes:
    bundle: dict[str, Any] = {"base64Signature": b64(signed.signature), "cert": b64(signed.signer_pem)}
    if wrong is not Wrong.MISSING_ENTRY:
        bundle["rekorBundle"] = {
            "SignedEntryTimestamp": "" if wrong is Wrong.MISSING_SET else b64(signed.promise),
            "Payload": {
                "body": b64(signed.body),
                "integratedTime": signed.integrated_time,
                "logIndex": 0,
                "logID": signed.log_id.hex(),
            },
        }
    return json.dumps(bundle).encode()


def write_newer(signed: Signed, wrong: Wrong) -> bytes:
    entry: dict[str, Any] = {
        "logIndex": "0",
        "logId": {"keyId": b64(signed.log_id)},
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
        "integratedTime": str(signed.integrated_time),
        "inclusionProof": _inclusion(signed, wrong),
        "canonicalizedBody": b64(signed.body),
    }
    if wrong is not Wrong.MISSING_SET:
        entry["inclusionPromise"] = {"signedEntryTimestamp": b64(signed.promise)}
    material: dict[str, Any] = {"tlogEntries": [] if wrong is Wrong.MISSING_ENTRY else [entry]}
    if signed.certificate is not None:
        material["certificate"] = {"rawBytes": b64(der(signed.certificate))}
    else:
        material["publicKey"] = {"hint": "any"}
    bundle = {
        "mediaType": _NEWER,
        "verificationMaterial": material,
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA2_256", "digest": b64(signed.digest)},
            "signature": b64(signed.signature),
        },
    }
    return json.dumps(bundle).encode()


def _inclusion(signed: Signed, wrong: Wrong) -> dict[str, Any]:
    root = hashlib.sha256(b"\0" + signed.body).digest()
    if wrong is Wrong.WRONG_INCLUSION:
        root = hashlib.sha256(root).digest()
    note = f"rekor.example.org - 1\n1\n{b64(root)}\n"
    made = signed.log_id[:4] + signed.checkpoint_key.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "logIndex": "0",
        "rootHash": b64(root),
        "treeSize": "1",
        "hashes": [],
        "checkpoint": {"envelope": f"{note}\n\u2014 rekor.example.org {b64(made)}\n"},
    }


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
