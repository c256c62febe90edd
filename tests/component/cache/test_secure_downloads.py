"""Downloads over TLS: the certificate has to be the host's, and from somebody we trust."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from web_server import WebServer, says, serves

from corral.daemon.cache.downloads import Downloads
from corral.errors import Code, Rejected
from corral.system.clock import SystemClock
from corral.system.daemon_config import DownloadsSection
from corral.system.entropy import SystemEntropy

CONTENT = b"jar" * 50_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of 127.0.0.1 and of nobody else, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "web.pem"
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
async def web(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with WebServer(tls=context) as server:
        yield server


def downloads(trusted=None) -> Downloads:
    tls = ssl.create_default_context(cafile=trusted) if trusted else None
    settings = DownloadsSection(allow_private=True, timeout_seconds=5, attempts=2)
    return Downloads(settings=settings, clock=SystemClock(), entropy=SystemEntropy(), tls=tls)


async def test_a_file_comes_over_tls_from_a_host_we_trust(web, scratch, certificate):
    web.pages["/x"] = serves(CONTENT, cut_after=None)
    assert await downloads(certificate).fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_certificate_of_nobody_we_trust_or_of_another_host_is_refused(
    web, scratch, certificate, host
):
    web.pages["/x"] = serves(CONTENT)
    fetcher = downloads() if host == "127.0.0.1" else downloads(certificate)
    with pytest.raises(Rejected) as caught:
        await fetcher.fetch(web.url("/x", host=host), scratch / "got", sha256=DIGEST)
    assert caught.value.code is Code.CACHE_DOWNLOAD_FAILED
    assert "certificate" in caught.value.message
    assert web.asked == []


async def test_a_redirect_out_of_tls_is_refused(web, scratch, certificate):
    web.pages["/x"] = says("302 Found", Location="http://127.0.0.1:1/x")
    with pytest.raises(Rejected) as caught:
        await downloads(certificate).fetch(web.url("/x"), scratch / "got", sha256=DIGEST)
    assert caught.value.code is Code.ARTIFACT_REFUSED
