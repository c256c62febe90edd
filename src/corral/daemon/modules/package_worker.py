"""The worker of one module: carries out its orders one at a time; the latest order counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from corral.daemon.modules.convergence import Convergence
from corral.daemon.modules.module_orders import ReceivedOrder
from corral.errors import Bug, CorralError, Retryable
from corral.system import log_context
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks, first_of, set_within
from corral.system.entropy import Entropy

LONGEST_PAUSE: Final = 15.0
_log = structlog.get_logger("corral.daemon.modules")


class _Superseded(Exception):
    """The wait was cut short by a newer order."""


class PackageWorker:
    """Takes orders and works until none is left. `rested` is called each time all is done that can be done
    for now, with the error if there was one; `idle` when no order is left."""

    def __init__(
        self,
        id: str,
        convergence: Convergence,
        *,
        entropy: Entropy,
        rested: Callable[[str, CorralError | None], None],
        idle: Callable[[], None],
    ) -> None:
        self.id = id
        self._convergence = convergence
        self._rested = rested
        self._idle = idle
        self._backoff = Backoff(longest=LONGEST_PAUSE, entropy=entropy)
        self._next: ReceivedOrder | None = None
        self._current: ReceivedOrder | None = None
        self._news = asyncio.Event()
        self._tasks = Tasks()
        self._busy = False

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def desired_archive(self) -> str:
        """Digest of the archive that is being fetched, if any."""
        for order in (self._next, self._current):
            if order is not None and order.package is not None:
                return order.package.sha256
        return ""

    def submit(self, order: ReceivedOrder) -> None:
        """Add an order. A step that has begun is finished first; only waiting is cut short."""
        self._next = order.after(self._next)
        self._backoff.reset()
        self._news.set()
        if not self._busy:
            self._busy = True
            self._tasks.spawn(self._run(), name=f"modules/converge/{self.id}")

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        try:
            while self._next is not None:
                await self._turn()
        finally:
            self._busy = False
            self._idle()

    async def _turn(self) -> None:
        order, self._next = self._next, None
        assert order is not None
        with log_context.only({"module": self.id, "request": order.request}):
            await self._carry_out(order)

    async def _carry_out(self, order: ReceivedOrder) -> None:
        """Once; what failed and may succeed later is put back, after a pause."""
        self._current = order
        self._news.clear()
        problem: CorralError | None = None
        try:
            await self._convergence.converge(self.id, order, self._patiently)
        except _Superseded:
            self._put_back(order)
            return
        except CorralError as error:
            problem = error
        except Exception as error:
            _log.exception("convergence.failed", module=self.id, exc_info=error)
            problem = Bug(f"module '{self.id}' cannot be brought to what is wanted of it: {error!r}")
        finally:
            self._current = None
        if self._next is None:
            self._rested(self.id, problem)
        if isinstance(problem, Retryable):
            self._put_back(order)
            await self._pause(problem)

    def _put_back(self, order: ReceivedOrder) -> None:
        """Put back an order that was not carried out; newer orders take precedence over it."""
        self._next = self._next.after(order) if self._next else order

    async def _pause(self, problem: Retryable) -> None:
        """Wait until the next attempt is due, or another order has arrived."""
        delay = self._backoff.delay()
        _log.warning("convergence.retried", module=self.id, seconds=round(delay, 1), reason=str(problem))
        await set_within(self._news, delay)

    async def _patiently(self, waiting: Coroutine[Any, Any, Any], sha256: str) -> Any:
        """The awaited result, unless a newer order must not wait for it."""
        async with Tasks() as tasks:
            task = tasks.spawn(waiting, name=f"modules/await/{self.id}", awaited=True)
            while not task.done():
                await first_of(task, self._news, name=f"modules/news/{self.id}")
                self._news.clear()
                if self._next is not None and self._next.cuts_short(sha256):
                    raise _Superseded
            return task.result()
