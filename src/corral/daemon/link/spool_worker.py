"""Thread of a spool: it takes the queued jobs, does them in one transaction, and answers them.

A durable commit is the main cost of a spool, so not every job gets one of its own. Jobs with a waiting caller are
urgent. Log records that closely follow a write are delayed, and so is the dropping of confirmed records: they share the
commit of the next urgent job, or are committed together after a moment. Reads wait for neither, and go first; when a
commit is urgent as well, reads and commits alternate.

An exception of a job or of the disk does not end the thread. Should it end all the same, all waiting and later callers
get an error, and the reason is logged.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import structlog

from corral.daemon.link.spool_table import SpoolTable
from corral.errors import Bug, Code, CorralError, Rejected, Retryable

LINGER_SECONDS: Final = 0.05
"""How long after the last write a log record waits for others to share its commit; after a quiet time it does not
wait."""
_DROP_SECONDS: Final = 1.0
"""How long confirmed records stay at most while nothing else is written."""
_PACE_SECONDS: Final = 0.05
"""Least time between two commits that only number more background reports."""
_ENOUGH: Final = 256
"""So many waiting jobs are committed without further delay."""
_GROUP: Final = 512
_MAX_QUEUED: Final = 20_000
_log = structlog.get_logger("corral.daemon.link")

Work = Callable[[SpoolTable], Any]


class _SpoolJob(msgspec.Struct, frozen=True):
    """A unit of work; `answer` is None for a log record, which has no waiting caller."""

    work: Work
    answer: Future[Any] | None


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one transaction."""

    jobs: list[_SpoolJob]
    drop: int | None = None
    """Everything up to this number is dropped first, and more background reports are numbered; None: the group only
    reads."""
    last: bool = False
    """The spool is closed, and nothing else waits."""


