"""A TCP proxy that fails on request: it cuts, delays, throttles, stalls, and heals."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Self

from corral.system.aio.tasks import set_within

_BLOCK: Final = 16 * 1024


class FaultProxy:
    """A proxy between two ends that seem to be connected directly. Use as `async with`."""

    def __init__(self, target: str = "127.0.0.1:0") -> None:
        self.retarget(target)
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._requests_flow = asyncio.Event()
        self._answers_flow = asyncio.Event()
        self._healed = asyncio.Event()
        self._refusing = False
        self._delay = 0.0
        self._bytes_per_second = [0.0, 0.0]  # of answers, of requests
        self._line_free_at = [0.0, 0.0]
        self.connections = 0
        self.forwarded_bytes = 0
        self.heal()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_BLOCK)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut(refuse=True)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def retarget(self, target: str) -> None:
        """New connections go there: to `host:port`, or to the path of a socket."""
        self._target = target

    async def cut(self, *, refuse: bool = True) -> None:
        """Reset every connection; with `refuse` also those that come, until `heal`."""
        self._refusing = refuse
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def stall(self, *, answers_only: bool = False) -> None:
        """Connections stay open and nothing passes, not even their end: the peer looks alive and is not. With
        `answers_only` it still receives requests, but its answers are held back."""
        self._answers_flow.clear()
        if not answers_only:
            self._requests_flow.clear()

    def delay(self, seconds: float) -> None:
        """Every block takes this much longer."""
        self._delay = seconds

    def throttle(self, bytes_per_second: float, *, requests: bool = False) -> None:
        """One rate for all connections together, towards the client or with `requests` towards the target; 0
        lifts it."""
        self._bytes_per_second[requests] = bytes_per_second

    def heal(self) -> None:
        """Remove every fault and release what was held back; connections that were cut stay cut."""
        self._refusing = False
        self._delay = 0.0
        self._bytes_per_second = [0.0, 0.0]
        self._line_free_at = [0.0, 0.0]
        self._requests_flow.set()
        self._answers_flow.set()
        self._healed.set()
        self._healed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a reset is what this proxy makes
        finally:
            self._pumps.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await self._connect()
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, upstream_writer, answers=False), name="proxy/up")
                pumps.create_task(self._pump(upstream_reader, writer, answers=True), name="proxy/down")
        except* OSError:
            pass
        finally:
            upstream_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.startswith("/"):
            return await asyncio.open_unix_connection(self._target, limit=_BLOCK)
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port), limit=_BLOCK)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        flowing = self._answers_flow if answers else self._requests_flow
        try:
            while block := await reader.read(_BLOCK):
                await flowing.wait()
                if self._delay:
                    await self._pause(self._delay)
                if self._bytes_per_second[not answers]:
                    await self._wait_for_line(len(block), requests=not answers)
                writer.write(block)
                await writer.drain()
                self.forwarded_bytes += len(block)
        except OSError:
            await flowing.wait()
            raise
        await flowing.wait()  # the end of a connection is held back like everything else
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()

    async def _wait_for_line(self, size: int, *, requests: bool) -> None:
        """All connections share one rate: each block waits for those before it."""
        now = asyncio.get_running_loop().time()
        free_at = max(self._line_free_at[requests], now) + size / self._bytes_per_second[requests]
        self._line_free_at[requests] = free_at
        await self._pause(free_at - now)

    async def _pause(self, seconds: float) -> None:
        """So long, or until everything is healed."""
        await set_within(self._healed, seconds)
