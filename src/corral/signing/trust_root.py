"""The trust root of an operator: authorities, signing keys, and the logs that record signatures; and its
reader.

The files are those that `modules.signing.trust_root` and `rekor.public_key` name. All refusals are
INVALID_CONFIG.
"""

from __future__ import annotations

import base64
import datetime as dt
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from corral.errors import Rejected
from corral.signing.archive_key import ArchiveKey, WeakKey
from corral.signing.refusals import UNREADABLE, misconfigured, shown


class ValidityWindow(msgspec.Struct, frozen=True, kw_only=True):
    """When something was trusted; a missing end is open."""

    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def holds(self, at: dt.datetime) -> bool:
        return (self.start is None or self.start <= at) and (self.end is None or at <= self.end)


class TrustedAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates that a signer's certificate must lead to."""

    certificates: tuple[x509.Certificate, ...]
    window: ValidityWindow = ValidityWindow()


class LogKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a transparency log, or of a certificate transparency log."""

    key: ArchiveKey
    window: ValidityWindow = ValidityWindow()


class TrustRoot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a verifier trusts."""

    signers: tuple[ArchiveKey, ...] = ()
    authorities: tuple[TrustedAuthority, ...] = ()
    logs: tuple[LogKey, ...] = ()
    certificate_logs: tuple[LogKey, ...] = ()
    """Empty under PEM certificates: there is no key to check certificate timestamps with."""
    document: bytes = b""
    """The `trusted_root.json` itself, for the library; empty under PEM."""

    def anchors(self, at: dt.datetime) -> list[x509.Certificate]:
        return [
            certificate
            for authority in self.authorities
            if authority.window.holds(at)
            for certificate in authority.certificates
        ]


def find_log(logs: Sequence[LogKey], log_id: str) -> LogKey | None:
    return next((log for log in logs if log.key.sha256 == log_id), None)


_MEDIA_TYPE: Final = "application/vnd.dev.sigstore.trustedroot+json;version=0.1"
_LIMIT: Final = 4 * 1024 * 1024
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_ROOT: Final = "trust_root"
_LOG: Final = "rekor.public_key"
_KINDS: Final = "give PEM certificates, PEM public keys, or a Sigstore trusted_root.json"

_T = TypeVar("_T")


class _RootPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of Sigstore's format: unknown fields are ignored."""


class _Range(_RootPart, frozen=True, kw_only=True):
    start: dt.datetime | None = None
    end: dt.datetime | None = None


class _PublicKey(_RootPart, frozen=True, kw_only=True):
    raw_bytes: str
    valid_for: _Range = _Range()


class _Log(_RootPart, frozen=True, kw_only=True):
    public_key: _PublicKey


class _RootCertificate(_RootPart, frozen=True, kw_only=True):
    raw_bytes: str


class _RootChain(_RootPart, frozen=True, kw_only=True):
    certificates: tuple[_RootCertificate, ...]


class _Authority(_RootPart, frozen=True, kw_only=True):
    cert_chain: _RootChain
    valid_for: _Range = _Range()


class _TrustedRoot(_RootPart, frozen=True, kw_only=True):
    media_type: str
    tlogs: tuple[_Log, ...] = ()
    certificate_authorities: tuple[_Authority, ...] = ()
    ctlogs: tuple[_Log, ...] = ()


def read_trust_root(path: pathlib.Path) -> TrustRoot:
    """Blocks. The result holds at least one authority or one key."""
    content = _content(path, _ROOT)
    if content.lstrip()[:1] == b"{":
        return _from_json(content)
    root = _from_pem(content)
    if not root.signers and not root.authorities:
        raise misconfigured(_ROOT, f"{path} holds no certificate and no public key", hint=_KINDS)
    return root


def read_log_keys(path: pathlib.Path) -> tuple[LogKey, ...]:
    """The keys of transparency logs in a PEM file; at least one. Blocks."""
    root = _from_pem(_content(path, _LOG), field=_LOG)
    if root.authorities or not root.signers:
        raise misconfigured(
            _LOG, f"{path} is not a PEM file of public keys", hint="give the log's public key in PEM"
        )
    return tuple(LogKey(key=key) for key in root.signers)


