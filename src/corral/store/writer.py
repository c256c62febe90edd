"""The writer: the one task that commits, and the one place where memory follows the store.

    callers ── commit() ──► waiting line ── batch ──► engine ──► on_commit, in order ──► callers

While a batch is under way the next one collects, so that the cost of a durable flush is shared. The database
does not wait for Python either: the commits of a stored batch are applied a few at a time, and as soon as
transactions wait they are sent, and the rest is applied beside them. Never are two batches under way: the
next one is sent when the answer for the former is here.

The engine's answer decides what happens next:

| the engine's answer             | the batch's callers get        | the writer                       |
|---------------------------------|--------------------------------|----------------------------------|
| stored, some refused            | their `Commit`, or `Conflict`  | goes on                          |
| unavailable                     | `StoreUnavailable`             | refuses, probes until it is back |
| unavailable, in doubt           | wait for the truth, at most    | finds out before it sends        |
|                                 | `patience` seconds             | anything else                    |
| fenced                          | `Fenced`                       | is closed for good               |
| storage failed, or any surprise | `StoreUnavailable`, in doubt   | is closed; the process must end  |
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog

from corral.domain.ids import Epoch
from corral.errors import Bug, Code, CorralError, Retryable
from corral.store.commit_batches import BatchLimits, Waiting, WaitingLine, commits_of, examine
from corral.store.port import BatchOutcome, Commit, CommitEngine, Refusal, Transaction
from corral.store.store_errors import Conflict, Fenced, StoreUnavailable
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks, cancel_and_wait, set_within
from corral.system.clock import Clock
from corral.system.entropy import Entropy, new_id

log = structlog.get_logger("corral.store")


class WriterTiming(msgspec.Struct, frozen=True, kw_only=True):
    """`patience`: how long callers wait for the outcome of a batch in doubt. The rest: probes."""

    patience: float = 5.0
    first_probe: float = 1.0
    slowest_probe: float = 5.0


class _Stage(enum.Enum):
    OPEN = "open"
    UNHEALTHY = "unhealthy"
    CLOSING = "closing"
    FENCED = "fenced"
    FAILED = "failed"


_FIRST_QUESTION: Final = 0.05
_AT_ONCE: Final = 64
"""Commits applied before callers get a turn to hand in their next transaction."""
_DEAD = frozenset({_Stage.FENCED, _Stage.FAILED})


class Writer:
    """Commits transactions under one epoch. Create it in a running loop, then `start` it.

    Invariant: `on_commit` has received exactly the stored commits of this writer, in their order, and each
    before its caller. It must not raise: memory would differ from the store.
    """

    def __init__(
        self,
        engine: CommitEngine,
        *,
        epoch: Epoch,
        clock: Clock,
        entropy: Entropy,
        on_commit: Callable[[Commit], None],
        on_fenced: Callable[[Fenced], None],
        on_fatal: Callable[[BaseException], None],
        limits: BatchLimits | None = None,
        timing: WriterTiming | None = None,
    ) -> None:
        self.epoch = epoch
        self._engine = engine
        self._clock = clock
        self._on_commit = on_commit
        self._on_fenced = on_fenced
        self._on_fatal = on_fatal
        self._limits = limits or BatchLimits()
        self._timing = timing or WriterTiming()
        self._line = WaitingLine(self._limits)
        self._under_way: Sequence[Waiting] = ()
        self._stored: deque[Waiting] = deque()
        self._results: Iterator[Commit | Refusal] = iter(())
        self._name = new_id(f"batch-{epoch}", entropy)
        self._batches = 0
        self._stage = _Stage.OPEN
        self._reason = ""
        self._fence: Fenced | None = None
        self._closing = asyncio.Event()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()

    @property
    def healthy(self) -> bool:
        """Whether the store took the last batch or probe; `reason` is why not."""
        return not self._reason

    @property
    def reason(self) -> str:
        return self._reason

    @property
    def pending(self) -> int:
        """Transactions accepted and not yet answered."""
        return len(self._line) + len(self._under_way) + len(self._stored)

    def start(self) -> None:
        self._tasks.spawn(self._run(), name=f"store/write/{self.epoch}")

    async def close(self) -> None:
        """Commit the accepted transactions, refuse later ones. Bounded by `patience`."""
        if self._stage not in _DEAD:
            self._stage = _Stage.CLOSING
        self._closing.set()
        self._wake.set()
        await self._tasks.wait(timeout=2 * self._timing.patience)
        await self._tasks.close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def commit(self, transaction: Transaction) -> Commit:
        """Store a transaction as a whole; memory is updated when this returns.

        Raises `Conflict` (nothing stored), `StoreUnavailable` (nothing stored, or `in_doubt`), `Fenced`,
        SHUTTING_DOWN. A caller that is cancelled while waiting gets no result: its transaction may be
        committed all the same.
        """
        if self._stage is not _Stage.OPEN:
            raise self._refusal()
        ahead = len(self._line)
        if ahead >= self._limits.waiting:
            raise StoreUnavailable(f"overloaded, {ahead} changes are waiting")
        keys, weight = examine(transaction, self._limits)
        answer: asyncio.Future[Commit] = self._loop.create_future()
        self._line.join(Waiting(transaction, keys, weight, answer))
        if not ahead:
            self._wake.set()
        return await answer

    # the task

    async def _run(self) -> None:
        try:
            await self._serve()
        except Fenced as error:
            self._end(_Stage.FENCED, str(error), fence=error)
            self._on_fenced(error)
        except asyncio.CancelledError:
            self._end(_Stage.CLOSING, "the writer was cancelled")
            raise
        except Exception as error:
            # A failed flush, a raising on_commit, a bug in an adapter: store and memory may differ now, and
            # only a new process can load the stored state.
            self._end(_Stage.FAILED, str(error) or type(error).__name__)
            log.critical("store.failed", error=str(error), kind=type(error).__name__)
            self._on_fatal(error)

    async def _serve(self) -> None:
        while True:
            batch = self._line.cut()
            if batch:
                await self._store(batch)
            elif self._stored:
                self._settle(_AT_ONCE)
                # Callers just answered put their next transaction into the next batch.
                await asyncio.sleep(0)
            elif self._closing.is_set():
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _store(self, batch: Sequence[Waiting]) -> None:
        """Send a batch, settle the former one meanwhile, and keep the answer to be settled."""
        self._under_way = batch
        name = self._next_name()
        at = self._clock.now()
        transactions = [waiting.transaction for waiting in batch]
        call = self._engine.commit_batch(epoch=self.epoch, batch=name, at=at, transactions=transactions)
        try:
            outcome = await (await self._settle_beside(call) if self._stored else call)
        except StoreUnavailable as error:
            found = await self._resolve(name, error) if error.in_doubt else None
            if found is None:
                await self._recover(error.why)
                return
            outcome = found
        log.debug("store.committed", batch=name, transactions=len(batch))
        self._under_way = ()
        self._stored.extend(batch)
        self._results = commits_of(outcome, transactions, epoch=self.epoch, at=at)
        if self._stage is _Stage.UNHEALTHY:
            self._settle()
            await self._recover(self._reason)

    async def _settle_beside(self, call: Coroutine[Any, Any, BatchOutcome]) -> asyncio.Task[BatchOutcome]:
        """Begin the call, then settle the former batch while the database is at work."""
        sent = self._tasks.spawn(call, name=f"store/commit/{self.epoch}", awaited=True)
        try:
            # One turn of the loop for the call to begin, and one for the transport, which writes at a turn's end.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._settle()
        except BaseException:
            await cancel_and_wait(sent)
            raise
        return sent

    def _settle(self, most: int | None = None) -> None:
        """Apply the next commits of the stored batch to memory, in order, and answer each caller right after."""
        on_commit = self._on_commit
        stored = self._stored
        for result in itertools.islice(self._results, most):
            # It stays in the line until memory has followed: if that fails, its caller is told.
            answer = stored[0].answer
            if isinstance(result, Refusal):
                if not answer.done():
                    answer.set_exception(Conflict(result))
            else:
                on_commit(result)
                if not answer.done():
                    answer.set_result(result)
            stored.popleft()

    async def _resolve(self, name: str, error: StoreUnavailable) -> BatchOutcome | None:
        """Find out whether a batch was stored, however long it takes; callers wait only `patience`."""
        log.warning("store_outcome.lost", batch=name, why=error.why)
        timer = self._loop.call_later(self._timing.patience, self._lose_patience, error.why)
        backoff = Backoff(first=_FIRST_QUESTION, longest=self._timing.slowest_probe)
        try:
            while True:
                try:
                    outcome = await self._engine.resolve_batch(name, epoch=self.epoch)
                except StoreUnavailable as again:
                    log.info("store_outcome.retried", batch=name, why=again.why)
                else:
                    log.warning("store_outcome.recovered", batch=name, stored=outcome is not None)
                    return outcome
                await asyncio.sleep(backoff.delay())
        finally:
            timer.cancel()

    def _lose_patience(self, why: str) -> None:
        self._become_unhealthy(why)
        _fail(self._under_way, lambda: StoreUnavailable(why, in_doubt=True))

    async def _recover(self, why: str) -> None:
        """Fail the batch and all waiting transactions, then probe until the store takes writes again."""
        self._become_unhealthy(why)
        _fail(self._under_way, lambda: StoreUnavailable(why))
        self._under_way = ()
        backoff = Backoff(first=self._timing.first_probe, longest=self._timing.slowest_probe)
        while not await set_within(self._closing, backoff.delay()):
            try:
                await self._engine.commit_batch(
                    epoch=self.epoch, batch=self._next_name(), at=self._clock.now(), transactions=()
                )
            except StoreUnavailable as error:
                # An empty batch in doubt changes nothing but the batch's name.
                self._reason = error.why
            else:
                self._become_healthy()
                return

    # stages

    def _become_unhealthy(self, why: str) -> None:
        self._reason = why
        if self._stage is _Stage.OPEN:
            self._stage = _Stage.UNHEALTHY
            log.error("store.lost", why=why)
        _fail(self._line.leave(), lambda: StoreUnavailable(why))

    def _become_healthy(self) -> None:
        self._reason = ""
        if self._stage is _Stage.UNHEALTHY:
            self._stage = _Stage.OPEN
            log.info("store.recovered")

    def _end(self, stage: _Stage, reason: str, *, fence: Fenced | None = None) -> None:
        """Close for good: all waiting and later callers get the reason."""
        self._stage = stage
        self._reason = reason
        self._fence = fence
        in_doubt = [*self._stored, *self._under_way]
        self._stored.clear()
        self._under_way = ()
        _fail(in_doubt, lambda: self._refusal() if fence else StoreUnavailable(reason, in_doubt=True))
        _fail(self._line.leave(), self._refusal)

    def _refusal(self) -> CorralError:
        match self._stage:
            case _Stage.FENCED if self._fence is not None:
                return Fenced(self._fence.held, self._fence.current)
            case _Stage.CLOSING:
                return Retryable(
                    Code.SHUTTING_DOWN, "this controller is shutting down", hint="try again shortly"
                )
            case _Stage.UNHEALTHY | _Stage.FAILED:
                return StoreUnavailable(self._reason)
            case _:
                return Bug(f"the writer refused a transaction while {self._stage.value}")

    def _next_name(self) -> str:
        self._batches += 1
        return f"{self._name}-{self._batches}"


def _fail(waiting: Iterable[Waiting], error: Callable[[], BaseException]) -> None:
    """Each caller gets an error object of its own: a shared one would collect their tracebacks."""
    for each in waiting:
        if not each.answer.done():
            each.answer.set_exception(error())
