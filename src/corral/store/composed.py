"""A whole store out of its four engines, so that each engine can be read and tested by itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from corral.domain.events import Cursor, Event
from corral.domain.ids import Epoch
from corral.store.port import (
    BatchOutcome,
    BlobEngine,
    BlobInfo,
    BlobStamp,
    Change,
    CommitEngine,
    Document,
    Entry,
    EventBounds,
    Head,
    IndexRow,
    LeaseEngine,
    LeaseRow,
    ReadEngine,
    Snapshot,
    Transaction,
)


class ComposedStore:
    """An `Adapter` that hands every call to the engine it belongs to; it adds nothing."""

    def __init__(
        self,
        *,
        name: str,
        commits: CommitEngine,
        reads: ReadEngine,
        leases: LeaseEngine,
        blobs: BlobEngine,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self._commits = commits
        self._reads = reads
        self._leases = leases
        self._blobs = blobs
        self._close = close

    async def close(self) -> None:
        await self._close()

    # writing

    async def commit_batch(
        self, *, epoch: Epoch, batch: str, at: dt.datetime, transactions: Sequence[Transaction]
    ) -> BatchOutcome:
        return await self._commits.commit_batch(epoch=epoch, batch=batch, at=at, transactions=transactions)

    async def resolve_batch(self, batch: str, *, epoch: Epoch) -> BatchOutcome | None:
        return await self._commits.resolve_batch(batch, epoch=epoch)

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        return await self._commits.trim(
            epoch=epoch,
            events_through=events_through,
            tombstones_through=tombstones_through,
            journals=journals,
        )

    async def drop_module_events(self, *, epoch: Epoch, through: int) -> int:
        return await self._commits.drop_module_events(epoch=epoch, through=through)

    # reading

    async def head(self) -> Head:
        return await self._reads.head()

    async def snapshot(self, collections: Sequence[str] | None = None) -> Snapshot:
        return await self._reads.snapshot(collections)

    async def get(self, collection: str, id: str) -> Document | None:
        return await self._reads.get(collection, id)

    async def get_many(self, collection: str, ids: Sequence[str]) -> list[Document]:
        return await self._reads.get_many(collection, ids)

    async def scan(
        self,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        newest: bool = False,
    ) -> list[Document]:
        return await self._reads.scan(collection, after=after, before=before, limit=limit, newest=newest)

    async def scan_index(
        self,
        index: str,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        newest: bool = False,
    ) -> list[IndexRow]:
        return await self._reads.scan_index(
            index, collection, after=after, before=before, limit=limit, newest=newest
        )

    async def changes(self, after: int, *, limit: int) -> list[Change]:
        return await self._reads.changes(after, limit=limit)

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        return await self._reads.events(after, limit=limit)

    async def event_bounds(self, *, events: int, of_modules: int, module_bytes: int) -> EventBounds:
        return await self._reads.event_bounds(events=events, of_modules=of_modules, module_bytes=module_bytes)

    async def cursor_at(self, sequence: int) -> Cursor:
        return await self._reads.cursor_at(sequence)

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
        return await self._reads.entries(
            journal, after=after, before=before, limit=limit, newest=newest, prefix=prefix
        )

    async def journals(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        return await self._reads.journals(prefix)

    # leases

    async def read_lease(self, name: str) -> LeaseRow | None:
        return await self._leases.read_lease(name)

    async def take_lease(
        self, name: str, *, holder: str, seen: LeaseRow | None, info: str = ""
    ) -> LeaseRow | None:
        return await self._leases.take_lease(name, holder=holder, seen=seen, info=info)

    async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
        return await self._leases.renew_lease(row)

    async def release_lease(self, row: LeaseRow) -> None:
        await self._leases.release_lease(row)

    async def raise_epoch(self, row: LeaseRow, *, by: int) -> LeaseRow | None:
        return await self._leases.raise_epoch(row, by=by)

    # blobs

    async def put_blob(self, chunks: AsyncIterator[bytes], *, expect: str | None = None) -> BlobInfo:
        return await self._blobs.put_blob(chunks, expect=expect)

    async def blob_info(self, digest: str) -> BlobInfo | None:
        return await self._blobs.blob_info(digest)

    def read_blob(self, digest: str, *, offset: int = 0, chunk: int = 65536) -> AsyncIterator[bytes]:
        return self._blobs.read_blob(digest, offset=offset, chunk=chunk)

    async def delete_blob(self, digest: str) -> bool:
        return await self._blobs.delete_blob(digest)

    async def put_blobs(self, contents: Sequence[bytes]) -> list[BlobInfo]:
        return await self._blobs.put_blobs(contents)

    async def blob_sizes(self, digests: Collection[str]) -> dict[str, int]:
        return await self._blobs.blob_sizes(digests)

    def read_blobs(self, digests: Sequence[str]) -> AsyncIterator[bytes]:
        return self._blobs.read_blobs(digests)

    async def touch_blobs(self, digests: Collection[str], *, at: dt.datetime) -> set[str]:
        return await self._blobs.touch_blobs(digests, at=at)

    async def blob_stamps(self, *, after: str = "", limit: int) -> list[BlobStamp]:
        return await self._blobs.blob_stamps(after=after, limit=limit)

    async def drop_blobs(self, digests: Collection[str], *, before: dt.datetime) -> int:
        return await self._blobs.drop_blobs(digests, before=before)
