"""HTTP server (uvicorn) inside an event loop that the process owns: no signal handlers, no lifespan, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Generator, Sequence
from typing import Final

import structlog
import uvicorn
from uvicorn.config import Config

from corral.controller.http.messages.request import AsgiApp
from corral.controller.http.server.connection import BoundedConfig, HttpConnection, SocketConnection
from corral.controller.http.server.forwarded_requests import ForwardedRequests
from corral.controller.http.server.open_connections import OpenConnections
from corral.errors import Bug, Code, Rejected
from corral.system.addresses import Address, Network
from corral.system.aio.tasks import Tasks, first_of, set_within
from corral.system.http_config import HttpLimitsSection

log = structlog.get_logger("corral.controller.http")

_STALLED_MS: Final = 60_000
_TICK_SECONDS: Final = 1.0
_BACKLOG: Final = 2048
_SOCKET_MESSAGE_BYTES: Final = 64 * 1024


class HttpServer:
    """Serves an application on one address. `start` returns when it listens, `stop` when nothing is left."""

    def __init__(
        self,
        api: AsgiApp,
        *,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
        hsts_seconds: int = 0,
        stop_seconds: int = 3,
        ping_seconds: float = 20.0,
        limits: HttpLimitsSection = HttpLimitsSection(),  # noqa: B008  # frozen
        proxies: Sequence[Network] = (),
    ) -> None:
        """`hsts_seconds`: told to browsers if there is TLS, unless it is 0. `proxies`: whose word about a client counts."""
        self._configured = Address(host, port)
        self._socket: socket.socket | None = None
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self._stop_seconds = stop_seconds
        self.connections = OpenConnections(limits, proxies=proxies)
        config = BoundedConfig(
            ForwardedRequests(api, proxies=proxies) if proxies else api,
            connections=self.connections,
            http=HttpConnection,
            loop="none",
            ws=SocketConnection,
            ws_max_size=_SOCKET_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # a window of memory for each client, and CPU without a need
            ws_ping_interval=ping_seconds,
            ws_ping_timeout=ping_seconds,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # see `ForwardedRequests`
            timeout_keep_alive=max(1, round(limits.idle_seconds)),
            timeout_graceful_shutdown=stop_seconds,
            backlog=_BACKLOG,
            ssl_context_factory=_factory(ssl_context),
            headers=_strict_transport(hsts_seconds) if ssl_context is not None else None,
        )
        self._server = _EmbeddedServer(config)

    @property
    def address(self) -> Address:
        """Where it listens; the port is the real one also when 0 was asked for."""
        if self._socket is None:
            raise Bug("the HTTP server has not been started")
        return Address(self._configured.host, self._socket.getsockname()[1])

    def buffered_bytes(self) -> int:
        """Bytes that were written and not yet taken by the kernel, over all connections."""
        return sum(
            connection.transport.get_write_buffer_size()
            for connection in self._server.server_state.connections
        )

    async def start(self) -> None:
        """Listen. PORT_IN_USE when another process does."""
        self._socket = _bound(self._configured)
        self._task = self._tasks.spawn(self._server.serve([self._socket]), name="http/serve", awaited=True)
        await first_of(self._task, self._server.listening, name="http/await-ready")
        if self._task.done():
            await self._task
            raise Bug("the HTTP server ended while it was starting")
        log.info("http_server.started", address=str(self.address))

    async def stop(self) -> None:
        """Finish what is being answered, within `stop_seconds`, then cut what is left. Idempotent.

        Close the term (`TermContext.close`) first: streams would otherwise use up all of that time.
        """
        if self._task is None:
            return
        self._server.end()
        await self._task
        self._task = None
        for connection in list(self._server.server_state.connections):
            # A peer that does not read would hold its buffer for as long as it likes.
            connection.transport.abort()


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without signal handlers and without control of the event loop."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it for sockets that are given, and with a deadline for handshakes of TLS."""
        config = self.config
        assert isinstance(config, BoundedConfig)
        deadline = config.connections.limits.head_seconds if config.ssl else None

        def connection() -> asyncio.Protocol:
            return HttpConnection(config=config, server_state=self.server_state, app_state={})

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                connection, sock=each, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=deadline
            )
            for each in sockets or ()
        ]
        self.started = True
        self.listening.set()

    async def main_loop(self) -> None:
        """Sets the date of answers every second, and ends at once when it has to: uvicorn looks ten
        times a second whether it should."""
        while not await self.on_tick(0):
            await set_within(self._ending, _TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Without uvicorn's pause when no connection is left to wait for."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for server in self.servers:
            await server.wait_closed()
        await self.lifespan.shutdown()


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: the kernel drops a peer that takes nothing for a minute.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Rejected(
            Code.PORT_IN_USE,
            f"cannot listen on {address}: {error.strerror}",
            hint="choose another address with --http",
            field="http.listen",
        ) from None
    listener.setblocking(False)
    return listener


def _strict_transport(seconds: int) -> list[tuple[str, str]]:
    return [("strict-transport-security", f"max-age={seconds}")] if seconds else []


def _factory(
    context: ssl.SSLContext | None,
) -> Callable[[Config, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None:
    if context is None:
        return None
    given = context
    return lambda _config, _default: given
