"""Documents of the store that cannot be read: named, left as they are, and in nobody's way.

A document may be damaged, or of a version that this one does not understand. It is not in memory then, but it is
in the store: nothing may be written in its place, nothing that it may speak of is taken for gone, and all other
documents work. What others can say again is the exception (`REPLACEABLE`): it is listed until it is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corral.controller.state.collections import MODULE_NODE_STATES, SPOOLS
from corral.errors import Code, Rejected
from corral.store.port import Delete, Put

REPLACEABLE: Final = frozenset({SPOOLS.name, MODULE_NODE_STATES.name})
"""The position of a node's spool: from an unknown one the node sends again what it still has, and what was stored
already has no second effect on any instance. And how a module stands on a node, as the node told last."""
_REASON: Final = 300


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it lies in the store, and what is wrong with it."""

    collection: str
    id: str
    revision: int
    reason: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class Quarantine:
    """Those of one term; empty, as a rule."""

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

    def revision(self, collection: str, id: str) -> int | None:
        """What a compare-and-set that replaces it shall expect; None: it is not one of them."""
        found = self._documents.get((collection, id))
        return found.revision if found is not None else None

    def release(self, collection: str, id: str) -> None:
        """It was replaced or removed."""
        self._documents.pop((collection, id), None)

    def among(self, writes: Iterable[object]) -> Unreadable | None:
        """The first of these writes that would touch one of them that must stay as it is."""
        for write in writes if self._documents else ():
            if isinstance(write, Put | Delete) and write.collection not in REPLACEABLE:
                found = self._documents.get((write.collection, write.id))
                if found is not None:
                    return found
        return None

    def check(self, writes: Iterable[object]) -> None:
        """FORMAT_INVALID for what would overwrite one of them."""
        found = self.among(writes)
        if found is not None:
            raise unreadable(found)


class NotOverwritten(Rejected):
    """A document that cannot be read is in the way. The same write succeeds once it is repaired."""


def unreadable(found: Unreadable) -> NotOverwritten:
    return NotOverwritten(
        Code.FORMAT_INVALID,
        f"the document {found} in the store cannot be read ({found.reason}), and is not overwritten",
        hint="run the version of Corral that wrote it, or restore it from a backup; `corral cluster status` lists all",
    )
