"""A store that fails on request: the wrapper under which everything above the port is tested."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
from collections import deque
from collections.abc import Sequence

from corral.domain.ids import Epoch
from corral.store.port import BatchOutcome, CommitEngine, Store, Transaction
from corral.store.store_errors import Fenced, StorageFailed, StoreUnavailable


class StoreFault(enum.Enum):
    """Faults of a batch, or of the query about its outcome."""

    BEFORE = "refused before anything was stored"
    AFTER = "stored, but the answer is lost"
    LOST = "not stored, and the answer is lost"
    FENCED = "refused because another controller leads"
    FLUSH = "the flush to disk failed"


class FailingStore(Store):
    """Like the store it wraps, with `commits` that fail on request.

    >>> store.commits.fail(Failure.AFTER)        # the next batch is stored, its answer lost
    >>> store.commits.fail_resolving(times=2)    # and twice its outcome stays unknown
    >>> store.commits.hold(); ...; store.commits.let_go()  # batches wait before they are stored
    """

    commits: FailingCommits

    def __init__(self, inner: Store) -> None:
        super().__init__(
            name=f"failing {inner.name}",
            exclusive=inner.exclusive,
            commits=FailingCommits(inner.commits),
            reads=inner.reads,
            leases=inner.leases,
            blobs=inner.blobs,
            close=inner.close,
        )


class FailingCommits:
    """As the engine it wraps, until a failure is requested; then fails so, once for each request."""

    def __init__(self, inner: CommitEngine) -> None:
        self.batches: list[int] = []
        """The number of transactions of each batch that came this far, probes (0) included."""
        self._inner = inner
        self._failures: deque[StoreFault] = deque()
        self._unresolved = 0
        self._gate = asyncio.Event()
        self._gate.set()

    def fail(self, *failures: StoreFault) -> None:
        """Fail the next batches, one for each of these, in this order."""
        self._failures.extend(failures)

    def fail_resolving(self, *, times: int) -> None:
        """Answer the next queries about a batch in doubt with "unavailable"."""
        self._unresolved += times

    def let_resolve(self) -> None:
        """From now on queries about a batch in doubt are answered again."""
        self._unresolved = 0

    def hold(self) -> None:
        self._gate.clear()

    def let_go(self) -> None:
        self._gate.set()

    async def commit_batch(
        self, *, epoch: Epoch, batch: str, at: dt.datetime, transactions: Sequence[Transaction]
    ) -> BatchOutcome:
        self.batches.append(len(transactions))
        await self._gate.wait()
        failure = self._failures.popleft() if self._failures else None
        match failure:
            case StoreFault.BEFORE:
                raise StoreUnavailable("no space left, on request")
            case StoreFault.LOST:
                raise StoreUnavailable("connection lost, on request", in_doubt=True)
            case StoreFault.FENCED:
                raise Fenced(epoch, epoch + 1)
            case StoreFault.FLUSH:
                raise StorageFailed("a flush failed, on request")
        outcome = await self._inner.commit_batch(epoch=epoch, batch=batch, at=at, transactions=transactions)
        if failure is StoreFault.AFTER:
            raise StoreUnavailable("answer lost, on request", in_doubt=True)
        return outcome

    async def resolve_batch(self, batch: str, *, epoch: Epoch) -> BatchOutcome | None:
        if self._unresolved:
            self._unresolved -= 1
            raise StoreUnavailable("still out of reach, on request")
        return await self._inner.resolve_batch(batch, epoch=epoch)

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        return await self._inner.trim(
            epoch=epoch,
            events_through=events_through,
            tombstones_through=tombstones_through,
            journals=journals,
        )

    async def drop_module_events(self, *, epoch: Epoch, through: int) -> int:
        return await self._inner.drop_module_events(epoch=epoch, through=through)
