"""Memory as a fold over commits: what the controller serves is what the store has taken.

`apply` is the only mutator. It runs once per commit, in commit order, on a leader right after
the commit and on a follower from the same log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

from corral.controller.collections import (
    ADMIN_CERTIFICATES,
    AUTHORITY,
    CLUSTER,
    IDEMPOTENCY,
    JOIN_TOKENS,
    NODES,
    ONLY,
    SPOOLS,
    TOKENS,
    Collection,
)
from corral.domain.records import AuthorityRecord, ClusterRecord, Record
from corral.errors import Bug, Code, Rejected, nearest
from corral.store.port import ABSENT, Commit, Snapshot

R = TypeVar("R", bound=Record)


class Stored(msgspec.Struct, Generic[R], frozen=True):
    """A record with the revision under which it is stored."""

    revision: int
    record: R


class Mirror(Generic[R]):
    """The live documents of one collection, by id."""

    def __init__(self, collection: Collection[R], noun: str) -> None:
        self.collection = collection
        self._noun = noun
        self._documents: dict[str, Stored[R]] = {}

    def find(self, id: str) -> Stored[R] | None:
        return self._documents.get(id)

    def require(self, id: str) -> Stored[R]:
        """The document, or NOT_FOUND with the nearest id there is."""
        found = self._documents.get(id)
        if found is None:
            guess = nearest(id, self._documents)
            raise Rejected(
                Code.NOT_FOUND,
                f"{self._noun} '{id[:80]}' does not exist",
                hint=f"did you mean '{guess}'?" if guess else None,
            )
        return found

    def revision(self, id: str) -> int:
        """What a compare-and-set shall expect: the stored revision, or ABSENT."""
        found = self._documents.get(id)
        return found.revision if found else ABSENT

    def __iter__(self) -> Iterator[Stored[R]]:
        return iter(list(self._documents.values()))

    def __len__(self) -> int:
        return len(self._documents)

    def items(self) -> list[tuple[str, Stored[R]]]:
        """All documents in the order of their ids."""
        return sorted(self._documents.items())

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        if body is None:
            self._documents.pop(id, None)
        else:
            self._documents[id] = Stored(revision, self.collection.decode(body))


class ClusterState:
    """Everything the controller answers from, as of commit `number`."""

    def __init__(self) -> None:
        self.number = 0
        self.cluster: Final = Mirror(CLUSTER, "cluster")
        self.authority: Final = Mirror(AUTHORITY, "authority")
        self.nodes: Final = Mirror(NODES, "node")
        self.spools: Final = Mirror(SPOOLS, "spool")
        self.join_tokens: Final = Mirror(JOIN_TOKENS, "join token")
        self.tokens: Final = Mirror(TOKENS, "token")
        self.admin_certificates: Final = Mirror(ADMIN_CERTIFICATES, "administrator's certificate")
        self.idempotency: Final = Mirror(IDEMPOTENCY, "idempotency record")
        mirrors: tuple[Mirror[Record], ...] = (  # type: ignore[assignment]  # each folds its own type
            self.cluster,
            self.authority,
            self.nodes,
            self.spools,
            self.join_tokens,
            self.tokens,
            self.admin_certificates,
            self.idempotency,
        )
        self._mirrors = {mirror.collection.name: mirror for mirror in mirrors}

    @property
    def collections(self) -> list[str]:
        """The collections held in memory; a snapshot to load from needs no others."""
        return list(self._mirrors)

    def load(self, snapshot: Snapshot) -> None:
        """Begin from the store's truth, forgetting nothing because there is nothing yet."""
        if self.number:
            raise Bug("a cluster state is loaded once; build a new one to start over")
        for document in snapshot.documents:
            self._fold(document.collection, document.id, document.revision, document.body)
        self.number = snapshot.head.commit

    def apply(self, commit: Commit) -> None:
        if commit.number != self.number + 1:
            raise Bug(f"commit {commit.number} cannot follow commit {self.number}")
        for change in commit.changes:
            self._fold(change.collection, change.id, change.revision, change.body)
        self.number = commit.number

    def _fold(self, collection: str, id: str, revision: int, body: bytes | None) -> None:
        mirror = self._mirrors.get(collection)
        if mirror is not None:
            mirror.fold(id, revision, body)

    @property
    def identity(self) -> ClusterRecord:
        return self.cluster.require(ONLY).record

    @property
    def authorities(self) -> AuthorityRecord:
        return self.authority.require(ONLY).record
