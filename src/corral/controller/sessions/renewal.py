"""A node asks for a new certificate over its stream, and gets it or hears why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from corral.domain.ids import SessionId
from corral.errors import CorralError
from corral.system.aio.tasks import Tasks
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import CertificateIssued

Renew = Callable[[bytes], Awaitable[CertificateIssued]]


class Reply(Protocol):
    """The way back to the node that asked."""

    def send(self, message: ControllerMessage) -> bool: ...

    def report(self, error: CorralError, *, context: str) -> None: ...


class Renewal:
    """Of one session, one at a time: who asks again meanwhile waits for the same answer."""

    def __init__(self, session_id: SessionId, *, renew: Renew, reply: Reply, tasks: Tasks) -> None:
        """`tasks` end with the session."""
        self._session_id = session_id
        self._renew = renew
        self._reply = reply
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None

    def requested(self, csr_pem: bytes) -> None:
        if self._task is None or self._task.done():
            name = f"session/renew/{self._session_id}"
            self._task = self._tasks.spawn(self._answer(csr_pem), name=name)

    async def _answer(self, csr_pem: bytes) -> None:
        try:
            issued = await self._renew(csr_pem)
        except CorralError as error:
            self._reply.report(error, context="certificate renewal")
            return
        self._reply.send(ControllerMessage(certificate_issued=issued))
