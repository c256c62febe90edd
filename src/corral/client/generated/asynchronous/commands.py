"""Methods of `commands`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import UNSET, UnsetType

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import Request, waiting


class AsyncCommands:
    """Operations of `/api/v1/commands`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> models.CommandPage:
        """List console commands of modules.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/commands`, permission `modules.read`.
        """
        return await self._calls.call(
            Request[models.CommandPage](
                "GET", "/api/v1/commands", models.CommandPage, query={"limit": limit, "cursor": cursor}
            )
        )

    def all(self, *, limit: int | None = None) -> AsyncIterator[models.Command]:
        """List console commands of modules: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/commands`, permission `modules.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, cursor=position))

    async def execute(
        self, *, command: str, timeout_seconds: int | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> models.CommandOutput:
        """Run a command of the command line (commands.execute), or of a module (modules.use).

        - `command`: The words of the command, as in a shell: `instance list -o json`.
        - `timeout_seconds`: A command of the command line is ended after so many seconds. Default: `30`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/commands/execute`, permission `self.read`.
        """
        return await self._calls.call(
            Request[models.CommandOutput](
                "POST",
                "/api/v1/commands/execute",
                models.CommandOutput,
                json={"command": command, "timeout_seconds": timeout_seconds},
                keyed=True,
                key=idempotency_key,
                waits=waiting(True, timeout_seconds, 30),
            )
        )
