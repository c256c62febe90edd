"""Template session: requests and transfers of the cache over one connection to a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.published_controller import TEMPLATE_SECONDS
from corral.errors import Code, Retryable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.aio.tasks import first_of
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.plan_pb2 import TemplateData, TemplateRequest, TemplateUnavailable, TemplateUpToDate

T = TypeVar("T")
TemplateAnswer = TemplateData | TemplateUpToDate | TemplateUnavailable

LINK_ERROR_CODES: Final = frozenset(
    {
        Code.UNREACHABLE,
        Code.TRANSFER_INTERRUPTED,
        Code.TIMEOUT,
        Code.RATE_LIMITED,
        Code.CONFLICT,  # from a session that was replaced by the next one
        Code.STALE_EPOCH,
    }
)
"""After these a transfer is continued."""
TRANSFERS: Final = 3
"""Transfers at a time; the controller allows a node a few more, for consoles and other things."""


class TemplateSession:
    """Requests for templates and the transfers that follow, until the connection ends."""

    def __init__(self, connection: LinkConnection, *, answer_seconds: float = TEMPLATE_SECONDS) -> None:
        self._connection = connection
        self._answer_seconds = answer_seconds
        self._turns = KeyedLocks[str]()
        self._asked: dict[str, tuple[str, asyncio.Future[TemplateAnswer]]] = {}
        self._transfers = asyncio.Semaphore(TRANSFERS)
        self._users = 0
        self._channel: DataChannel | None = None
        self._over = asyncio.Event()

    @property
    def by_digest(self) -> bool:
        """Whether the controller knows versions by hash, manifests and bundles; else it sends whole ones."""
        return self._connection.supports.templates

    @property
    def bulk(self) -> bool:
        return self._connection.supports.bulk

    async def ask(self, name: str, *, known: str, expected: str) -> TemplateAnswer:
        """Request a template and wait for the answer, one request for a name at a time: the answers of a published peer
        name nothing else. TIMEOUT or UNREACHABLE when none comes."""
        async with self._turns.hold(name):
            if self._over.is_set():
                raise self._lost()
            answer: asyncio.Future[TemplateAnswer] = asyncio.get_running_loop().create_future()
            self._asked[name] = (expected, answer)
            try:
                request = TemplateRequest(template_name=name, known_hash=known, wanted_hash=expected)
                if not self._connection.send(DaemonMessage(template_request=request)):
                    raise self._lost()
                async with asyncio.timeout(self._answer_seconds):
                    return await answer
            except TimeoutError:
                raise Retryable(
                    Code.TIMEOUT,
                    f"the controller did not answer about template '{name}' within {self._answer_seconds:g} s",
                ) from None
            finally:
                del self._asked[name]

    def answered(self, received: TemplateAnswer) -> None:
        """Handle an answer. One without a waiting request, or for a request that was given up (a peer that knows hashes
        names the requested one), is ignored."""
        expected, answer = self._asked.get(received.template_name, ("", None))
        if answer is None or answer.done():
            return
        if self.by_digest and expected and received.hash and received.hash != expected:
            return
        answer.set_result(received)

    async def transfer(self, work: Callable[[DataChannel], Awaitable[T]], *, name: str) -> T:
        """Do this over the data channel, a few at a time. UNREACHABLE when the connection ends first, and then the work
        is cancelled."""
        async with self._transfers:
            if self._over.is_set():
                raise self._lost()
            self._users += 1
            try:
                moving = _run(work, self._data())
                moved, *_ = await first_of(moving, self._over, name=f"cache/transfer/{name}")
                if moved is None:
                    raise self._lost()
                return moved.result()
            finally:
                self._users -= 1
                await self._hang_up()

    def close(self) -> None:
        """The connection has ended: waiting requests fail, transfers end."""
        self._over.set()
        for _, answer in self._asked.values():
            if not answer.done():
                answer.set_exception(self._lost())

    def _data(self) -> DataChannel:
        if self._channel is None:
            self._channel = DataChannel(self._connection)
        return self._channel

    async def _hang_up(self) -> None:
        """Close the channel, which is open as long as there are transfers."""
        if not self._users and self._channel is not None:
            channel, self._channel = self._channel, None
            async with channel:
                pass

    def _lost(self) -> Retryable:
        return Retryable(Code.UNREACHABLE, f"the link to {self._connection.address} was lost")


async def _run(work: Callable[[DataChannel], Awaitable[T]], channel: DataChannel) -> T:
    return await work(channel)


class TemplateSessions:
    """The current session, or the next one, for callers that can wait a moment."""

    def __init__(self, *, patience: float, answer_seconds: float = TEMPLATE_SECONDS) -> None:
        self._patience = patience
        self._answer_seconds = answer_seconds
        self._current: TemplateSession | None = None
        self._there = asyncio.Event()

    def begin(self, connection: LinkConnection) -> None:
        self.end()
        self._current = TemplateSession(connection, answer_seconds=self._answer_seconds)
        self._there.set()

    def end(self) -> None:
        self._there.clear()
        if self._current is not None:
            session, self._current = self._current, None
            session.close()

    def answered(self, received: TemplateAnswer) -> None:
        if self._current is not None:
            self._current.answered(received)

    async def current(self) -> TemplateSession:
        """The session; TEMPLATE_UNAVAILABLE when there is no controller for longer than a change of certificates or a
        short interruption takes."""
        try:
            async with asyncio.timeout(self._patience):
                while self._current is None:
                    await self._there.wait()
        except TimeoutError:
            raise Retryable(
                Code.TEMPLATE_UNAVAILABLE,
                "there is no controller to fetch from",
                hint="it is tried again when the link is back",
                retry_after=5.0,
            ) from None
        return self._current
