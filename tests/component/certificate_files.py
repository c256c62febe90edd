"""Certificates of an operator, in files, and a look at the one that a server shows."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
import socket
import ssl
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def new_rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def self_signed(
    key: Key, serial: int, *, names: Sequence[str] = ("localhost",), days: int = 1, age_days: int = 1
) -> bytes:
    """A certificate for these names, as PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - dt.timedelta(days=age_days))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def pem_of(key: Key, password: bytes = b"") -> bytes:
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)


class PairFiles:
    """A certificate and a key in a directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"

    def write(self, key: Key, serial: int, **options: int) -> None:
        self.put(self.certificate, self_signed(key, serial, **options))
        self.put(self.key, pem_of(key))

    @staticmethod
    def put(path: pathlib.Path, content: bytes) -> None:
        """Replaced as a whole, as tools that renew certificates do."""
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").replace(path)


async def shown(
    host: str,
    port: int,
    *,
    most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    name: str | None = "localhost",
) -> x509.Certificate:
    """The certificate of a server, which is not verified. OSError when there is no handshake."""

    def look() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.maximum_version = most
        with (
            socket.create_connection((host, port), timeout=15) as plain,
            context.wrap_socket(plain, server_hostname=name) as wrapped,
        ):
            return wrapped.getpeercert(binary_form=True) or b""

    return x509.load_der_x509_certificate(await asyncio.to_thread(look))
