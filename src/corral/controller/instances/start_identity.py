"""The identity of a start: its number, and the ticket by which a node proves that this cluster ordered it.

Numbers are never used twice: they are reserved in blocks in the store and given out from memory. A leader
that ends leaves the rest of its block unused; the next one begins behind it. Nodes do not influence them:
only a number that was given to a node, which its ticket proves, advances the counter, as is needed after a
restore of the store.

The ticket is sent with the order, kept by the node with every run of that start, and sent back where a record
may be missing. A ticket is `ct1.SERIAL.PLAN.MAC`; the MAC also covers the node, the instance, its group and
the number of the start, so that the ticket is valid for no other. The serial counts the starts of one node,
and the last one is stored with each start: a ticket above it can only be of a start that a restored store has
forgotten, one that is not above it was used before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import pathlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import SEQUENCES
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.groups.instance_records import InstanceRecord, SequenceRecord
from corral.domain.ids import EPOCH_LEAP, Epoch, Incarnation, first_incarnation, start_number
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey
from corral.store.store_errors import Conflict, StoreUnavailable

STARTS: Final = "starts"
BLOCK: Final = 10_000
RESTORE_LEAP: Final = 2**20
"""Numbers skipped when the epoch was raised, as it is after a restore: runs that began after the copy was
made may use the next numbers, and not every node can prove it."""
PLAUSIBLE: Final = 2**40
"""More starts than any cluster decides: a thousand a second for a lifetime."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair of the counter."""

    before: int
    highest_used: int
    ignored: int
    """Records with a number that no cluster reaches; they were made from a node's claim."""


class Incarnations:
    """Issues the incarnations of coming starts. `refill` before the first use, and periodically."""

    def __init__(self, ledger: Ledger, *, epoch: Epoch, block: int = BLOCK) -> None:
        self._ledger = ledger
        self._epoch = epoch
        self._block = block
        self._next = 1
        self._end = 1

    @property
    def low(self) -> bool:
        return self._end - self._next < self._block // 2

    def take(self) -> Incarnation:
        """The next number. `StoreUnavailable` when no new block could be reserved for too long; CONFLICT when
        there is none left."""
        if self._next >= self._end:
            raise StoreUnavailable("it has not reserved more start numbers yet")
        taken = first_incarnation(self._next)
        self._next += 1
        return taken

    async def step_over(self, incarnation: int) -> None:
        """Continue behind the number of a start that was given to a node, unless the counter is there
        already. The store may have been restored to an earlier state, so that coming numbers are in use."""
        number = start_number(incarnation)
        if number >= self._next:
            await self._reserve(beyond=number)

    async def refill(self) -> None:
        """Reserve another block when the present one runs low. Raises what `commit` raises."""
        if self.low:
            await self._reserve(beyond=0)

    async def _reserve(self, *, beyond: int) -> None:
        while True:
            used = max(self._used(), beyond)
            try:
                await self._ledger.commit(self._put(used))
            except Conflict:
                continue
            if used >= self._next - 1:  # else a later block was reserved while this one was being stored
                self._next, self._end = used + 1, used + self._block + 1
            return

    def _used(self) -> int:
        stored = self._ledger.state.sequences.find(STARTS)
        if stored is None:
            return 0
        raised = self._epoch - stored.record.epoch >= EPOCH_LEAP
        return stored.record.reserved + (RESTORE_LEAP if raised else 0)

    def _put(self, used: int) -> Step:
        record = SequenceRecord(reserved=used + self._block, epoch=self._epoch)
        return SEQUENCES.put(STARTS, record, expect=self._ledger.state.sequences.revision(STARTS))

    async def repair(self, actor: Actor) -> Repair:
        """Set the counter just above the highest number that a record uses, or that was given out lately: a
        start that took one may not be stored yet. Raises what `commit` raises."""
        while True:
            found = self._looked_over()
            steps = self._put(found.highest_used), _audited(found, actor)
            try:
                await self._ledger.commit(*steps)
            except Conflict:
                continue
            self._next, self._end = found.highest_used + 1, found.highest_used + self._block + 1
            return found

    def _looked_over(self) -> Repair:
        stored = self._ledger.state.sequences.find(STARTS)
        numbers = list(_used_numbers(self._ledger.state))
        used = [number for number in (*numbers, self._next - 1) if number <= PLAUSIBLE]
        return Repair(
            before=stored.record.reserved if stored else 0,
            highest_used=max(used, default=0),
            ignored=sum(number > PLAUSIBLE for number in numbers),
        )


