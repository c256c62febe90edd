"""HTTP over TLS: certificates from files and of the cluster's authority, replaced while the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from certificate_files import Key, PairFiles, new_rsa_key, pem_of, self_signed, shown
from cryptography import x509
from structlog.testing import capture_logs
from test_server import standby_api

from corral.controller.http.server.http_certificates import CertificateFiles, ClusterCertificates
from corral.controller.http.server.http_server import HttpServer
from corral.controller.http.server.served_certificate import ServedCertificate
from corral.domain.ids import ClusterId
from corral.errors import Code, Rejected
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey, new_key
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.stepped_clock import SteppedClock


@contextlib.asynccontextmanager
async def serving(served: ServedCertificate, *, hsts_seconds: int = 0) -> AsyncIterator[HttpServer]:
    server = HttpServer(
        standby_api(),
        host="127.0.0.1",
        port=0,
        ssl_context=served.context,
        hsts_seconds=hsts_seconds,
        stop_seconds=1,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def pair(data: pathlib.Path) -> PairFiles:
    return PairFiles(data)


def source_of(served: ServedCertificate, pair: PairFiles, seconds: float = 3600) -> CertificateFiles:
    return CertificateFiles(
        served, certificate=pair.certificate, key=pair.key, clock=SystemClock(), seconds=seconds
    )


@pytest.mark.parametrize(("old", "new"), [(new_key, new_key), (new_rsa_key, new_key), (new_key, new_rsa_key)])
async def test_new_files_are_served_to_new_connections_and_old_ones_go_on(
    pair: PairFiles, old: Callable[[], Key], new: Callable[[], Key]
) -> None:
    pair.write(old(), 1)
    served = ServedCertificate()
    source = source_of(served, pair)
    await source.open()
    async with serving(served) as server, httpx.AsyncClient(verify=False) as client:
        url = f"https://localhost:{server.address.port}/health"
        assert (await client.get(url)).status_code == 200
        pair.write(new(), 2)
        await source.look()
        assert (await client.get(url)).status_code == 200  # on the connection from before
        assert len(server.connections) == 1
        for most in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for name in ("localhost", None):
                assert (await shown(*server.address, most=most, name=name)).serial_number == 2


async def test_files_are_noticed_by_themselves(pair: PairFiles) -> None:
    pair.write(new_key(), 1)
    served = ServedCertificate()
    source = source_of(served, pair, seconds=0.02)
    await source.open()
    following = asyncio.create_task(source.follow())
    try:
        async with serving(served) as server, asyncio.timeout(15):
            pair.write(new_key(), 2)
            while (await shown(*server.address)).serial_number != 2:
                await asyncio.sleep(0.02)  # between two questions
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _no_certificate(pair: PairFiles) -> None:
    pair.put(pair.certificate, b"nothing\n")


def _other_key(pair: PairFiles) -> None:
    pair.put(pair.key, pem_of(new_key()))


def _with_password(pair: PairFiles) -> None:
    key = new_key()
    pair.put(pair.certificate, self_signed(key, 2))
    pair.put(pair.key, pem_of(key, b"secret"))


def _expired(pair: PairFiles) -> None:
    pair.write(new_key(), 2, days=-1, age_days=9)


def _gone(pair: PairFiles) -> None:
    pair.key.unlink()


def _directory(pair: PairFiles) -> None:
    pair.key.unlink()
    pair.key.mkdir()


def _endless(pair: PairFiles) -> None:
    pair.put(pair.certificate, b"x" * (1024 * 1024 + 1))


BROKEN = [_no_certificate, _other_key, _with_password, _expired, _gone, _directory, _endless]


@pytest.mark.parametrize("spoil", BROKEN)
async def test_a_pair_that_cannot_be_used_is_refused_once_and_the_old_one_stays(
    pair: PairFiles, spoil: Callable[[PairFiles], None]
) -> None:
    pair.write(new_key(), 1)
    served = ServedCertificate()
    source = source_of(served, pair)
    await source.open()
    with capture_logs() as logged:
        spoil(pair)
        for _ in range(4):
            await source.look()
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("http_certificate.refused", "warning")
    ]
    assert "secret" not in str(logged)
    async with serving(served) as server:
        assert (await shown(*server.address)).serial_number == 1
        if pair.key.is_dir():
            pair.key.rmdir()
        pair.write(new_key(), 3)
        await source.look()
        assert (await shown(*server.address)).serial_number == 3


async def test_a_pair_that_is_half_written_is_waited_for_without_a_warning(pair: PairFiles) -> None:
    pair.write(new_key(), 1)
    served = ServedCertificate()
    source = source_of(served, pair)
    await source.open()
    key = new_key()
    with capture_logs() as logged:
        pair.put(pair.certificate, self_signed(key, 2))
        await source.look()
        pair.put(pair.key, pem_of(key))
        await source.look()
    assert [each["event"] for each in logged] == ["http_certificate.replaced"]
    assert served.current is not None
    assert served.current.serial == "2"


@pytest.mark.parametrize("spoil", [_no_certificate, _other_key, _with_password, _gone, _directory])
async def test_a_controller_does_not_start_with_files_that_cannot_be_used(
    pair: PairFiles, spoil: Callable[[PairFiles], None]
) -> None:
    pair.write(new_key(), 1)
    spoil(pair)
    with pytest.raises(Rejected) as refused:
        await source_of(ServedCertificate(), pair).open()
    assert refused.value.code is Code.INVALID_CONFIG
    assert refused.value.field == "http.tls.certificate"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_versions_before_tls_1_2_are_refused(pair: PairFiles) -> None:
    pair.write(new_key(), 1)
    served = ServedCertificate()
    await source_of(served, pair).open()
    async with serving(served) as server:
        for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await shown(*server.address, most=old)
        assert (await shown(*server.address, most=ssl.TLSVersion.TLSv1_2)).serial_number == 1


async def test_without_a_certificate_every_handshake_is_refused_and_plain_http_is_cut(
    pair: PairFiles,
) -> None:
    served = ServedCertificate()
    async with serving(served) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown(*server.address)
        pair.write(new_key(), 1)
        await source_of(served, pair).open()
        assert (await shown(*server.address)).serial_number == 1
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 15)
        writer.close()


async def test_browsers_are_told_to_stay_with_tls_where_there_is_tls_alone(pair: PairFiles) -> None:
    pair.write(new_key(), 1)
    served = ServedCertificate()
    await source_of(served, pair).open()
    name = "strict-transport-security"
    for seconds in (0, 600):
        async with (
            serving(served, hsts_seconds=seconds) as server,
            httpx.AsyncClient(verify=False) as client,
        ):
            for path in ("/health", "/nowhere", "/api/v1/nodes"):
                answer = await client.get(f"https://localhost:{server.address.port}{path}")
                assert answer.headers.get_list(name) == ([f"max-age={seconds}"] if seconds else [])
    plain = HttpServer(standby_api(), host="127.0.0.1", port=0, hsts_seconds=600)
    await plain.start()
    async with httpx.AsyncClient() as client:
        assert name not in (await client.get(f"http://{plain.address}/health")).headers
    await plain.stop()


def authority_at(data: pathlib.Path, clock: SteppedClock) -> Authority:
    key = ClusterKey.create(data / "cluster.key", SystemEntropy())
    cluster = ClusterId("test")
    sealed = Authority.create(cluster=cluster, cluster_key=key, clock=clock, entropy=SystemEntropy())
    return Authority.open(sealed, cluster=cluster, cluster_key=key, clock=clock)


def hosts_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


async def test_certificates_of_the_cluster_are_renewed_before_they_end_and_when_names_come_up(
    data: pathlib.Path,
) -> None:
    clock, names = SteppedClock(), {"localhost", "127.0.0.1"}
    authority, served = authority_at(data, clock), ServedCertificate()
    published = data / "ca" / "authority.pem"
    source = ClusterCertificates(served, names=lambda: frozenset(names), published=published, clock=clock)
    await source.open()
    await source.look()
    assert served.current is None
    await source.use(authority, authority.certificate_pem)
    assert published.read_bytes() == authority.certificate_pem
    async with serving(served) as server:
        trusting = ssl.create_default_context(cafile=str(published))
        async with httpx.AsyncClient(verify=trusting) as client:
            for host in ("localhost", "127.0.0.1"):
                assert (await client.get(f"https://{host}:{server.address.port}/health")).status_code == 200
        first = await shown(*server.address)
        await source.look()
        assert await shown(*server.address) == first
        names.add("panel.example.org")
        await source.look()
        second = await shown(*server.address)
        assert hosts_of(second) == names
        names.remove("panel.example.org")  # an address that went may come back: no reason for another one
        clock.step(dt.timedelta(days=19).total_seconds())
        await source.look()
        assert await shown(*server.address) == second
        clock.step(dt.timedelta(days=2).total_seconds())
        await source.look()
        third = await shown(*server.address)
        assert third.not_valid_after_utc > second.not_valid_after_utc
        assert hosts_of(third) == names
