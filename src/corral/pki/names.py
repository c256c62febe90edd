"""Names in certificates.

A peer's name is a URI in its certificate: `corral://<cluster>/node/<id>`, `.../admin/<name>` or
`.../controller`. It is written by the authority and never taken from a signing request.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Final

import msgspec
from cryptography import x509

from corral.domain.ids import ClusterId
from corral.errors import Code, Rejected

SCHEME: Final = "corral://"


class PeerKind(enum.StrEnum):
    NODE = "node"
    ADMIN = "admin"
    CONTROLLER = "controller"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a certificate."""

    cluster: str
    kind: PeerKind
    name: str
    serial: str
    expires_at: dt.datetime


def peer_uri(cluster: ClusterId, kind: PeerKind, name: str) -> str:
    return f"{SCHEME}{cluster}/{kind}/{name}"


def controller_host(cluster: ClusterId) -> str:
    """The name in every controller's certificate, whatever address is dialled."""
    return f"controller.{cluster}.corral"


def serial_text(number: int) -> str:
    return f"{number:x}"


def read_peer(certificate_pem: bytes) -> Peer:
    """The identity in a certificate that the TLS layer has already verified."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
            cluster, kind, name = uri.removeprefix(SCHEME).split("/", 2)
            return Peer(
                cluster=cluster,
                kind=PeerKind(kind),
                name=name,
                serial=serial_text(certificate.serial_number),
                expires_at=certificate.not_valid_after_utc,
            )
    except (ValueError, x509.ExtensionNotFound):
        pass
    raise Rejected(
        Code.CERTIFICATE_REFUSED,
        "the client certificate does not name a peer of this cluster",
        hint="enrol the node with a join token",
    )
