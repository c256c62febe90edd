"""Pre-warm orders: contents fetched before they are needed, each item independently."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

import structlog

from corral.daemon.link.link import Reply
from corral.domain.groups.plans import PlanArtifact
from corral.domain.urls import shown_url
from corral.errors import Bug, Code, CorralError, Retryable
from corral.system.aio.tasks import Tasks
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport
from corral.wire.v1.plan_pb2 import CacheFailure, CacheStatus, PreWarmCache, TemplateRef

AT_ONCE: Final = 2
WAITING: Final = 32
TURN_SECONDS: Final = 5.0
"""What takes longer leaves its place to the next: a slow server must not hold up the downloads of others."""
LONGEST_SECONDS: Final = 600.0
"""For one download: the answer to its order waits for it."""
_log = structlog.get_logger("corral.daemon.cache")


class Warmable(Protocol):
    """The part of the cache that an order needs."""

    async def warm_template(self, name: str, hash: str) -> None: ...

    async def warm_artifact(self, artifact: PlanArtifact) -> None: ...

    def status(self, request_id: str = "", failures: list[CacheFailure] | None = None) -> CacheStatus: ...


class PrewarmOrders:
    """Executes PreWarmCache. Each order is answered with a CacheStatus when all of it is fetched or has failed; one
    failure stops nothing else."""

    def __init__(
        self, cache: Warmable, *, turn: float = TURN_SECONDS, longest: float = LONGEST_SECONDS
    ) -> None:
        self._cache = cache
        self._turn = turn
        self._longest = longest
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks = Tasks()

    def begin(self, reply: Reply, order: PreWarmCache) -> None:
        """Begin an order; never blocks."""
        if len(self._tasks) >= WAITING:
            failure = CacheFailure(
                subject="prewarm",
                error_code=Code.RATE_LIMITED.name,
                error_message=f"{WAITING} orders to warm the cache are under way already",
            )
            self._answer(reply, order, [failure])
            return
        self._tasks.spawn(self._run(reply, order), name=f"cache/prewarm/{order.request_id}", keeps_ids=True)

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self, reply: Reply, order: PreWarmCache) -> None:
        results = await asyncio.gather(
            *(self._attempt(subject, work) for subject, work in self._items(order))
        )
        self._answer(reply, order, [failure for failure in results if failure is not None])

    def _items(self, order: PreWarmCache) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        def template(ref: TemplateRef) -> Callable[[], Awaitable[None]]:
            return lambda: self._cache.warm_template(ref.name, ref.hash)

        def artifact(planned: PlanArtifact) -> Callable[[], Awaitable[None]]:
            return lambda: self._download(planned)

        for ref in order.templates:
            yield f"template/{ref.name}", template(ref)
        for entry in order.entries:
            planned = PlanArtifact(
                platform=entry.platform,
                version=entry.platform_version,
                file=entry.jar_file,
                url=entry.download_url,
                sha256=entry.sha256,
            )
            yield f"artifact/{entry.platform}/{entry.platform_version}", artifact(planned)

    async def _download(self, artifact: PlanArtifact) -> None:
        try:
            async with asyncio.timeout(self._longest if artifact.url else None):
                await self._cache.warm_artifact(artifact)
        except TimeoutError:
            raise Retryable(
                Code.CACHE_DOWNLOAD_FAILED,
                f"{shown_url(artifact.url)} was not downloaded within {self._longest:g} s",
                hint="what has arrived is kept while there is room: the next start that needs it goes on from there",
            ) from None

    async def _attempt(self, subject: str, work: Callable[[], Awaitable[None]]) -> CacheFailure | None:
        try:
            await self._in_turn(work)
        except CorralError as error:
            failure = error
        except Exception as error:
            _log.error("prewarm.failed", subject=subject, exc_info=error)
            failure = Bug(f"{subject} cannot be fetched: {error}")
        else:
            return None
        _log.warning("prewarm.failed", subject=subject, code=failure.code.name, reason=str(failure))
        return CacheFailure(subject=subject, error_code=failure.code.name, error_message=str(failure))

    async def _in_turn(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._turns.acquire()
        place = contextlib.ExitStack()
        place.callback(self._turns.release)
        timer = asyncio.get_running_loop().call_later(self._turn, place.close)
        try:
            await work()
        finally:
            timer.cancel()
            place.close()

    def _answer(self, reply: Reply, order: PreWarmCache, failures: list[CacheFailure]) -> None:
        reply(DaemonMessage(cache_status=self._cache.status(order.request_id, failures)))
        if order.request_id:
            return
        for failure in failures:  # a published peer reads nothing but this
            report = ErrorReport(
                error_code=Code.CACHE_DOWNLOAD_FAILED.name,
                error_message=failure.error_message,
                context=failure.subject,
            )
            reply(DaemonMessage(error_report=report))