def _content(path: pathlib.Path, field: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT + 1)
    except OSError as error:
        raise misconfigured(
            field, f"{path} cannot be read: {error.strerror}", hint="name a file that this user can read"
        ) from error
    if len(content) > _LIMIT:
        raise misconfigured(field, f"{path} is larger than {_LIMIT} bytes", hint=_KINDS)
    return content


def _from_pem(content: bytes, field: str = _ROOT) -> TrustRoot:
    signers: list[ArchiveKey] = []
    certificates: list[x509.Certificate] = []
    for number, match in enumerate(_PEM.finditer(content), start=1):
        kind, block = match[1].decode(), match[0]
        if kind == "CERTIFICATE":
            certificates.append(_read(x509.load_pem_x509_certificate, block, field, number))
        elif kind in ("PUBLIC KEY", "RSA PUBLIC KEY"):
            signers.append(_read(_load_key, block, field, number))
        else:
            raise misconfigured(
                field,
                f"block {number} is a {kind}; only certificates and public keys belong here",
                hint=_KINDS,
            )
    if content.count(b"-----BEGIN ") != len(signers) + len(certificates):
        raise misconfigured(field, "a PEM block has no end; the file is cut or damaged", hint=_KINDS)
    authorities = (TrustedAuthority(certificates=tuple(certificates)),) if certificates else ()
    return TrustRoot(signers=tuple(signers), authorities=authorities)


def _load_key(pem: bytes) -> ArchiveKey:
    return ArchiveKey(serialization.load_pem_public_key(pem))


def _read(load: Callable[[bytes], _T], block: bytes, field: str, number: int) -> _T:
    try:
        return load(block)
    except WeakKey as error:
        raise misconfigured(field, f"block {number} is {error}", hint="take the weak key out") from error
    except UNREADABLE as error:
        raise misconfigured(field, f"block {number} cannot be read: {shown(error)}", hint=_KINDS) from error


def _from_json(content: bytes) -> TrustRoot:
    try:
        document = msgspec.json.decode(content, type=_TrustedRoot)
        if document.media_type != _MEDIA_TYPE:
            raise ValueError(f"media type {shown(document.media_type)!r}, not {_MEDIA_TYPE!r}")
        root = TrustRoot(
            authorities=tuple(_authority(item) for item in document.certificate_authorities),
            logs=_log_keys(document.tlogs),
            certificate_logs=_log_keys(document.ctlogs),
            document=content,
        )
    except (*UNREADABLE, RecursionError) as error:
        raise _not_a_root(shown(error)) from error
    for found, what in (
        (root.authorities, "certificate authority"),
        (root.logs, "key of a transparency log that we can use"),
        (root.certificate_logs, "key of a certificate transparency log that we can use"),
    ):
        if not found:
            raise _not_a_root(f"it names no {what}")
    return root


def _authority(authority: _Authority) -> TrustedAuthority:
    encoded = [base64.b64decode(item.raw_bytes, validate=True) for item in authority.cert_chain.certificates]
    return TrustedAuthority(
        certificates=tuple(x509.load_der_x509_certificate(item) for item in encoded),
        window=_window(authority.valid_for),
    )


def _log_keys(logs: Sequence[_Log]) -> tuple[LogKey, ...]:
    """The usable keys: a trusted root also names logs of kinds that came later (Ed25519)."""
    keys = []
    for log in logs:
        encoded = base64.b64decode(log.public_key.raw_bytes, validate=True)
        try:
            key = ArchiveKey(serialization.load_der_public_key(encoded))
        except WeakKey:
            continue
        keys.append(LogKey(key=key, window=_window(log.public_key.valid_for)))
    return tuple(keys)


def _window(valid: _Range) -> ValidityWindow:
    for moment in (valid.start, valid.end):
        if moment is not None and moment.tzinfo is None:
            raise ValueError("a time in it has no time zone")
    return ValidityWindow(start=valid.start, end=valid.end)


def _not_a_root(why: str) -> Rejected:
    return misconfigured(
        _ROOT, f"the trusted root cannot be used: {why}", hint="make it with `cosign trusted-root create`"
    )