def _audited(repair: Repair, actor: Actor) -> Step:
    after: dict[str, object] = {"highest_used": repair.highest_used, "ignored": repair.ignored}
    return audit(actor, "cluster.repair_sequence", STARTS, before={"reserved": repair.before}, after=after)


def _used_numbers(state: ClusterState) -> Iterator[int]:
    for stored in state.instances:
        yield start_number(stored.record.incarnation)
    for crash in state.crashes:
        yield start_number(crash.record.incarnation)
    for run in state.reservations:
        yield start_number(run.record.incarnation)


_PREFIX: Final = "ct1"
_MAX_LENGTH: Final = 256
_PURPOSE: Final = "tickets of starts"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a genuine ticket."""

    serial: int
    plan_hash: str


def ticket_keys(state: ClusterState, path: pathlib.Path) -> tuple[bytes, ...]:
    """The key that tickets are made with, then older ones that are still valid. They are derived from the
    authorities that are sealed in the store, so they are the same after a restore and after a change of the
    cluster key."""
    cluster_key = ClusterKey.require(path)
    record = state.authorities
    return tuple(
        Authority.derived_key(sealed, cluster_key=cluster_key, purpose=_PURPOSE)
        for sealed in (record.active, *record.retiring)
    )


class StartTickets:
    """Issues and verifies tickets. `keys` is called at the first use, and again when `stamp` has changed,
    because then the authorities have."""

    def __init__(
        self, keys: Callable[[], tuple[bytes, ...]], *, stamp: Callable[[], int] = lambda: 0
    ) -> None:
        self._source = keys
        self._stamp = stamp
        self._keys: tuple[bytes, ...] = ()
        self._stamped = 0

    def of(self, record: InstanceRecord) -> str:
        """The ticket of a start, the same each time the start is sent; empty for one from before there were
        tickets."""
        if not record.serial:
            return ""
        facts = _facts(record.node, record.id, record.group, record.incarnation)
        body = f"{_PREFIX}.{record.serial}.{record.plan_hash}"
        return f"{body}.{_code(self._all()[0], body, facts)}"

    def proven(self, text: str, *, node: str, id: str, group: str, incarnation: int) -> Ticket | None:
        """The content of the ticket, if it was given to this node for this start; otherwise None."""
        body, _, code = text.rpartition(".")
        prefix, _, rest = body.partition(".")
        serial, _, plan_hash = rest.partition(".")
        if len(text) > _MAX_LENGTH or prefix != _PREFIX or not serial.isascii() or not serial.isdigit():
            return None
        facts = _facts(node, id, group, incarnation)
        given = code.encode("utf-8", "replace")
        if not any(hmac.compare_digest(given, _code(key, body, facts).encode()) for key in self._all()):
            return None
        return Ticket(serial=int(serial), plan_hash=plan_hash)

    def _all(self) -> tuple[bytes, ...]:
        stamp = self._stamp()
        if not self._keys or stamp != self._stamped:
            self._keys = self._source()
            self._stamped = stamp
        return self._keys


def _facts(node: str, id: str, group: str, incarnation: int) -> bytes:
    return msgspec.json.encode([node, id, group, start_number(incarnation)])


def _code(key: bytes, body: str, facts: bytes) -> str:
    digest = hmac.digest(key, body.encode("utf-8", "replace") + b"\n" + facts, hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