class SpoolWorker:
    """Owns the table from `start` to `close`. Every method may be called by any thread."""

    def __init__(self, table: SpoolTable, *, on_growth: Callable[[], None]) -> None:
        self._table = table
        self._on_growth = on_growth
        self._jobs: deque[_SpoolJob] = deque()
        self._asked = 0
        self._reads: list[_SpoolJob] = []
        self._read_last = False
        self._lingers_until = math.inf
        self._wrote_at = -math.inf
        self._unqueued = 0
        self.dropping = 0
        """Everything up to this number is confirmed, and dropped or about to be."""
        self._unwritable = False
        self._refusing: CorralError | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, work: Work) -> None:
        """Queue a log record to be written soon, best effort: never blocks, never fails, counts losses."""
        with self._changed:
            if self._refusing is not None or len(self._jobs) >= _MAX_QUEUED:
                self._unqueued += 1
                return
            self._jobs.append(_SpoolJob(work, None))
            self._linger(self._wrote_at + LINGER_SECONDS)
            if len(self._jobs) == _ENOUGH:
                self._changed.notify()

    def ask(self, work: Work) -> Future[Any]:
        """Queue a job behind all earlier ones; its answer comes once it is durable. Raises when the queue takes
        nothing."""
        answer: Future[Any] = Future()
        with self._changed:
            if self._refusing is not None:
                raise self._refusing
            if len(self._jobs) >= _MAX_QUEUED:
                raise Retryable(Code.STORE_UNAVAILABLE, "the node's spool does not keep up", retry_after=1.0)
            self._jobs.append(_SpoolJob(work, answer))
            self._asked += 1
            self._changed.notify()
        return answer

    def look(self, work: Work) -> Future[Any]:
        """Queue a read of what is stored already: it does not wait for queued writes. Should it write all the same, the
        answer comes once that is durable. Raises when closed."""
        answer: Future[Any] = Future()
        with self._changed:
            if self._refusing is not None:
                raise self._refusing
            self._reads.append(_SpoolJob(work, answer))
            self._changed.notify()
        return answer

    def drop(self, through: int) -> None:
        """Drop everything up to this number with the next write, or a moment later; retried for as long as the disk
        refuses."""
        with self._changed:
            if through > self.dropping:
                self.dropping = through
                waits = self._table.committed.background_bytes  # waits for the room that this makes
                self._linger(time.monotonic() + (0.0 if waits else _DROP_SECONDS))

    def close(self) -> None:
        """Accept nothing more, do the queued jobs, then end; blocks until then. Idempotent."""
        with self._changed:
            self._refusing = self._refusing or Retryable(Code.SHUTTING_DOWN, "the node's spool is closed")
            self._changed.notify()
        self._thread.join()
        self._table.close()

    def _run(self) -> None:
        try:
            last = False
            while not last:
                group = self._next_group()
                self._perform(group)
                last = group.last
        except BaseException as error:
            # Even this end is not silent: every caller that needs the spool gets an error.
            _log.critical("spool_thread.failed", exc_info=error)
            self._give_up(_ended(error))

    def _linger(self, until: float) -> None:
        """A queued job can wait until this time."""
        if until < self._lingers_until:
            self._lingers_until = until
            self._changed.notify()

    def _next_group(self) -> _Group:
        """The queued jobs, up to the size of a group, once one is urgent or has waited long enough."""
        with self._changed:
            if self.dropping > self._table.committed.forgotten:  # for example, because the disk refused
                self._linger(time.monotonic() + _DROP_SECONDS)
            self._linger_for_background()
            while not self._reads and not self._is_due():
                left = self._lingers_until - time.monotonic()
                self._changed.wait(max(0.0, left) if math.isfinite(left) else None)
            self._read_last = bool(self._reads) and not (self._read_last and self._is_due())
            group = self._reading() if self._read_last else self._writing()
            unqueued, self._unqueued = self._unqueued, 0
        self._table.lose(unqueued)
        return group

    def _linger_for_background(self) -> None:
        """Background reports proceed at their rate, even if no record is added or confirmed."""
        delay = self._table.background_delay()
        if math.isfinite(delay):
            pause = _DROP_SECONDS if self._unwritable else _PACE_SECONDS
            self._linger(time.monotonic() + max(delay, pause))

    def _is_due(self) -> bool:
        """Whether to commit now: a caller waits for it, enough jobs are queued or have waited long enough, or the spool
        closes."""
        pressing = self._asked or len(self._jobs) >= _ENOUGH or self._refusing is not None
        return bool(pressing) or time.monotonic() >= self._lingers_until

    def _reading(self) -> _Group:
        """A group of reads alone: a read must not wait for a commit."""
        reads, self._reads = self._reads, []
        return _Group(jobs=reads)

    def _writing(self) -> _Group:
        jobs = [self._jobs.popleft() for _ in range(min(_GROUP, len(self._jobs)))]
        self._asked -= sum(1 for job in jobs if job.answer is not None)
        self._wrote_at = time.monotonic()
        if not self._jobs:
            self._lingers_until = math.inf
        last = self._refusing is not None and not self._jobs and not self._reads
        return _Group(jobs=jobs, drop=self.dropping, last=last)

    def _give_up(self, reason: CorralError) -> None:
        with self._changed:
            self._refusing = reason
            left, self._jobs, self._reads = [*self._jobs, *self._reads], deque(), []
        jobs = [job for job in left if _claim(job)]
        _answer(jobs, [reason] * len(jobs))

    def _perform(self, group: _Group) -> None:
        """Answer every job of a group, whatever its outcome."""
        jobs = [job for job in group.jobs if _claim(job)]
        before = self._table.committed.highest
        try:
            results = self._commit(jobs, group.drop)
        except BaseException as error:
            _answer(jobs, [_ended(error)] * len(jobs))
            raise
        _answer(jobs, results)
        if self._table.committed.highest > before:
            self._grown()

    def _grown(self) -> None:
        if self._unwritable:
            self._unwritable = False
            _log.info("spool.recovered")
        try:
            self._on_growth()
        except Exception:
            _log.exception("spool_callback.failed")

    def _commit(self, jobs: list[_SpoolJob], drop: int | None) -> list[Any]:
        """One transaction for the group. When the disk refuses, all jobs fail and can be retried; when a job fails, the
        others are done without it."""
        try:
            self._table.begin()
            if drop is not None:
                self._table.forget(drop)
            results = [_guarded(job.work, self._table) for job in jobs]
            if drop is not None:
                self._table.number_background()  # after the other reports
            self._table.commit()
        except Exception as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                return self._refused(jobs, self._unwritten(error))
            if len(jobs) > 1:
                return [result for job in jobs for result in self._commit([job], drop)]
            _log.error("spool_job.failed", exc_info=error)
            return self._refused(jobs, Bug(f"the node's spool could not do this: {error!r}"))
        return results

    def _refused(self, jobs: list[_SpoolJob], reason: CorralError) -> list[Any]:
        self._table.lose(sum(1 for job in jobs if job.answer is None))
        return [reason] * len(jobs)

    def _roll_back(self) -> None:
        try:
            self._table.rollback()
        except sqlite3.Error as error:
            self._unwritten(error)  # the next transaction retries it

    def _unwritten(self, error: sqlite3.Error) -> Retryable:
        """Log the refusal once per outage: each record of our own log would fail here in its turn."""
        if not self._unwritable:
            self._unwritable = True
            _log.error("spool_write.failed", reason=str(error))
        return Retryable(
            Code.STORE_UNAVAILABLE, f"the node's spool cannot be written: {error}", retry_after=1.0
        )


def _claim(job: _SpoolJob) -> bool:
    """False when the caller gave up meanwhile; after a True it cannot give up any more."""
    return job.answer is None or job.answer.set_running_or_notify_cancel()


def _guarded(work: Work, table: SpoolTable) -> Any:
    """Return a refusal as an answer like any other: it changed nothing."""
    try:
        return work(table)
    except Rejected as refusal:
        return refusal


def _answer(jobs: list[_SpoolJob], results: list[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.answer is None:
            continue
        if isinstance(result, Exception):
            job.answer.set_exception(result)
        else:
            job.answer.set_result(result)


def _ended(error: BaseException) -> Rejected:
    return Rejected(
        Code.STORE_UNAVAILABLE,
        f"the node's spool does not run any more: {error!r}",
        hint="restart the daemon and report its log; all that was put into the spool is on disk",
    )
