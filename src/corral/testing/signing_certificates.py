"""Certificates of the signing authority for tests: authorities, and signers as Fulcio issues them."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corral.signing.certificate_check import signed_form

_TIMESTAMPS: Final = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_YEARS: Final = dt.timedelta(days=3650)
_MINUTES: Final = dt.timedelta(minutes=5)


class CertifiedKey(msgspec.Struct, frozen=True, kw_only=True):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def issue_authority(name: str, parent: CertifiedKey | None, *, at: dt.datetime) -> CertifiedKey:
    """An authority under `parent`, or a root."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = parent or CertifiedKey(key=key, certificate=_placeholder(key, name, at))
    builder = (
        _builder(key, issuer, at - _YEARS / 10, at + _YEARS)
        .subject_name(_name(name))
        .add_extension(
            x509.BasicConstraints(ca=True, path_length=None if parent is None else 0), critical=True
        )
        .add_extension(_usage(authority=True), critical=True)
    )
    if parent is not None:
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
        )
    return CertifiedKey(key=key, certificate=builder.sign(issuer.key, hashes.SHA256()))


def issue_signer(
    issuer: CertifiedKey,
    *,
    at: dt.datetime,
    name: str,
    issuer_url: str = "",
    log: ec.EllipticCurvePrivateKey | None = None,
    for_code: bool = True,
    curve: ec.EllipticCurve | None = None,
) -> CertifiedKey:
    """A certificate of ten minutes for `name` (an address or a URI), submitted to `log` if there is one."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.CODE_SIGNING if for_code else ExtendedKeyUsageOID.CLIENT_AUTH
    name_extension = x509.UniformResourceIdentifier(name) if "://" in name else x509.RFC822Name(name)
    builder = (
        _builder(key, issuer, at - _MINUTES, at + _MINUTES)
        .subject_name(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([name_extension]), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if issuer_url:
        encoded = b"\x0c" + bytes([len(issuer_url)]) + issuer_url.encode()
        builder = builder.add_extension(x509.UnrecognizedExtension(_ISSUER, encoded), critical=False)
    if log is not None:
        body = builder.sign(issuer.key, hashes.SHA256()).tbs_certificate_bytes
        stamp = _timestamp(body, issuer, log, at)
        builder = builder.add_extension(x509.UnrecognizedExtension(_TIMESTAMPS, stamp), critical=False)
    return CertifiedKey(key=key, certificate=builder.sign(issuer.key, hashes.SHA256()))


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(public_der(key)).digest()


def _builder(
    key: ec.EllipticCurvePrivateKey, issuer: CertifiedKey, begin: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    own, above = key.public_key(), issuer.key.public_key()
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer.certificate.subject)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above), critical=False)
    )


def _placeholder(key: ec.EllipticCurvePrivateKey, name: str, at: dt.datetime) -> x509.Certificate:
    """Stands for a root while it issues itself: only its subject is read."""
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(at)
        .not_valid_after(at + _MINUTES)
        .sign(key, hashes.SHA256())
    )


def _timestamp(body: bytes, issuer: CertifiedKey, log: ec.EllipticCurvePrivateKey, at: dt.datetime) -> bytes:
    """A list of one timestamp, within the octet string that the extension requires."""
    milliseconds = round(at.timestamp() * 1000)
    signature = log.sign(signed_form(body, public_der(issuer.key), milliseconds), ec.ECDSA(hashes.SHA256()))
    stamp = struct.pack("!B32sQHBBH", 0, key_id(log), milliseconds, 0, 4, 3, len(signature)) + signature
    listed = struct.pack("!H", len(stamp)) + stamp
    whole = struct.pack("!H", len(listed)) + listed
    if len(whole) >= 128:
        return b"\x04\x81" + bytes([len(whole)]) + whole
    return b"\x04" + bytes([len(whole)]) + whole


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
