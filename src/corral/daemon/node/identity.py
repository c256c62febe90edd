"""Identity of this node: its key, its certificate, and the authorities it trusts. One file, replaced as a whole."""

from __future__ import annotations

import pathlib
import stat
from typing import Final

import grpc
import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from corral.daemon.node.data_directory import AUTHORITY_FILE, AUTHORITY_MODE
from corral.daemon.node.durable_files import store
from corral.domain.ids import ClusterId, NodeId
from corral.errors import Code, Rejected
from corral.pki.keys import load_key
from corral.pki.names import PeerKind, read_peer
from corral.system.files import atomic_write, read_versioned

_FILE: Final = "identity.json"
_FORMAT: Final = "corral-node-identity"
_VERSION: Final = 1
_log = structlog.get_logger("corral.daemon.node")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An enrolled node. Includes the private key: the file has mode 0600 and never leaves the node."""

    node_id: NodeId
    cluster: ClusterId
    key_pem: str
    certificate_pem: str
    trusted_ca_pem: str
    join_token_id: str

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            root_certificates=self.trusted_ca_pem.encode(),
            private_key=self.key_pem.encode(),
            certificate_chain=self.certificate_pem.encode(),
        )


def load_identity(data: pathlib.Path) -> Identity | None:
    return read_versioned(data / _FILE, Identity, name=_FORMAT, version=_VERSION)


def save_identity(data: pathlib.Path, identity: Identity) -> None:
    """Store it durably before it is used: a certificate issued to this node is never lost. Retryable when the disk
    refuses; the old identity then stays."""
    store(data / _FILE, identity, name=_FORMAT, version=_VERSION)


class StoredIdentity:
    """The identity in use. A new one is on disk before it is used."""

    def __init__(self, data: pathlib.Path, identity: Identity) -> None:
        self._data = data
        self._current = identity

    @property
    def current(self) -> Identity:
        return self._current

    def replace(self, identity: Identity) -> None:
        """Durable, then in use; Retryable when the disk refuses, and then nothing has changed."""
        save_identity(self._data, identity)
        self._current = identity
        publish_authorities(self._data, identity)


def publish_authorities(data: pathlib.Path, identity: Identity) -> None:
    """Write the certificates of the trusted authorities where workloads can read them; only the daemon's user can change
    the file. A disk that refuses is logged: a node goes on without it, and tries again at its next start."""
    path, content = data / AUTHORITY_FILE, identity.trusted_ca_pem.encode()
    try:
        if not _holds(path, content):
            atomic_write(path, content, mode=AUTHORITY_MODE)
    except OSError as error:
        _log.warning("authority_file.failed", path=str(path), reason=error.strerror or str(error))


def _holds(path: pathlib.Path, content: bytes) -> bool:
    """A daemon of an earlier version closes every file of the data directory, this one too."""
    try:
        return stat.S_IMODE(path.stat().st_mode) == AUTHORITY_MODE and path.read_bytes() == content
    except FileNotFoundError:
        return False


def with_trust(identity: Identity, trusted_ca_pem: bytes) -> Identity:
    """This identity, trusting these authorities instead. Refused when they do not include the one that signed our own
    certificate: with such a bundle the node would lock itself out."""
    return verified(msgspec.structs.replace(identity, trusted_ca_pem=_text(trusted_ca_pem)))


def with_certificate(
    identity: Identity, *, key_pem: str, certificate_pem: bytes, trusted_ca_pem: bytes
) -> Identity:
    """This identity with a renewed certificate; an empty bundle leaves the trust as it is."""
    return verified(
        msgspec.structs.replace(
            identity,
            key_pem=key_pem,
            certificate_pem=_text(certificate_pem),
            trusted_ca_pem=_text(trusted_ca_pem) or identity.trusted_ca_pem,
        )
    )


def verified(identity: Identity) -> Identity:
    """Refuse a certificate that is not for our key or our name, or not by an authority we trust."""
    try:
        certificate = x509.load_pem_x509_certificate(identity.certificate_pem.encode())
        authorities = x509.load_pem_x509_certificates(identity.trusted_ca_pem.encode())
    except ValueError as error:
        raise Rejected(Code.CERTIFICATE_REFUSED, f"what we were given is no certificate: {error}") from error
    peer = read_peer(identity.certificate_pem.encode())
    own_key = load_key(identity.key_pem.encode()).public_key()
    problem = ""
    if certificate.public_key() != own_key:
        problem = "it is for another key"
    elif peer.kind is not PeerKind.NODE or peer.name != identity.node_id:
        problem = f"it is for {peer.kind} '{peer.name}'"
    elif peer.cluster != identity.cluster:
        problem = f"it is of cluster '{peer.cluster}'"
    elif not _signed_by_one_of(authorities, certificate):
        problem = "no authority that we trust has signed it"
    if problem:
        raise Rejected(Code.CERTIFICATE_REFUSED, f"the certificate we were given is refused: {problem}")
    return identity


def _signed_by_one_of(authorities: list[x509.Certificate], certificate: x509.Certificate) -> bool:
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _text(pem: bytes) -> str:
    """PEM is ASCII; anything else becomes text that no parser accepts as a certificate."""
    return pem.decode(errors="replace")
