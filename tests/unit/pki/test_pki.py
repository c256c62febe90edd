"""Certificates, sealed keys and join tokens."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from corral.errors import Code, Rejected
from corral.pki.authority import Authority, renewal_time
from corral.pki.join_token import JoinToken
from corral.pki.keys import ClusterKey, make_csr, new_key, read_csr
from corral.pki.names import PeerKind, controller_host, read_peer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy

LIFE = dt.timedelta(days=30)


@pytest.fixture(scope="module")
def authority():
    key = ClusterKey(b"k" * 32)
    sealed = Authority.create(cluster="c1", cluster_key=key, clock=SystemClock(), entropy=SystemEntropy())
    return Authority.open(sealed, cluster="c1", cluster_key=key, clock=SystemClock())


def test_a_node_certificate_names_the_node_whatever_the_request_said(authority):
    issued = authority.issue_node("n1", read_csr(make_csr(new_key(), "root")), life=LIFE)
    peer = read_peer(issued.certificate_pem)
    assert (peer.cluster, peer.kind, peer.name, peer.serial) == ("c1", PeerKind.NODE, "n1", issued.serial)


def test_certificates_begin_in_the_past_and_are_renewed_at_two_thirds(authority):
    issued = authority.issue_node("n1", new_key().public_key(), life=LIFE)
    certificate = x509.load_pem_x509_certificate(issued.certificate_pem)
    now = dt.datetime.now(dt.UTC)
    assert certificate.not_valid_before_utc < now - dt.timedelta(hours=23)
    due = renewal_time(issued.certificate_pem)
    assert abs(due - (now + LIFE * 2 / 3)) < dt.timedelta(minutes=1)


def test_a_controllers_certificate_carries_the_clusters_name(authority):
    identity = authority.issue_controller("ctl-1", life=LIFE)
    certificate = x509.load_pem_x509_certificate(identity.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [controller_host("c1")]


def test_a_certificate_for_http_has_its_hosts_and_is_no_peer_of_the_link(authority):
    identity = authority.issue_https(["localhost", "127.0.0.1", "::1"], life=LIFE)
    certificate = x509.load_pem_x509_certificate(identity.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {"localhost", "127.0.0.1", "::1"}
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    with pytest.raises(Rejected) as caught:
        read_peer(identity.certificate_pem)
    assert caught.value.code is Code.CERTIFICATE_REFUSED


def test_the_authoritys_key_is_sealed_and_opens_only_with_the_cluster_key():
    sealed = Authority.create(
        cluster="c1", cluster_key=ClusterKey(b"a" * 32), clock=SystemClock(), entropy=SystemEntropy()
    )
    assert "PRIVATE" not in sealed.sealed_key
    with pytest.raises(Rejected, match="cluster key"):
        Authority.open(sealed, cluster="c1", cluster_key=ClusterKey(b"b" * 32), clock=SystemClock())


def test_a_certificate_without_our_name_is_refused(authority):
    with pytest.raises(Rejected) as caught:
        read_peer(authority.certificate_pem)
    assert caught.value.code is Code.CERTIFICATE_REFUSED


def _csr(key) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    "key",
    [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)],
    ids=["p384", "rsa"],
)
def test_keys_of_another_kind_are_refused(key):
    with pytest.raises(Rejected, match="P-256"):
        read_csr(_csr(key))


def test_a_request_that_was_tampered_with_is_refused():
    pem = bytearray(make_csr(new_key(), "x"))
    der = bytearray(x509.load_pem_x509_csr(bytes(pem)).public_bytes(serialization.Encoding.DER))
    der[-3] ^= 0xFF
    broken = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(Rejected):
        read_csr(broken)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader_of_requests(data):
    with pytest.raises(Rejected):
        read_csr(data)


def a_token(authority) -> JoinToken:
    return JoinToken(
        id="join-abc",
        secret=b"s" * 24,
        cluster="c1",
        authority_der=authority.certificate_der,
        bootstrap=("h:1",),
    )


def test_a_join_token_survives_its_text_and_surrounding_blanks(authority):
    token = a_token(authority)
    assert JoinToken.parse(f"  {token.encode()}\n") == token
    assert token.authority_pem == authority.certificate_pem
    assert len(token.encode()) < 700


def test_a_token_with_any_character_changed_is_refused(authority):
    text = a_token(authority).encode()
    for position in (*range(len("corral-join-1."), len(text), 7), len(text) - 1):
        changed = text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]
        with pytest.raises(Rejected):
            JoinToken.parse(changed)


@given(st.text(max_size=200))
def test_no_text_crashes_the_reader_of_tokens(text):
    with pytest.raises(Rejected):
        JoinToken.parse("corral-join-1." + text)


@pytest.mark.parametrize("key", ["", "c2hvcnQ=", "not base64!"])
def test_a_damaged_cluster_key_is_named(tmp_path, key):
    path = tmp_path / "cluster.key"
    path.write_text(f'{{"format":"corral-cluster-key","version":1,"value":{{"key":"{key}"}}}}')
    with pytest.raises(Rejected) as caught:
        ClusterKey.load(path)
    assert caught.value.code is Code.FORMAT_INVALID
    assert "cluster.key" in caught.value.message
