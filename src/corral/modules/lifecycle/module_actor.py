"""Actor of a module: one task and one mailbox, so its operations run one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import structlog

from corral.domain.modules.records import PackageRecord
from corral.errors import Code, CorralError, Retryable
from corral.modules.lifecycle.engine_deps import EngineDeps
from corral.modules.lifecycle.module_lifecycle import ModuleLifecycle
from corral.system import log_context
from corral.system.aio.tasks import Tasks

T = TypeVar("T")


class _ActorJob(NamedTuple):
    do: Callable[[], Awaitable[Any]]
    answer: asyncio.Future[Any] | None
    ids: Mapping[str, str]
    """Ids of the request that queued the job, for log records."""


_log = structlog.get_logger("corral.modules.lifecycle")


class ModuleActor:
    """Runs jobs in order. A job that was begun is finished, also when its caller is gone.

    A nudge is a job that converges the module. Several waiting nudges are one. When the store refuses a step,
    the actor nudges itself again after a while.
    """

    def __init__(self, id: str, deps: EngineDeps) -> None:
        self.id = id
        self.life = ModuleLifecycle(id, deps, self.nudge)
        self._deps = deps
        self._jobs: asyncio.Queue[_ActorJob] = asyncio.Queue()
        self._nudged = False
        self._working = False
        self._retry_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._tasks = Tasks()
        self._tasks.spawn(self._run(), name=f"modules/actor/{id}")

    def nudge(self) -> None:
        """Queue a convergence: something may be due."""
        if not self._nudged and not self._closed:
            self._nudged = True
            self._jobs.put_nowait(_ActorJob(self._look, None, {}))

    @property
    def idle(self) -> bool:
        """Is no job running or waiting?"""
        return not self._working and self._jobs.empty()

    async def ask(self, job: Callable[[], Awaitable[T]]) -> T:
        """Result of the job, once it has run. Retryable SHUTTING_DOWN at the end."""
        if self._closed:
            raise ending(self.id)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_ActorJob(job, answer, log_context.bound_ids()))
        return await answer

    async def close(self) -> None:
        """Cancel the running job and refuse the waiting ones; the module's process is left as it is."""
        self._closed = True
        self._set_timer()
        await self._tasks.close()
        while not self._jobs.empty():
            answer = self._jobs.get_nowait().answer
            if answer is not None and not answer.done():
                answer.set_exception(ending(self.id))

    async def _run(self) -> None:
        while True:
            self._working = False
            job = await self._jobs.get()
            answer = job.answer
            self._working = True
            try:
                with log_context.only({**job.ids, "module": self.id}):
                    value = await job.do()
            except asyncio.CancelledError:
                if answer is not None and not answer.done():
                    answer.set_exception(ending(self.id))
                raise
            except Exception as error:
                self._handle_failure(error, answer)
            else:
                self._retry_at = None
                self._set_timer()
                if answer is not None and not answer.done():
                    answer.set_result(value)

    def _handle_failure(self, error: Exception, answer: asyncio.Future[Any] | None) -> None:
        if not isinstance(error, CorralError):
            _log.exception("module_actor.failed", module=self.id, exc_info=error)
        elif answer is None:
            _log.warning("module_step.retried", module=self.id, error=str(error))
        if answer is None or isinstance(error, Retryable):
            self._retry_at = self._deps.clock.monotonic() + self._deps.pace.retry
        self._set_timer()
        if answer is not None and not answer.done():
            answer.set_exception(error)

    async def _look(self) -> PackageRecord | None:
        self._nudged = False
        return await self.life.converge()

    def _set_timer(self) -> None:
        """Set the timer for what is due next, or was left undone: a refused job does not finish another's."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [at for at in (self._retry_at, self.life.due()) if at is not None]
        if times and not self._closed:
            due = min(times)
            delay = max(due - self._deps.clock.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self.nudge)


def ending(id: str) -> Retryable:
    return Retryable(
        Code.SHUTTING_DOWN,
        f"module '{id}' cannot be changed now: the host is ending",
        hint="try again when it is up",
    )
