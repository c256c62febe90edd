"""A reverse proxy with TLS, as operators have one before a controller: it adds the address of its peer to `X-Forwarded-For`
and sets `X-Forwarded-Proto`. One request for a connection."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator

from certificate_files import PairFiles

from corral.pki.keys import new_key
from corral.system.aio.tasks import Tasks


class TlsProxy:
    """Serves `https://localhost:PORT`; requests go to `target`, a HOST:PORT."""

    def __init__(self, files: PairFiles, port: int) -> None:
        self.certificate = files.certificate
        self.url = f"https://localhost:{port}"
        self.target = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, asyncio.IncompleteReadError):
            stack.callback(writer.close)
            head = await reader.readuntil(b"\r\n\r\n")
            host, _, port = self.target.partition(":")
            upstream, sent = await asyncio.open_connection(host, int(port))
            stack.callback(sent.transport.abort)
            peer: str = writer.get_extra_info("peername")[0]
            sent.write(forwarded(head, peer))
            async with Tasks() as tasks:
                tasks.spawn(_copy(reader, sent), name="testing/proxy-up")
                await _copy(upstream, writer)


def forwarded(head: bytes, peer: str) -> bytes:
    """The head as it is passed on."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    upgrade = any(name == "upgrade" for name, _ in fields)
    chain = [value for name, value in fields if name == "x-forwarded-for"]
    dropped = {"x-forwarded-for", "x-forwarded-proto", *(() if upgrade else ("connection",))}
    kept = [f"{name}: {value}" for name, value in fields if name not in dropped]
    own = [f"x-forwarded-for: {', '.join([*chain, peer])}", "x-forwarded-proto: https"]
    closing = [] if upgrade else ["connection: close"]
    return ("\r\n".join([first, *kept, *own, *closing]) + "\r\n\r\n").encode("latin-1")


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await source.read(65536):
            sink.write(part)
            await sink.drain()


@contextlib.asynccontextmanager
async def tls_proxy(directory: pathlib.Path) -> AsyncIterator[TlsProxy]:
    directory.mkdir(exist_ok=True)
    files = PairFiles(directory)
    files.write(new_key(), 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    made: list[TlsProxy] = []
    async with Tasks() as tasks:

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.spawn(made[0].serve(reader, writer), name="testing/proxy")

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        made.append(TlsProxy(files, server.sockets[0].getsockname()[1]))
        try:
            yield made[0]
        finally:
            server.close()
