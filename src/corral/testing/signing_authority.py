"""A signing authority for tests, with its logs and signers: bundles in both formats as cosign makes them,
valid or invalid as requested.

Everything is real cryptography without network access. `Wrong` names one thing that is invalid in a bundle
while all the rest is valid, so that a test sees that very check refuse.
"""

from __future__ import annotations

import base64
import copy
import datetime as dt
import enum
import functools
import hashlib
import json
import pathlib
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from corral.testing.signing_certificates import (
    CertifiedKey,
    certificate_pem,
    issue_authority,
    issue_signer,
    key_id,
    public_der,
    public_pem,
)

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
    """Signed throughout by an untrusted log."""
    MISSING_SET = enum.auto()
    MISSING_ENTRY = enum.auto()
    MISSING_TIMESTAMP = enum.auto()
    """The certificate was never submitted to a certificate log."""
    FOREIGN_TIMESTAMP = enum.auto()
    """The certificate was submitted to an untrusted certificate log."""
    WRONG_INCLUSION = enum.auto()
    """The proof of inclusion leads elsewhere; the newer format only."""
    WRONG_CHECKPOINT = enum.auto()
    """The log's checkpoint is signed by another key; the newer format only."""


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """The values that both formats are written from."""

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


SIGNER: Final = "dev@example.org"
ISSUER: Final = "https://accounts.example.org"


