"""Join tokens: the text that lets one host join, with a secret, the addresses to connect to, and the
authority to trust.

It contains the authority's certificate, so the daemon can verify the controller in its first connection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from corral.domain.ids import JoinTokenId
from corral.errors import Code, Rejected

_PREFIX: Final = "corral-join-1."


class JoinToken(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The content of a join token. Compact, because it is pasted into terminals."""

    id: JoinTokenId
    secret: bytes
    cluster: str
    authority_der: bytes
    bootstrap: tuple[str, ...]

    def encode(self) -> str:
        raw = msgspec.msgpack.encode(self)
        check = hashlib.sha256(raw).digest()[:3]
        return _PREFIX + base64.urlsafe_b64encode(raw + check).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Refuses a truncated or mistyped token, before anything is sent."""
        body = text.strip().removeprefix(_PREFIX)
        try:
            if not text.strip().startswith(_PREFIX) or len(body) > 8192:
                raise ValueError("unknown prefix")
            raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            if base64.urlsafe_b64encode(raw).decode().rstrip("=") != body:
                raise ValueError("other characters, or bits that say nothing")
            if hashlib.sha256(raw[:-3]).digest()[:3] != raw[-3:]:
                raise ValueError("checksum differs")
            token = msgspec.msgpack.decode(raw[:-3], type=cls)
            x509.load_der_x509_certificate(token.authority_der)
        except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
            raise Rejected(
                Code.JOIN_TOKEN_INVALID,
                "this is not a whole join token",
                hint="copy it again as one line, or make a new one with 'corral node join-token'",
            ) from error
        return token

    @property
    def authority_pem(self) -> bytes:
        certificate = x509.load_der_x509_certificate(self.authority_der)
        return certificate.public_bytes(serialization.Encoding.PEM)
