"""HTTP/1.1 exchange as a client: one request and its answer, over a connection of its own, to addresses that the caller
has resolved. Redirects are not followed, and nothing is unpacked."""

from __future__ import annotations

import asyncio
import contextlib
import http
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Final

import httptools
import msgspec

from corral.version import VERSION

BLOCK: Final = 64 * 1024
MAX_HEAD: Final = 64 * 1024


class HttpFault(Exception):
    """Why there is no answer, or no more of it. Whose fault it is, and its code, is the caller's to say."""

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        super().__init__(why)
        self.retryable = retryable
        """Whether another attempt may succeed."""


class OutwardRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose parts are checked: no line of it holds a control character."""

    scheme: str
    host: str
    port: int
    host_header: str
    path: str
    """With its query."""
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def encoded(self) -> bytes:
        lines = {
            "Host": self.host_header,
            "User-Agent": f"corral/{VERSION}",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Length": str(len(self.body))} if self.method != "GET" else {}),
            **self.headers,
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{text}\r\n".encode("latin-1") + self.body


class HttpAnswer:
    """The server's answer. `head` first, then `blocks`; no more than a few blocks are read ahead of the consumer."""

    def __init__(self, reader: asyncio.StreamReader, *, silence: float) -> None:
        self._reader = reader
        self._silence = silence
        self._parser = httptools.HttpResponseParser(self)
        self._begun = False
        self._ended = False
        self._body: list[bytes] = []
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def phrase(self) -> str:
        try:
            return f"{self.status} {http.HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def content_length(self) -> int | None:
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    async def head(self) -> None:
        """Read until the body begins. The caller has a deadline."""
        taken = 0
        while not self._begun:
            block = await self._reader.read(BLOCK)
            if not block:
                raise HttpFault("the server hung up before it answered")
            taken += len(block)
            self._feed(block)
            if taken > MAX_HEAD and not self._begun:
                raise HttpFault("the answer's head has no end", retryable=False)

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        """The body; a block is empty when what arrived was none of it, so that the consumer sees time pass. HttpFault when
        the server is silent or closes the connection early."""
        while True:
            taken, self._body = b"".join(self._body), []
            yield taken
            if self._ended:
                return
            try:
                async with asyncio.timeout(self._silence):
                    block = await self._reader.read(BLOCK)
            except TimeoutError:
                raise HttpFault(f"the server has been silent for {self._silence:g} s") from None
            except OSError as error:
                raise HttpFault(f"the connection broke: {error.strerror or error}") from None
            if block:
                self._feed(block)
            elif self.content_length is not None or "transfer-encoding" in self.headers:
                raise HttpFault("the server hung up in the middle")
            else:
                return  # without a length the end of the stream is the end of the body

    def _feed(self, block: bytes) -> None:
        try:
            self._parser.feed_data(block)
        except httptools.HttpParserError as error:
            raise HttpFault(f"this is no HTTP answer: {error}") from None

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if not self._begun:  # ignore what follows the answer
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._begun:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if self._begun:
            return
        self.status = self._parser.get_status_code()
        self._begun = self.status >= 200  # lower ones only announce the answer

    def on_body(self, body: bytes) -> None:
        if self._begun and not self._ended:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._ended = self._begun


@contextlib.asynccontextmanager
async def http_exchange(
    request: OutwardRequest, addresses: Sequence[str], *, timeout: float, tls: ssl.SSLContext
) -> AsyncIterator[HttpAnswer]:
    """Send the request and read the head of the answer, within the timeout; the caller reads the body. HttpFault."""
    writer: asyncio.StreamWriter | None = None
    try:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await _connect(request, addresses, tls, timeout=timeout)
                writer.write(request.encoded())
                answer = HttpAnswer(reader, silence=timeout)
                await answer.head()
        except TimeoutError:
            raise HttpFault(f"no answer within {timeout:g} s") from None
        except ssl.SSLCertVerificationError as error:
            why = f"the server's certificate is not trusted: {error.verify_message}"
            raise HttpFault(why, retryable=False) from None
        except OSError as error:
            raise HttpFault(error.strerror or str(error)) from None
        yield answer
    finally:
        if writer is not None:
            writer.transport.abort()


async def _connect(
    request: OutwardRequest, addresses: Sequence[str], tls: ssl.SSLContext, *, timeout: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers; each but the last has its share of the time, because an address of an
    unavailable network (IPv6, often) may refuse, or not answer at all. The certificate has to be the host's, not the
    address's."""
    secure = tls if request.scheme == "https" else None
    name = request.host if secure is not None else None
    for address in addresses[:-1]:
        try:
            async with asyncio.timeout(timeout / len(addresses)):
                return await asyncio.open_connection(
                    address, request.port, limit=BLOCK, ssl=secure, server_hostname=name
                )
        except ssl.SSLCertVerificationError:
            raise
        except OSError:  # which a TimeoutError is, too
            continue
    return await asyncio.open_connection(
        addresses[-1], request.port, limit=BLOCK, ssl=secure, server_hostname=name
    )
