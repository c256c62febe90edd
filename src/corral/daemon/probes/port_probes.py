"""Probes of ports: a connection is accepted, or HTTP is answered. Also what all probes share: an attempt either
succeeds or reports what it found instead."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Callable
from typing import Final

from corral.domain.groups.probes import ProbeSpec

Mask = Callable[[str], str]
"""Removes the secrets of a run from a text."""
_LIMIT: Final = 16 * 1024
LOCAL: Final = "127.0.0.1"
_LOCAL_6: Final = "::1"
_BOTH: Final = {LOCAL: (LOCAL, _LOCAL_6), _LOCAL_6: (_LOCAL_6, LOCAL)}
"""A program that listens on `localhost` has one of the two, at its own choice."""


class NotYet(Exception):
    """The attempt did not succeed; the text is what was seen, for people. `output`: the output of the workload that ends
    the text, complete. It may have secrets, so it becomes text only in `masked_text`."""

    def __init__(self, text: str, *, output: bytes | str = b"", last: bool = False) -> None:
        super().__init__(text)
        self._output = output
        self._last = last

    def masked_text(self, mask: Mask) -> str:
        return f"{self} {shown(self._output, mask=mask, last=self._last)}" if self._output else str(self)


@contextlib.asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to this port. It is aborted, not closed gracefully: there is no wait for the other side."""
    reader, writer = await _open(host, port)
    try:
        # A port of the range for outgoing connections may be given to this very socket, which then connects
        # to itself.
        if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
            raise NotYet(f"nobody listens on port {port}")
        yield reader, writer
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        raise NotYet(f"port {port} closed the connection without an answer") from error
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _open(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    errors: list[OSError] = []
    for address in _BOTH.get(host, (host,)):
        try:
            return await asyncio.open_connection(address, port, limit=_LIMIT)
        except OSError as error:
            errors.append(error)
    first = errors[0]
    raise NotYet(f"no connection to port {port} ({(first.strerror or str(first)).lower()})") from first


def shown(data: bytes | str, limit: int = 120, *, mask: Mask, last: bool = False) -> str:
    """Output of a workload for a message of ours: without its secrets, short, and without control characters for a
    terminal. Cut only after masking, because half a secret is not recognised. `last`: its end is shown."""
    text = mask(data.decode("utf-8", "replace") if isinstance(data, bytes) else data)
    if last:
        return ("…" if len(text) > limit else "") + repr(text[-limit:])
    return repr(text[:limit]) + ("…" if len(text) > limit else "")


_SAFE: Final = "/?&=%:@!$'()*+,;~-._[]"
_MAX_HEADERS: Final = 100
_MAX_INFORMATIONAL: Final = 5


async def try_tcp(host: str, port: int) -> None:
    async with connected(host, port):
        pass


async def try_http(spec: ProbeSpec, host: str, port: int) -> None:
    """One GET. Only the status is read: no redirect is followed and no body read."""
    path = urllib.parse.quote(spec.path if spec.path.startswith("/") else f"/{spec.path}", safe=_SAFE)
    name = f"[{host}]" if ":" in host else host
    request = f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nUser-Agent: corral\r\nConnection: close\r\n\r\n"
    async with connected(host, port) as (reader, writer):
        writer.write(request.encode())
        try:
            for _ in range(_MAX_INFORMATIONAL):
                status = _status(await reader.readline())
                if status >= 200:
                    break
                for _ in range(_MAX_HEADERS):
                    if not (await reader.readline()).strip():
                        break
        except ValueError:
            raise NotYet(f"port {port} answers something that is not HTTP: a line without an end") from None
    if not (status in spec.statuses if spec.statuses else 200 <= status < 400):
        expected = ", ".join(map(str, spec.statuses)) or "200 to 399"
        raise NotYet(f"GET {path} answered {status}; wanted: {expected}")


def _status(line: bytes) -> int:
    if not line:
        raise NotYet("the connection was closed without an answer")
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != 3:
        raise NotYet("the answer is not HTTP:", output=line.strip())
    return int(code)
