"""The asyncio client."""

from __future__ import annotations

import os
from typing import Self

from corral.client.addresses import checked_address, checked_token
from corral.client.answers import AnswerInfo
from corral.client.async_calls import AsyncCalls
from corral.client.async_transport import AsyncTransport
from corral.client.generated.asynchronous import AsyncResources
from corral.client.retries import TIMEOUT_SECONDS, Retry
from corral.client.trust import trusting_context


class AsyncClient(AsyncResources):
    """Corral's API, as one caller sees it. For one event loop. Close it, or use `async with`.

    ```python
    async with AsyncClient("https://controller:8480", token=token) as corral:
        await corral.groups.scale("lobby", count=4)
    ```
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retry: Retry = Retry(),  # noqa: B008 - it cannot be changed
    ) -> None:
        """`token`: of a user, or of an instance for `workload`; `ca_file`: certificates to trust in place of those of the
        system; `timeout`: seconds that an answer may take, beside those that it was asked to wait. Nothing is sent yet."""
        address = checked_address(url)
        context = (
            trusting_context(None if ca_file is None else os.fspath(ca_file)) if address.secure else None
        )
        transport = AsyncTransport(address, token=checked_token(token), context=context)
        super().__init__(AsyncCalls(transport, timeout=timeout, retry=retry))
        self.url = address.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    @property
    def last_answer(self) -> AnswerInfo | None:
        """The head of the last answer in this task: cursor, ETag, request id."""
        return self._calls.last_answer

    async def close(self) -> None:
        """End all connections, those of downloads and streams included."""
        await self._calls.transport.close()
