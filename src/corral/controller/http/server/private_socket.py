"""The API on a Unix socket that only this user can open: for commands that run on this host for a caller."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Final

from uvicorn.server import ServerState

from corral.controller.commands.command_process import CommandRunner
from corral.controller.http.messages.request import PRIVATE, AsgiApp, Receive, Scope, Send
from corral.controller.http.server.connection import BoundedConfig, HttpConnection
from corral.controller.http.server.open_connections import OpenConnections
from corral.system.http_config import HttpLimitsSection
from corral.system.threads import to_end
from corral.system.unix_sockets import listen_privately

_BACKLOG: Final = 64


@contextlib.asynccontextmanager
async def private_socket(
    app: AsgiApp, path: pathlib.Path, *, limits: HttpLimitsSection
) -> AsyncIterator[None]:
    """Serve the application there, until the context is left. Requests are marked as `PRIVATE`; WebSockets are not taken."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PRIVATE] = True
        await app(scope, receive, send)

    config = BoundedConfig(
        marked,
        connections=OpenConnections(limits),
        http=HttpConnection,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
    )
    config.load()
    state = ServerState()

    def connection() -> asyncio.Protocol:
        return HttpConnection(config=config, server_state=state, app_state={})

    listener = listen_privately(path, backlog=_BACKLOG)
    listener.setblocking(False)
    server = await asyncio.get_running_loop().create_unix_server(connection, sock=listener)
    try:
        yield
    finally:
        server.close()
        for each in list(state.connections):
            each.transport.abort()
        await server.wait_closed()
        path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def serve_commands(
    app: AsgiApp, runner: CommandRunner | None, limits: HttpLimitsSection
) -> AsyncIterator[None]:
    """The private socket of what runs commands, if anything does."""
    if runner is None:
        yield
        return
    await to_end(runner.clear)
    async with private_socket(app, runner.socket_path, limits=limits):
        yield
