"""Who may upgrade a module: one at a time here, and nobody on another controller meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import structlog

from corral.errors import Code, Retryable
from corral.store.port import LeaseEngine, LeaseRow, StoreUnavailable

LEASE: Final = "lease:platform-module"
_ATTEMPTS: Final = 5
_log = structlog.get_logger("corral.controller.modules")


class UpgradeGuard:
    """Call it for an `async with`. The lease in the store tells other controllers who is at it.

    Only a leader upgrades. So whoever else is named in the row led before us and can write no more: the row
    is taken over at once, for nobody will ever release it.
    """

    def __init__(self, leases: LeaseEngine, *, holder: str) -> None:
        self._leases = leases
        self._holder = holder
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Waits for the upgrade before. Raises `StoreUnavailable`, or CONFLICT when others keep moving."""
        async with self._lock:
            row = await self._take()
            try:
                yield
            finally:
                await self._release(row)

    async def _take(self) -> LeaseRow:
        for _ in range(_ATTEMPTS):
            seen = await self._leases.read_lease(LEASE)
            if seen is not None and seen.holder not in ("", self._holder):
                _log.warning("module.lease_taken_over", former=seen.holder)
            row = await self._leases.take_lease(LEASE, holder=self._holder, seen=seen)
            if row is not None:
                return row
        raise Retryable(
            Code.CONFLICT,
            "another controller is upgrading a module",
            hint="try again at the leader",
            retry_after=1.0,
        )

    async def _release(self, row: LeaseRow) -> None:
        try:
            await self._leases.release_lease(row)
        except StoreUnavailable as error:
            _log.warning("module.lease_not_released", reason=error.why)