class SigningServices:
    """A root and an intermediate authority, a certificate log, a transparency log, all made anew."""

    def __init__(self, *, signed_at: dt.datetime | None = None) -> None:
        self.signed_at = (signed_at or dt.datetime.now(dt.UTC)).replace(microsecond=0)
        """When signatures are logged; certificates live ten minutes around it."""
        self.root = issue_authority("root", None, at=self.signed_at)
        self.intermediate = issue_authority("intermediate", self.root, at=self.signed_at)
        self.certificate_log = ec.generate_private_key(ec.SECP256R1())
        self.log = ec.generate_private_key(ec.SECP256R1())

    @functools.cached_property
    def stranger(self) -> SigningServices:
        """An authority that is not trusted."""
        return SigningServices(signed_at=self.signed_at)

    def at(self, moment: dt.datetime) -> SigningServices:
        """The same authority, signing at another time."""
        services = copy.copy(self)
        services.signed_at = moment.replace(microsecond=0)
        return services

    def signer(self, wrong: Wrong = Wrong.NOTHING) -> CertifiedKey:
        services = self.stranger if wrong is Wrong.FOREIGN_ROOT else self
        log = self.stranger.certificate_log if wrong is Wrong.FOREIGN_TIMESTAMP else self.certificate_log
        return issue_signer(
            services.intermediate,
            at=self.signed_at,
            name="mallory@example.org" if wrong is Wrong.WRONG_IDENTITY else SIGNER,
            issuer_url=ISSUER,
            log=None if wrong is Wrong.MISSING_TIMESTAMP else log,
            for_code=wrong is not Wrong.NOT_FOR_CODE,
            curve=ec.SECP224R1() if wrong is Wrong.WEAK_KEY else ec.SECP256R1(),
        )

    def classic(self, archive: pathlib.Path, wrong: Wrong = Wrong.NOTHING) -> bytes:
        """`cosign sign-blob --bundle` as it was for years: no proof of inclusion."""
        return write_classic(self._sign(archive, wrong), wrong)

    def newer(self, archive: pathlib.Path, wrong: Wrong = Wrong.NOTHING) -> bytes:
        """A Sigstore bundle, version 0.3, with the proof of inclusion in a log of one entry."""
        return write_newer(self._sign(archive, wrong), wrong)

    def classic_by_key(
        self, archive: pathlib.Path, key: ec.EllipticCurvePrivateKey, wrong: Wrong = Wrong.NOTHING
    ) -> bytes:
        """`cosign sign-blob --key`: no certificate, but a key."""
        return write_classic(self._sign_by_key(archive, key, wrong), wrong)

    def newer_by_key(
        self, archive: pathlib.Path, key: ec.EllipticCurvePrivateKey, wrong: Wrong = Wrong.NOTHING
    ) -> bytes:
        return write_newer(self._sign_by_key(archive, key, wrong), wrong)

    def write_trusted_root(self, path: pathlib.Path) -> pathlib.Path:
        """`trusted_root.json`, as `cosign trusted-root create` writes it."""
        start = (self.signed_at - dt.timedelta(days=365)).strftime("%Y-%m-%dT%H:%M:%SZ")
        chain = [self.intermediate.certificate, self.root.certificate]
        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log_instance(self.log, "https://rekor.example.org", start)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "example.org", "commonName": "root"},
                    "uri": "https://fulcio.example.org",
                    "certChain": {"certificates": [{"rawBytes": b64(der(item))} for item in chain]},
                    "validFor": {"start": start},
                }
            ],
            "ctlogs": [_log_instance(self.certificate_log, "https://ct.example.org", start)],
        }
        path.write_text(json.dumps(document))
        return path

    def write_pem_root(self, path: pathlib.Path) -> pathlib.Path:
        """The authorities as PEM certificates."""
        path.write_bytes(
            certificate_pem(self.root.certificate) + certificate_pem(self.intermediate.certificate)
        )
        return path

    def write_log_key(self, path: pathlib.Path) -> pathlib.Path:
        path.write_bytes(public_pem(self.log))
        return path

    def _sign(self, archive: pathlib.Path, wrong: Wrong) -> Signed:
        signer = self.signer(wrong)
        named = self.signer() if wrong is Wrong.ENTRY_BY_ANOTHER_KEY else signer
        return self._logged(
            archive,
            wrong,
            key=signer.key,
            pem=certificate_pem(signer.certificate),
            entry_pem=certificate_pem(named.certificate),
            certificate=signer.certificate,
        )

    def _sign_by_key(self, archive: pathlib.Path, key: ec.EllipticCurvePrivateKey, wrong: Wrong) -> Signed:
        named = ec.generate_private_key(ec.SECP256R1()) if wrong is Wrong.ENTRY_BY_ANOTHER_KEY else key
        return self._logged(
            archive, wrong, key=key, pem=public_pem(key), entry_pem=public_pem(named), certificate=None
        )

    def _logged(
        self,
        archive: pathlib.Path,
        wrong: Wrong,
        *,
        key: ec.EllipticCurvePrivateKey,
        pem: bytes,
        entry_pem: bytes,
        certificate: x509.Certificate | None,
    ) -> Signed:
        content = archive.read_bytes()
        signed = content + b"!" if wrong is Wrong.ANOTHER_SIGNATURE else content
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        body = entry_body(content, key, signature, entry_pem, wrong)
        log = self.stranger.log if wrong is Wrong.FOREIGN_LOG else self.log
        at = int(self.signed_at.timestamp()) + _MOVED.get(wrong, 0)
        return Signed(
            signature=signature,
            signer_pem=pem,
            certificate=certificate,
            digest=hashlib.sha256(content).digest(),
            body=body,
            integrated_time=at,
            log_id=key_id(log),
            promise=self._promise(log, body, at, wrong),
            checkpoint_key=self.stranger.log if wrong is Wrong.WRONG_CHECKPOINT else log,
        )

    def _promise(self, log: ec.EllipticCurvePrivateKey, body: bytes, at: int, wrong: Wrong) -> bytes:
        payload = {
            "body": b64(body),
            "integratedTime": at - 60 if wrong is Wrong.SET_OF_ANOTHER_TIME else at,
            "logID": key_id(log).hex(),
            "logIndex": 0,
        }
        key = self.stranger.log if wrong is Wrong.SET_BY_ANOTHER_KEY else log
        return key.sign(json.dumps(payload, separators=(",", ":")).encode(), ec.ECDSA(hashes.SHA256()))


_MOVED: Final = {Wrong.EXPIRED_CERTIFICATE: 3600, Wrong.EARLY_ENTRY: -3600}


def _log_instance(key: ec.EllipticCurvePrivateKey, url: str, start: str) -> dict[str, Any]:
    return {
        "baseUrl": url,
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": b64(public_der(key)),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": {"start": start},
        },
        "logId": {"keyId": b64(key_id(key))},
    }
