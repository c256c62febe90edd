"""Numbers of starts, never used twice: reserved in blocks in the store, given out from memory.

A leader that ends leaves the rest of its block unused; the next one begins behind it.
"""

from __future__ import annotations

from typing import Final

from corral.controller.collections import SEQUENCES
from corral.controller.ledger import Ledger
from corral.domain.ids import RESTARTS_PER_START, Incarnation, first_incarnation
from corral.domain.instance_records import SequenceRecord
from corral.store.port import Conflict, StoreUnavailable

STARTS: Final = "starts"
BLOCK: Final = 10_000


class Incarnations:
    """Gives the incarnations of coming starts. `refill` before the first use, and now and then."""

    def __init__(self, ledger: Ledger, *, block: int = BLOCK) -> None:
        self._ledger = ledger
        self._block = block
        self._next = 1
        self._end = 1

    @property
    def low(self) -> bool:
        return self._end - self._next < self._block // 2

    def take(self) -> Incarnation:
        """The next one. `StoreUnavailable` when the store has not given out a new block for too long."""
        if self._next >= self._end:
            raise StoreUnavailable("it has not reserved more start numbers yet")
        number = self._next
        self._next += 1
        return first_incarnation(number)

    async def step_over(self, incarnation: int) -> None:
        """A node has a run with this number: begin behind it, unless we are there already. The store may
        have been put back to an earlier state, so that a node knows numbers which we have yet to give."""
        number = incarnation // RESTARTS_PER_START
        if number >= self._next:
            await self._reserve(beyond=number)

    async def refill(self) -> None:
        """Reserve another block when the present one runs low. Raises what `commit` raises."""
        if self.low:
            await self._reserve(beyond=0)

    async def _reserve(self, *, beyond: int) -> None:
        sequences = self._ledger.state.sequences
        while True:
            stored = sequences.find(STARTS)
            used = max(stored.record.reserved if stored else 0, beyond)
            record = SequenceRecord(reserved=used + self._block)
            try:
                await self._ledger.commit(
                    SEQUENCES.put(STARTS, record, expect=sequences.revision(STARTS)),
                )
            except Conflict:
                continue
            if used >= self._next - 1:  # else a later block came while this one was being stored
                self._next, self._end = used + 1, used + self._block + 1
            return
