"""The server: it starts when its port is free, serves TLS, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import socket
import ssl

import httpx
import pytest
from certificate_files import self_signed
from http_rig import DEADLINE, Rig

from corral.controller.http.pipeline.api import Api
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.routes import ROUTES
from corral.controller.http.server.http_server import HttpServer
from corral.errors import Code, Rejected
from corral.pki.keys import key_pem, new_key
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.system.http_config import HttpLimitsSection
from corral.testing.cluster import RecordedLog


def standby_api() -> Api:
    log = RecordedLog()
    setting = ProcessContext(
        clock=SystemClock(), entropy=SystemEntropy(), log_ring=log.ring, set_log_level=log.set_level
    )
    return Api(setting=setting, gate=lambda: None, routes=ROUTES)


async def test_a_port_in_use_is_refused_with_the_address(rig: Rig) -> None:
    host, port = rig.server.address
    with pytest.raises(Rejected) as refused:
        await HttpServer(standby_api(), host=host, port=port).start()
    assert refused.value.code is Code.PORT_IN_USE
    assert f"{host}:{port}" in str(refused.value)


async def test_the_server_leaves_signals_alone_and_its_port_is_free_after_the_end() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = HttpServer(standby_api(), host="127.0.0.1", port=0)
    await server.start()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    address = server.address
    await server.stop()
    await server.stop()
    with socket.socket() as probe:
        probe.bind(tuple(address))


def tls_at(data: pathlib.Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server on localhost, and of a client that trusts it."""
    key, certificate = new_key(), data / "server.pem"
    signed = self_signed(key, 1)
    certificate.write_bytes(key_pem(key) + signed)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    return serving, ssl.create_default_context(cadata=signed.decode())


async def test_the_api_is_served_over_tls(data: pathlib.Path) -> None:
    serving, trusting = tls_at(data)
    server = HttpServer(standby_api(), host="127.0.0.1", port=0, ssl_context=serving)
    await server.start()
    async with httpx.AsyncClient(verify=trusting) as client:
        answer = await client.get(f"https://localhost:{server.address.port}/health")
    assert answer.json() == {"status": "ok"}
    await server.stop()


@pytest.mark.trap("T64")
async def test_a_handshake_of_tls_that_is_not_made_is_cut(data: pathlib.Path) -> None:
    serving, trusting = tls_at(data)
    limits = HttpLimitsSection(head_seconds=0.2)
    server = HttpServer(standby_api(), host="127.0.0.1", port=0, ssl_context=serving, limits=limits)
    await server.start()
    try:
        for said in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(said)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), DEADLINE)
            writer.close()
        reader, writer = await asyncio.open_connection("localhost", server.address.port, ssl=trusting)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), DEADLINE)  # the handshake was made, a head does not come
        writer.close()
    finally:
        await server.stop()


async def test_a_request_that_is_being_answered_is_finished_at_the_end(rig: Rig) -> None:
    rig.store.commits.hold()
    async with rig.client() as client:
        asking = asyncio.create_task(client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"}))
        while not rig.writer.pending:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(rig.server.stop())
        await asyncio.sleep(0)
        rig.store.commits.let_go()
        answer = await asking
        await stopping
    assert answer.status_code == 201
