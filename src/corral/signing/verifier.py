"""The verifier of a host: opened once from `modules.signing`, used for each archive."""

from __future__ import annotations

import pathlib
from typing import Final

import msgspec
import structlog

from corral.domain.modules.records import SignatureFacts
from corral.errors import Code, unknown_choice
from corral.signing.archive_digest import checked_digest
from corral.signing.bundle_check import BundleRules, check_bundle
from corral.signing.certificate_check import AcceptedSigner
from corral.signing.keyed import verify_keyed
from corral.signing.refusals import misconfigured, refused, shown
from corral.signing.sidecars import Sidecar, check_size
from corral.signing.trust_root import TrustRoot, read_log_keys, read_trust_root
from corral.system.clock import Clock, SystemClock
from corral.system.config_sections import SigningSection

MODES: Final = ("cosign-bundle", "keyed")
POLICIES: Final = ("require-set", "disabled")
_LEGACY: Final = "sign with `cosign sign-blob --bundle FILE.cosign.bundle FILE`"

_log = structlog.get_logger("corral.signing")


class Verifier:
    """Verifies archives by a fixed trust root. Stateless otherwise: threads may share it."""

    def __init__(self, section: SigningSection, rules: BundleRules | None, *, clock: Clock) -> None:
        self._section = section
        self._rules = rules
        self._clock = clock

    def verify(self, archive: pathlib.Path, *, sha256: str, sidecar: Sidecar | None) -> SignatureFacts | None:
        """The proof of the archive, or None when it has none and needs none. Blocks.

        Raises SIGNATURE_VERIFICATION_FAILED. A signature that is present must be valid, required or not; only
        a host without a trust root ignores it.
        """
        if sidecar is None:
            if self._section.required:
                raise refused(
                    "there is none, and modules.signing.required is on",
                    hint="put FILE.cosign.bundle or FILE.sig beside the archive",
                )
            return None
        if self._rules is None:
            _log.warning("signature.skipped", sha256=sha256, why="modules.signing.trust_root is not set")
            return None
        check_size(sidecar.content)
        digest = checked_digest(archive, sha256)
        if sidecar.kind == "sig":
            return self._keyed(sidecar.content, digest, self._rules.root)
        if sidecar.kind == "cosign-bundle":
            return check_bundle(sidecar.content, digest, self._rules, now=self._clock.now())
        raise refused(f"its kind is {shown(sidecar.kind)!r}", hint="send a sig or a cosign-bundle")

    def _keyed(self, content: bytes, digest: bytes, root: TrustRoot) -> SignatureFacts:
        legacy = self._section.mode == "cosign-bundle"
        if legacy and not self._section.allow_legacy_sig:
            raise refused("a .sig is not accepted; modules.signing.allow_legacy_sig is off", hint=_LEGACY)
        if not root.signers:
            raise refused("it is a .sig, and the trust root holds no public key", hint=_LEGACY)
        key = verify_keyed(content, digest, root.signers)
        if legacy:
            _log.warning(
                "legacy_signature.accepted", sha256=digest.hex(), key_sha256=key.sha256, next=_LEGACY
            )
        return SignatureFacts(kind="sig", key_sha256=key.sha256, legacy=legacy)


def open_verifier(section: SigningSection, *, clock: Clock | None = None) -> Verifier:
    """The verifier for this configuration. Reads files, so it blocks.

    Raises INVALID_CONFIG for a configuration that could never accept a signature, so that a host does not
    start with it.
    """
    for field, value, choices in (
        ("mode", section.mode, MODES),
        ("rekor.policy", section.rekor.policy, POLICIES),
    ):
        if value not in choices:
            path = f"modules.signing.{field}"
            raise unknown_choice(path, value, choices, code=Code.INVALID_CONFIG, field=path)
    clock = clock or SystemClock()
    accepted = tuple(_accepted(text) for text in section.identities)
    if not section.trust_root:
        if section.required:
            raise misconfigured(
                "trust_root",
                "it is not set, though modules.signing.required is on",
                hint="name the certificates or keys that may sign modules",
            )
        return Verifier(section, None, clock=clock)
    root = _with_logs(section, read_trust_root(pathlib.Path(section.trust_root)))
    _check_usable(section, root)
    if root.document and not accepted:
        _log.warning("any_signing_identity.accepted", next="name the signers in modules.signing.identities")
    rules = BundleRules(root=root, accepted=accepted, entry_required=section.rekor.policy == "require-set")
    return Verifier(section, rules, clock=clock)


def _with_logs(section: SigningSection, root: TrustRoot) -> TrustRoot:
    """The configured log keys replace those in the trusted root."""
    if not section.rekor.public_key:
        return root
    return msgspec.structs.replace(root, logs=read_log_keys(pathlib.Path(section.rekor.public_key)))


def _check_usable(section: SigningSection, root: TrustRoot) -> None:
    if section.mode == "keyed" and not root.signers:
        raise misconfigured(
            "trust_root",
            "mode keyed needs PEM public keys, and it holds none",
            hint="or set mode: cosign-bundle",
        )
    takes_bundles = bool(root.logs) or section.rekor.policy == "disabled"
    takes_keyed = bool(root.signers) and (section.mode == "keyed" or section.allow_legacy_sig)
    if not takes_bundles and not takes_keyed:
        raise misconfigured(
            "rekor.public_key",
            "it is not set, so no bundle could show a signed log entry",
            hint="name the log's public key, or set modules.signing.rekor.policy to disabled",
        )


def _accepted(text: str) -> AcceptedSigner:
    """`NAME`, or `NAME issuer=URL`."""
    name, _, rest = text.strip().partition(" ")
    issuer = rest.strip()
    if not name or (issuer and not issuer.startswith("issuer=")) or issuer == "issuer=":
        raise misconfigured(
            "identities", f"{shown(text)!r} is no signer", hint="write NAME, or NAME issuer=URL"
        )
    return AcceptedSigner(name=name, issuer=issuer.removeprefix("issuer="))
