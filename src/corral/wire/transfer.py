"""Bulk transfer: chunks under a credit, resumable by offset.

The receiver grants a number of bytes; the sender never has more in transit. So neither side holds more than
the credit in memory, whatever the size of the transfer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from corral.errors import Code, Rejected

CHUNK: Final = 64 * 1024
CREDIT: Final = 256 * 1024
MAX_CREDIT: Final = 16 * 1024 * 1024

SESSION_KEY: Final = "corral-session"
EPOCH_KEY: Final = "corral-epoch"


class CreditWindow:
    """The sender's side: how much may still be sent."""

    def __init__(self, initial: int) -> None:
        self._available = 0
        self._granted = asyncio.Event()
        self._closed = False
        self.grant(initial)

    def grant(self, amount: int) -> None:
        if amount < 0 or self._available + amount > MAX_CREDIT:
            raise Rejected(
                Code.INVALID_FIELD,
                f"a credit of {amount} bytes is out of bounds",
                hint=f"grant between 0 and {MAX_CREDIT} bytes in all",
                field="credit",
            )
        self._available += amount
        self._granted.set()

    def close(self) -> None:
        """The receiver is gone: a wait for credit ends."""
        self._closed = True
        self._granted.set()

    async def take(self, requested: int) -> int:
        """Wait until something may be sent; returns how much, at most `requested`, 0 when closed."""
        while not self._available:
            if self._closed:
                return 0
            self._granted.clear()
            await self._granted.wait()
        amount = min(requested, self._available)
        self._available -= amount
        return amount


class Regrant:
    """The receiver's side: grants consumed bytes again, in steps that are worth a message."""

    def __init__(self, credit: int) -> None:
        self._step = max(1, credit // 2)
        self._consumed = 0

    def consumed(self, amount: int) -> int:
        """Count consumed bytes; a positive result is the grant to send now."""
        self._consumed += amount
        if self._consumed < self._step:
            return 0
        grant, self._consumed = self._consumed, 0
        return grant
