"""The cluster's own certificate authority: it issues short-lived certificates and nothing else."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corral.domain.ids import ClusterId, NodeId
from corral.domain.records import SealedAuthority
from corral.pki.keys import ClusterKey, derived, key_pem, load_key, new_key
from corral.pki.names import PeerKind, controller_host, peer_uri, serial_text
from corral.system.clock import Clock
from corral.system.entropy import Entropy

_PURPOSE: Final = "corral-ca"
_AUTHORITY_LIFE: Final = dt.timedelta(days=3650)
_MOST_HOSTS: Final = 200
_BACKDATE: Final = dt.timedelta(days=1)
"""Certificates begin in the past: a host whose clock is hours behind must still accept them."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    certificate_pem: bytes
    serial: str
    not_after: dt.datetime


class ServerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate and key of a controller, towards daemons or on HTTP."""

    key_pem: bytes
    certificate_pem: bytes
    renew_at: dt.datetime


class Authority:
    """Signs with the cluster's key. Names come from the caller's records, never from a request."""

    def __init__(
        self,
        *,
        cluster: ClusterId,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._certificate = certificate
        self._key = key
        self._clock = clock

    @classmethod
    def create(
        cls, *, cluster: ClusterId, cluster_key: ClusterKey, clock: Clock, entropy: Entropy
    ) -> SealedAuthority:
        """A new authority, ready to be stored: the key only ever leaves here sealed."""
        key = new_key()
        now = clock.now()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"corral {cluster}")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(now + _AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        sealed = cluster_key.seal(key_pem(key), purpose=_PURPOSE, entropy=entropy)
        return SealedAuthority(certificate_pem=pem, sealed_key=sealed, created_at=now)

    @classmethod
    def open(
        cls, sealed: SealedAuthority, *, cluster: ClusterId, cluster_key: ClusterKey, clock: Clock
    ) -> Authority:
        key = load_key(cluster_key.unseal(sealed.sealed_key, purpose=_PURPOSE))
        certificate = x509.load_pem_x509_certificate(sealed.certificate_pem.encode())
        return cls(cluster=cluster, certificate=certificate, key=key, clock=clock)

    @staticmethod
    def derived_key(sealed: SealedAuthority, *, cluster_key: ClusterKey, purpose: str) -> bytes:
        """A secret for one purpose, derived from this authority and the same wherever it can be unsealed; it
        reveals nothing of the authority's key."""
        return derived(cluster_key.unseal(sealed.sealed_key, purpose=_PURPOSE), purpose)

    @property
    def cluster(self) -> ClusterId:
        return self._cluster

    @property
    def certificate_pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def certificate_der(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.DER)

    def issue_node(self, node: NodeId, key: ec.EllipticCurvePublicKey, *, life: dt.timedelta) -> Issued:
        return self._issue(PeerKind.NODE, node, key, life, client=True)

    def issue_admin(self, name: str, key: ec.EllipticCurvePublicKey, *, life: dt.timedelta) -> Issued:
        return self._issue(PeerKind.ADMIN, name, key, life, client=True)

    def issue_controller(self, holder: str, *, life: dt.timedelta) -> ServerIdentity:
        key = new_key()
        issued = self._issue(PeerKind.CONTROLLER, holder, key.public_key(), life, client=False)
        return _identity(key, issued)

    def issue_https(self, names: Iterable[str], *, life: dt.timedelta) -> ServerIdentity:
        """A certificate for the HTTP API under these host names and addresses. It names no peer: nothing on the link
        takes it for a controller."""
        key = new_key()
        hosts = sorted(names)[:_MOST_HOSTS]
        issued = self._sign(
            hosts[0], [_host_name(host) for host in hosts], key.public_key(), life, client=False
        )
        return _identity(key, issued)

    def _issue(
        self,
        kind: PeerKind,
        name: str,
        key: ec.EllipticCurvePublicKey,
        life: dt.timedelta,
        *,
        client: bool,
    ) -> Issued:
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(peer_uri(self._cluster, kind, name))]
        if not client:
            names.append(x509.DNSName(controller_host(self._cluster)))
        return self._sign(name, names, key, life, client=client)

    def _sign(
        self,
        name: str,
        names: Sequence[x509.GeneralName],
        key: ec.EllipticCurvePublicKey,
        life: dt.timedelta,
        *,
        client: bool,
    ) -> Issued:
        now = self._clock.now()
        serial = x509.random_serial_number()
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(serial)
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(now + life)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return Issued(
            certificate_pem=certificate.public_bytes(serialization.Encoding.PEM),
            serial=serial_text(serial),
            not_after=now + life,
        )


def _identity(key: ec.EllipticCurvePrivateKey, issued: Issued) -> ServerIdentity:
    return ServerIdentity(
        key_pem=key_pem(key),
        certificate_pem=issued.certificate_pem,
        renew_at=renewal_time(issued.certificate_pem),
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def renewal_time(certificate_pem: bytes) -> dt.datetime:
    """Two thirds into the certificate's life, its backdated first day not counted."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    begin = certificate.not_valid_before_utc + _BACKDATE
    return begin + (certificate.not_valid_after_utc - begin) * 2 / 3
