"""Leadership by a lease: one controller leads, the others wait until they may take over.

No two clocks are ever compared. The holder adds one to a counter every few seconds; a candidate that has seen
the same (epoch, counter) for a whole TTL **on its own boot clock** may take the lease by compare-and-set. The
holder counts from *before* it sent its last successful renewal and treats its lease as expired a margin
before that TTL is over, so it always gives up first.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Final

import msgspec
import structlog

from corral.domain.ids import Epoch
from corral.errors import Bug
from corral.store.port import LEADER, LeaseEngine, LeaseRow
from corral.store.store_errors import StoreUnavailable
from corral.system.aio.tasks import set_within
from corral.system.clock import Clock

log = structlog.get_logger("corral.store")

FREE: Final = ""
"""The holder of a released lease: it may be taken at once."""


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. A candidate waits `ttl`; the holder renews every `renew` and gives up after
    `ttl` − `margin`."""

    ttl: float = 15.0
    renew: float = 3.0
    margin: float = 3.0
    poll: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.renew < self.ttl - self.margin or self.margin <= 0 or self.poll <= 0:
            raise Bug(f"lease times do not fit: {self}")


class Loss(enum.Enum):
    """Why a term ended."""

    TAKEN = "another controller took the lease"
    EXPIRED = "the lease could not be renewed in time"
    RELEASED = "this controller gave the lease up"


class Term:
    """One period of leading, under one epoch."""

    def __init__(
        self,
        engine: LeaseEngine,
        row: LeaseRow,
        *,
        clock: Clock,
        timing: LeaseTiming,
        since: float,
        uncontested: bool,
    ) -> None:
        self._engine = engine
        self._row = row
        self._clock = clock
        self._timing = timing
        self._since = since
        self._uncontested = uncontested
        self._loss: Loss | None = None
        self._over = asyncio.Event()
        self._moving = asyncio.Lock()  # a renewal concurrent with a raise would find an unknown row

    @property
    def epoch(self) -> Epoch:
        return self._row.epoch

    def valid(self) -> bool:
        """Whether no other controller can lead right now. Never true again once it was false."""
        if self._loss is None and self._remaining() <= 0:
            self._lose(Loss.EXPIRED)
        return self._loss is None

    async def hold(self) -> Loss:
        """Renew until the lease is lost, expired or released, and return which.

        An uncontested lease needs no renewal: the lock on the data directory excludes others, and a full disk
        must not depose the only controller.
        """
        if self._uncontested:
            await self._over.wait()
        while self.valid():
            if await set_within(self._over, min(self._timing.renew, self._remaining())):
                break
            await self._renew()
        assert self._loss is not None
        return self._loss

    async def release(self) -> None:
        """Release the lease, so that a successor need not wait; only after the last write."""
        mine = self._loss is None
        self._lose(Loss.RELEASED)
        if mine:
            try:
                await self._engine.release_lease(self._row)
            except StoreUnavailable as error:
                log.warning("lease_release.failed", why=error.why)

    async def raise_epoch(self, *, by: int) -> Epoch | None:
        """Raise lease and fence together; None when the lease was lost. Every `Writer` of this term is fenced
        by it: make a new one under the new epoch."""
        async with self._moving:
            raised = await self._engine.raise_epoch(self._row, by=by)
            if raised is None:
                self._lose(Loss.TAKEN)
                return None
            self._row = raised
        return raised.epoch

    async def _renew(self) -> None:
        if not self.valid():
            return
        before = self._clock.boottime()
        try:
            async with asyncio.timeout(self._remaining()), self._moving:
                row = await self._engine.renew_lease(self._row)
        except TimeoutError:
            return
        except StoreUnavailable as error:
            log.warning("lease_renewal.failed", why=error.why, seconds_left=round(self._remaining(), 1))
            await set_within(self._over, min(self._timing.poll, max(self._remaining(), 0)))
            return
        if row is None:
            self._lose(Loss.TAKEN)
        elif self.valid():
            self._since = before

    def _remaining(self) -> float:
        if self._uncontested:
            return self._timing.ttl
        return self._since + self._timing.ttl - self._timing.margin - self._clock.boottime()

    def _lose(self, loss: Loss) -> None:
        if self._loss is None:
            self._loss = loss
            self._over.set()
            write = log.info if loss is Loss.RELEASED else log.warning
            write("lease.ended", epoch=self.epoch, why=loss.value)


class Leadership:
    """A controller's candidacy: candidate until `acquire` returns a term."""

    def __init__(
        self,
        engine: LeaseEngine,
        *,
        clock: Clock,
        holder: str,
        info: str = "",
        timing: LeaseTiming | None = None,
        name: str = LEADER,
        uncontested: bool = False,
    ) -> None:
        """`holder` names this very process (never reused); `info` is JSON for the other
        controllers, such as this one's addresses."""
        self._engine = engine
        self._clock = clock
        self._holder = holder
        self._info = info
        self._timing = timing or LeaseTiming()
        self._name = name
        self._uncontested = uncontested

    async def current(self) -> LeaseRow | None:
        """The holder of the lease as stored; None when there is none."""
        row = await self._engine.read_lease(self._name)
        return None if row is None or row.holder == FREE else row

    async def acquire(self) -> Term:
        """Wait until this controller may lead, and take the lease. Store failures are retried."""
        seen: LeaseRow | None = None
        since = 0.0
        while True:
            try:
                row = await self._engine.read_lease(self._name)
                now = self._clock.boottime()
                if row is None or row.holder == FREE or self._uncontested:
                    term = await self._take(row)
                elif seen is None or (row.epoch, row.counter) != (seen.epoch, seen.counter):
                    # Counted from after the read: the renewal we see was sent before this.
                    term, seen, since = None, row, now
                elif now - since >= self._timing.ttl:
                    term = await self._take(row)
                else:
                    term = None
            except StoreUnavailable as error:
                log.warning("lease_acquisition.retried", why=error.why)
                term = None
            if term is not None:
                return term
            await asyncio.sleep(self._timing.poll)

    async def _take(self, seen: LeaseRow | None) -> Term | None:
        before = self._clock.boottime()
        row = await self._engine.take_lease(self._name, holder=self._holder, seen=seen, info=self._info)
        if row is None:
            return None
        log.info("lease.acquired", epoch=row.epoch, holder=row.holder)
        return Term(
            self._engine,
            row,
            clock=self._clock,
            timing=self._timing,
            since=before,
            uncontested=self._uncontested,
        )
