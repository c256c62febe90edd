"""The client that blocks."""

from __future__ import annotations

import os
from typing import Self

from corral.client.addresses import checked_address, checked_token
from corral.client.answers import AnswerInfo
from corral.client.generated.sync import SyncResources
from corral.client.retries import TIMEOUT_SECONDS, Retry
from corral.client.sync_calls import SyncCalls
from corral.client.sync_transport import SyncTransport
from corral.client.trust import trusting_context


class Client(SyncResources):
    """Corral's API, as one caller sees it. May be used by several threads. Close it, or use `with`.

    ```python
    with Client("https://controller:8480", token=token) as corral:
        corral.groups.scale("lobby", count=4)
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
        transport = SyncTransport(address, token=checked_token(token), context=context)
        super().__init__(SyncCalls(transport, timeout=timeout, retry=retry))
        self.url = address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    @property
    def last_answer(self) -> AnswerInfo | None:
        """The head of the last answer in this thread: cursor, ETag, request id."""
        return self._calls.last_answer

    def close(self) -> None:
        """End the kept connections. Downloads and streams that are open stay so."""
        self._calls.transport.close()
