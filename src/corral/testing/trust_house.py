"""An authority, its logs, and signers of our own: bundles as cosign makes them, right or wrong at will.

Everything is real cryptography; nothing goes over the network. `Wrong` names one thing that does not
hold in a bundle while all the rest does, so that a test sees that very check refuse.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import hashlib
import json
import pathlib
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from corral.testing.trust_bundles import Signed, Wrong, b64, der, entry_body, write_classic, write_newer
from corral.testing.trust_certificates import (
    CertifiedKey,
    certificate_pem,
    issue_authority,
    issue_signer,
    key_id,
    public_der,
    public_pem,
)

SIGNER: Final = "dev@example.org"
ISSUER: Final = "https://accounts.example.org"


class TrustHouse:
    """A root and an intermediate authority, a certificate log, a transparency log, all made anew."""

    def __init__(self, *, signed_at: dt.datetime | None = None) -> None:
        self.signed_at = (signed_at or dt.datetime.now(dt.UTC)).replace(microsecond=0)
        """When signatures are logged; certificates live ten minutes around it."""
        self.root = issue_authority("root", None, at=self.signed_at)
        self.intermediate = issue_authority("intermediate", self.root, at=self.signed_at)
        self.certificate_log = ec.generate_private_key(ec.SECP256R1())
        self.log = ec.generate_private_key(ec.SECP256R1())

    @functools.cached_property
    def stranger(self) -> TrustHouse:
        """A house that nobody trusts."""
        return TrustHouse(signed_at=self.signed_at)

    def at(self, moment: dt.datetime) -> TrustHouse:
        """The same house, signing at another time."""
        house = copy.copy(self)
        house.signed_at = moment.replace(microsecond=0)
        return house

    def signer(self, wrong: Wrong = Wrong.NOTHING) -> CertifiedKey:
        house = self.stranger if wrong is Wrong.FOREIGN_ROOT else self
        log = self.stranger.certificate_log if wrong is Wrong.FOREIGN_TIMESTAMP else self.certificate_log
        return issue_signer(
            house.intermediate,
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
