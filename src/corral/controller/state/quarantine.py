"""Unreadable documents of the store: listed, left unchanged, and isolated from all others.

A document may be damaged, or of a version that this controller does not understand. Then it is in the store
but not in memory: nothing may be written in its place, nothing that it may refer to counts as removed, and
all other documents work. Documents that a node can report again are the exception (`REPLACEABLE`): they are
listed until they are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corral.controller.state.collections import MODULE_NODE_STATES, SPOOLS
from corral.errors import Code, Rejected
from corral.store.port import Delete, Put

REPLACEABLE: Final = frozenset({SPOOLS.name, MODULE_NODE_STATES.name})
"""The position of a node's spool: without it the node sends again what it still has, and records that were
stored already have no second effect. And the state of a module on a node, which the node reports again."""
_REASON: Final = 300


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable document of the store, and the reason."""

    collection: str
    id: str
    revision: int
    reason: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class Quarantine:
    """The unreadable documents of one term; normally none."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Unreadable] = {}

    def __bool__(self) -> bool:
        return bool(self._documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Unreadable]:
        return iter(sorted(self._documents.values(), key=str))

    def add(self, collection: str, id: str, revision: int, error: Exception) -> Unreadable:
        reason = f"{type(error).__name__}: {error}"[:_REASON].encode(errors="replace").decode()
        found = Unreadable(collection=collection, id=id, revision=revision, reason=reason)
        self._documents[collection, id] = found
        return found

    def holds(self, collection: str, id: str) -> bool:
        return (collection, id) in self._documents

    def of(self, collection: str) -> list[Unreadable]:
        return [found for found in self if found.collection == collection]

    def owners(self, *collections: str) -> set[str]:
        """The ids of unreadable documents of these collections, up to the first slash: of `NODE/INSTANCE`, the nodes."""
        return {id.partition("/")[0] for collection, id in self._documents if collection in collections}

    def revision(self, collection: str, id: str) -> int | None:
        """The revision for a compare-and-set that replaces the document; None when it is not in quarantine."""
        found = self._documents.get((collection, id))
        return found.revision if found is not None else None

    def release(self, collection: str, id: str) -> None:
        """Remove a document from the quarantine: it was replaced or deleted."""
        self._documents.pop((collection, id), None)

    def among(self, writes: Iterable[object]) -> Unreadable | None:
        """The first of these writes that would touch a document in quarantine that is not replaceable."""
        for write in writes if self._documents else ():
            if isinstance(write, Put | Delete) and write.collection not in REPLACEABLE:
                found = self._documents.get((write.collection, write.id))
                if found is not None:
                    return found
        return None

    def check(self, writes: Iterable[object]) -> None:
        """Raise FORMAT_INVALID for writes that would overwrite a document in quarantine."""
        found = self.among(writes)
        if found is not None:
            raise unreadable(found)


class NotOverwritten(Rejected):
    """The write would overwrite an unreadable document. The same write succeeds once that document is
    repaired."""


def unreadable(found: Unreadable) -> NotOverwritten:
    return NotOverwritten(
        Code.FORMAT_INVALID,
        f"the document {found} in the store cannot be read ({found.reason}), and is not overwritten",
        hint="run the version of Corral that wrote it, or restore it from a backup; `corral cluster status` lists all",
    )
