"""TLS of the HTTP listener, with a certificate that can be replaced while it listens.

A connection keeps the certificate that it began with; each new one gets the newest. A pair of certificate and key that
cannot be used is refused before it takes the place of the one before.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import ssl
from collections.abc import Iterator
from typing import Final

import msgspec
from cryptography import x509

from corral.errors import Code, Rejected

MAX_PEM: Final = 1024 * 1024
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of TLS 1.3 are all fine."""


class CertificatePair(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate with those above it, and its private key, as PEM. `source` says where they came from."""

    certificate_pem: bytes
    key_pem: bytes
    source: str


class LoadedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that a server can use."""

    context: ssl.SSLContext
    serial: str
    not_after: dt.datetime


def load_pair(pair: CertificatePair) -> LoadedPair:
    """INVALID_CONFIG when the two cannot be used together. Blocking."""
    context = _server_context()
    try:
        certificates = x509.load_pem_x509_certificates(pair.certificate_pem)
        with _in_memory(pair.certificate_pem) as certificate, _in_memory(pair.key_pem) as key:
            context.load_cert_chain(certificate, key, password=_refuse_password)
    except (ValueError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None)
        why = str(reason).replace("_", " ").lower() if reason else str(error) or "there is none in it"
        raise unusable(pair.source, why) from error
    return LoadedPair(
        context=context,
        serial=f"{certificates[0].serial_number:x}",
        not_after=certificates[0].not_valid_after_utc,
    )


def unusable(source: str, why: str) -> Rejected:
    return Rejected(
        Code.INVALID_CONFIG,
        f"the certificate of HTTP cannot be used ({source}): {why}",
        hint="give a PEM certificate with its chain and the PEM key that belongs to it, without a password",
        field="http.tls.certificate",
    )


class ServedCertificate:
    """The context that a listener is given. Until there is a certificate, every handshake is refused."""

    def __init__(self) -> None:
        self.context: Final = _server_context()
        self.context.sni_callback = self._choose
        self._current: LoadedPair | None = None

    @property
    def current(self) -> LoadedPair | None:
        return self._current

    def replace(self, loaded: LoadedPair) -> None:
        """Serve this one on every connection that begins from now on."""
        self._current = loaded

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        """Called in each handshake, also when the client names no host."""
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current.context
        return None


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file that exists in memory alone: the library reads certificates and keys from files only."""
    descriptor = os.memfd_create("corral-pem")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _refuse_password() -> str:
    """In place of the library's question at a terminal."""
    raise ValueError("the key has a password")
