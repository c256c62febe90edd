"""What all probes share: an attempt either succeeds or says what it saw instead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

_LIMIT: Final = 16 * 1024


class NotYet(Exception):
    """The attempt did not succeed; the text says what was seen, for people."""


@contextlib.asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to what listens there. It is cut and not closed politely: nobody waits for the other side."""
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=_LIMIT)
    except OSError as error:
        raise NotYet(f"no connection to port {port} ({(error.strerror or str(error)).lower()})") from error
    try:
        # A port of the range for outgoing connections may be given to this very socket, which then talks
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


def shown(data: bytes | str, limit: int = 120) -> str:
    """Words of a workload within words of ours: short, and with nothing a terminal would obey."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return repr(text[:limit]) + ("…" if len(text) > limit else "")
