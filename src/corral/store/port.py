"""The interface of a store, for its users and for adapters.

- A `Transaction` is one caller's request: documents under compare-and-set, the events that describe the change, and
  journal entries; all of it or none of it.
- A batch of transactions of *different* documents is committed in one round trip under the leader's epoch. A refused
  transaction fails its caller, never the others of the batch.
- A `Commit` is what was stored. Memory changes only by applying commits in order.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from corral.domain.audit_chain import ChainedEntry, ChainState
from corral.domain.events import Cursor, Draft, Event
from corral.domain.ids import Epoch

ABSENT: Final = 0
"""As `expect`: the document must not exist."""

CHAINED_JOURNAL: Final = "audit"
"""The journal whose entries are chained by hashes: adapters add them in the transaction that numbers the entries.
See `corral.domain.audit_chain`."""


class Put(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Create or replace a document. `expect` is a revision, `ABSENT`, or None for any state."""

    collection: str
    id: str
    body: bytes
    expect: int | None


class Delete(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Remove a document. With `expect=None` an absent one is fine."""

    collection: str
    id: str
    expect: int | None


class Append(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Add an entry to a journal: an append-only stream such as the audit or a node's log."""

    journal: str
    body: bytes


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's request, applied as a whole. It may name a document only once."""

    writes: tuple[Put | Delete, ...] = ()
    events: tuple[Draft, ...] = ()
    entries: tuple[Append, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored document. Its revision is the number of the commit that wrote it: never reused."""

    collection: str
    id: str
    revision: int
    body: bytes


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an index, which is a document too, and the document that it names, if there is one."""

    entry: Document
    document: Document | None


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A document as a commit left it; `body` is None when it was removed."""

    collection: str
    id: str
    revision: int
    body: bytes | None


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A journal entry. Numbers grow within a journal; they need not be consecutive."""

    journal: str
    number: int
    at: dt.datetime
    body: bytes


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one transaction. Numbers are consecutive over all transactions."""

    number: int
    epoch: Epoch
    at: dt.datetime
    changes: tuple[Change, ...]
    events: tuple[Event, ...]
    entries: tuple[Entry, ...]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the log: the last commit, event and journal entry, and the epoch that may write.

    `epoch` is the fence; the last event may be of an older one, `event_epoch`. To follow the log from here,
    start at `cursor`.
    """

    commit: int
    sequence: int
    entry: int
    epoch: Epoch
    batch: str
    event_epoch: Epoch = Epoch(0)

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.event_epoch, self.sequence)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every document of some collections as of one commit."""

    head: Head
    documents: tuple[Document, ...]


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch: the head *before* it, and for each transaction None or its refusal."""

    before: Head
    refusals: tuple[Refusal | None, ...]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The first document whose revision was not the expected one; `found` is ABSENT for none."""

    collection: str
    id: str
    expect: int
    found: int


class EventBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which sequence events are too old, or too many; 0: none."""

    through: int
    module_events_through: int


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as stored. Two equal rows mean that it was not renewed in between."""

    name: str
    holder: str
    epoch: Epoch
    counter: int
    info: str = ""


class BlobInfo(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    size: int


class BlobStamp(msgspec.Struct, frozen=True, kw_only=True):
    """A blob and when it was last marked as needed."""

    digest: str
    size: int
    at: dt.datetime


class CommitEngine(Protocol):
    """The writing side of an adapter: one connection, one batch at a time, called by `Writer` alone."""

    async def commit_batch(
        self, *, epoch: Epoch, batch: str, at: dt.datetime, transactions: Sequence[Transaction]
    ) -> BatchOutcome:
        """Check the fence, refuse what fails its compare-and-set, store the rest; atomic, one round trip.

        No two transactions of a batch touch the same document. Raises `Fenced` (for good),
        `StoreUnavailable` (not stored, or with `in_doubt` perhaps stored), `StorageFailed`.
        """

    async def resolve_batch(self, batch: str, *, epoch: Epoch) -> BatchOutcome | None:
        """Whether this batch, the last one sent, was stored. None: it was not and never will be.

        Cuts off any connection that may still be executing it. Raises `Fenced` when a successor leads by now
        (it has seen the batch, or it never will be stored), and `StoreUnavailable` when the caller has to try
        again.
        """

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        """Drop old events, tombstones and journal entries up to these numbers, at most some hundred
        rows a call; returns how many, 0 when all is done. Fenced, idempotent, safe beside commits. Of the
        chained journal, the last entry that was dropped stays known.
        """

    async def drop_module_events(self, *, epoch: Epoch, through: int) -> int:
        """Drop events that modules published, up to this sequence, from among the others, which stay; at most
        some hundred a call. Cursors stay valid, also those of dropped events: the log has holes then, and a
        reader sees them by the numbers. Returns how many, 0 when all is done. Fenced, idempotent."""


class ReadEngine(Protocol):
    """The reading side. Every result is committed state; failures are `StoreUnavailable`."""

    async def head(self) -> Head: ...

    async def snapshot(self, collections: Sequence[str] | None = None) -> Snapshot:
        """All live documents (of these collections) and the head, as of one instant."""

    async def get(self, collection: str, id: str) -> Document | None: ...

    async def get_many(self, collection: str, ids: Sequence[str]) -> list[Document]:
        """The existing ones of these documents, as of one instant, in no particular order."""

    async def scan(
        self,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[Document]:
        """Documents with after < id < before in the order of their ids, by code points; `newest` begins at
        the end and goes down. With `size` it ends with the document that fills so many bytes."""

    async def scan_index(
        self,
        index: str,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[IndexRow]:
        """As `scan` of the collection `index`, each entry with the document of `collection` that it names, all
        as of one instant. The body of an entry is a JSON array that begins with the document's id."""

    async def changes(self, after: int, *, limit: int) -> list[Change]:
        """The changes of commits after this number, in order, whole commits only; may be a few more than
        `limit`. A document changed several times appears once, as of its last change. Raises RESYNC_REQUIRED
        when tombstones after this number were already dropped."""

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        """Events after a cursor. RESYNC_REQUIRED when the cursor is not of this log, or too old."""

    async def event_bounds(self, *, events: int, of_modules: int, module_bytes: int) -> EventBounds:
        """Up to which sequence the log exceeds these limits: events in all, and events that modules published
        by count and by bytes of data."""

    async def cursor_at(self, sequence: int) -> Cursor:
        """A cursor that `events` accepts: of the event with this number, otherwise of the last dropped one
        when this was dropped too, otherwise of the newest."""

    async def entries(
        self,
        journal: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest: bool = False,
        prefix: bool = False,
    ) -> list[Entry]:
        """Entries with after < number < before, ascending; `newest` takes the last `limit` of them, `prefix`
        those of every journal whose name begins with it."""

    async def chain(self) -> ChainState:
        """The ends of the chain of CHAINED_JOURNAL, as of one instant."""

    async def chained_entries(
        self, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[ChainedEntry]:
        """Entries of CHAINED_JOURNAL with after < number < before, ascending, with their hashes."""

    async def journals(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        """Each journal with that prefix: (oldest number, row count)."""


class LeaseEngine(Protocol):
    """Leases: a row with a counter. Adapters never compare clocks; `Leadership` does the waiting."""

    async def read_lease(self, name: str) -> LeaseRow | None: ...

    async def take_lease(
        self, name: str, *, holder: str, seen: LeaseRow | None, info: str = ""
    ) -> LeaseRow | None:
        """Take the lease if it still is exactly as `seen`; None when it has changed. The new epoch is greater
        than any the store ever had. For the name LEADER this also moves the fence: it waits for, or cuts off,
        every write of an older epoch."""

    async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
        """Add one to the counter if this holder still has the lease; None when it has not."""

    async def release_lease(self, row: LeaseRow) -> None:
        """Release the lease so that a successor need not wait. Harmless when it is lost already."""

    async def raise_epoch(self, row: LeaseRow, *, by: int) -> LeaseRow | None:
        """Raise lease and fence together, as the holder."""


class BlobEngine(Protocol):
    """Content by digest. A blob is visible only when whole and verified; identical puts are one blob."""

    async def put_blob(self, chunks: AsyncIterator[bytes], *, expect: str | None = None) -> BlobInfo:
        """Store; with `expect` a different digest is refused (DIGEST_MISMATCH) and nothing kept."""

    async def blob_info(self, digest: str) -> BlobInfo | None: ...

    def read_blob(self, digest: str, *, offset: int = 0, chunk: int = 65536) -> AsyncIterator[bytes]:
        """The bytes from `offset`, in chunks; NOT_FOUND when there is no such blob."""

    async def delete_blob(self, digest: str) -> bool: ...

    async def put_blobs(self, contents: Sequence[bytes]) -> list[BlobInfo]:
        """Store many small ones, at most some MiB in all, for little more than one costs; idempotent."""

    async def blob_sizes(self, digests: Collection[str]) -> dict[str, int]:
        """The sizes of the existing ones."""

    def read_blobs(self, digests: Sequence[str]) -> AsyncIterator[bytes]:
        """One blob after the other, in this order, as one stream of bytes; NOT_FOUND names the first
        that is missing."""

    async def touch_blobs(self, digests: Collection[str], *, at: dt.datetime) -> set[str]:
        """Stamp blobs as needed; the missing ones are returned. A stamped blob is safe from `drop_blobs` with
        an older `before`: so a caller stamps what it finds, then commits the record that names it. A put
        stamps by itself."""

    async def blob_stamps(self, *, after: str = "", limit: int) -> list[BlobStamp]:
        """All blobs in the order of their digests."""

    async def drop_blobs(self, digests: Collection[str], *, before: dt.datetime) -> int:
        """Delete those whose stamp is older, compared and deleted in one step; returns how many."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """A whole store, opened, migrated and locked. Only the code that assembles a controller has it as a
    whole; all other code gets the engine that it uses."""

    name: str
    """The kind as the API shows it. Code never branches on this name: what depends on the kind of a store is
    a field here."""
    exclusive: bool
    """No other process can have it open: its opener leads without a contest."""
    commits: CommitEngine
    reads: ReadEngine
    leases: LeaseEngine
    blobs: BlobEngine
    close: Callable[[], Awaitable[None]]


LEADER: Final = "leader"
"""The lease whose holder may write."""


def encode(value: Any) -> bytes:
    """A value as a document body."""
    return _ENCODER.encode(value)


_ENCODER: Final = msgspec.json.Encoder(order="sorted")
