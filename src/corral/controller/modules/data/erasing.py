"""Deleting and copying whole collections of the store, a bounded piece at a time."""

from __future__ import annotations

from typing import Final

from corral.controller.state.ledger import Ledger
from corral.store.port import Delete, Put, ReadEngine

ROWS: Final = 500
PAGE_BYTES: Final = 1024 * 1024


async def erase(reads: ReadEngine, ledger: Ledger, collection: str) -> int:
    """Delete every document of a collection; returns how many. Whoever is cut short can begin again."""
    erased, after = 0, ""
    while page := await reads.scan(collection, after=after, limit=ROWS, size=PAGE_BYTES):
        await ledger.commit(
            *(Delete(collection=collection, id=document.id, expect=None) for document in page)
        )
        erased += len(page)
        after = page[-1].id
    return erased


async def copy(reads: ReadEngine, ledger: Ledger, source: str, target: str) -> None:
    """Put every document of one collection into another as it is."""
    after = ""
    while page := await reads.scan(source, after=after, limit=ROWS, size=PAGE_BYTES):
        await ledger.commit(
            *(Put(collection=target, id=document.id, body=document.body, expect=None) for document in page)
        )
        after = page[-1].id
