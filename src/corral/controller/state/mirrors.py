"""The live documents of a collection, in memory: a fold over what commits changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from corral.controller.state.collections import IDEMPOTENCY, StateCollection
from corral.controller.state.sorted_keys import SortedKeys
from corral.domain.records import IdempotencyRecord, Record
from corral.errors import Code, Rejected, nearest
from corral.store.port import ABSENT

R = TypeVar("R", bound=Record)

_GUESSES: Final = 500
"""The number of ids among which a similar one is searched: comparing with ten thousand would block the loop.
"""


class StoredRecord(msgspec.Struct, Generic[R], frozen=True):
    """A record with the revision under which it is stored."""

    revision: int
    record: R


_LISTS: Final = {
    noun: f"'corral {noun} list' shows those that exist"
    for noun in ("node", "group", "instance", "deployment", "module", "template", "token")
}


class Mirror(Generic[R]):
    """The live documents of one collection, by id."""

    def __init__(self, collection: StateCollection[R], noun: str) -> None:
        self.collection = collection
        self._noun = noun
        self._documents: dict[str, StoredRecord[R]] = {}
        self._ids = SortedKeys()
        self.folds = 0
        """Grows with each change: what is derived from all documents holds as long as it is the same."""

    def find(self, id: str) -> StoredRecord[R] | None:
        return self._documents.get(id)

    def require(self, id: str) -> StoredRecord[R]:
        """The document; raises NOT_FOUND with the most similar id."""
        found = self._documents.get(id)
        if found is None:
            guess = nearest(id, itertools.islice(self._documents, _GUESSES))
            raise Rejected(
                Code.NOT_FOUND,
                f"{self._noun} '{id[:80]}' does not exist",
                hint=f"did you mean '{guess}'?" if guess else _LISTS.get(self._noun),
            )
        return found

    def revision(self, id: str) -> int:
        """The revision that a compare-and-set expects: the stored one, or ABSENT."""
        found = self._documents.get(id)
        return found.revision if found else ABSENT

    def __iter__(self) -> Iterator[StoredRecord[R]]:
        return iter(list(self._documents.values()))

    def __len__(self) -> int:
        return len(self._documents)

    def items(self) -> list[tuple[str, StoredRecord[R]]]:
        """All documents in the order of their ids."""
        return [(id, self._documents[id]) for id in self._ids]

    def ids(self) -> Sequence[str]:
        """All ids in order; valid until the next commit."""
        return self._ids.in_order()

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        self.folds += 1
        if body is None:
            if self._documents.pop(id, None) is not None:
                self._ids.discard(id)
            return
        stored = StoredRecord(revision, self.collection.decode(body))
        if id not in self._documents:
            self._ids.add(id)
        self._documents[id] = stored


class IdempotencyMirror(Mirror[IdempotencyRecord]):
    """Idempotency records, and the number of records without a known outcome for each token."""

    def __init__(self) -> None:
        super().__init__(IDEMPOTENCY, "idempotency record")
        self._begun: Counter[str] = Counter()

    def begun_by(self, token: str) -> int:
        return self._begun[token]

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        self._count(id, -1)
        super().fold(id, revision, body)
        self._count(id, 1)

    def _count(self, id: str, change: int) -> None:
        stored = self._documents.get(id)
        begun = stored.record.begun if stored is not None else None
        if begun is None or begun.undone:
            return
        token = begun.token
        self._begun[token] += change
        if not self._begun[token]:
            del self._begun[token]
