"""A store in memory: it checks the revisions of a transaction as a database does, and keeps only the newest documents."""

from __future__ import annotations

from collections.abc import Callable

from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import Cursor, Event
from corral.domain.ids import Epoch
from corral.store.port import ABSENT, Append, Change, Commit, Put, Refusal, Transaction
from corral.store.store_errors import Conflict
from corral.system.clock import Clock

CommitFollower = Callable[[Commit], None]


class MemoryStore:
    """The `Committer` of a ledger. A commit is in the state, and known to its followers, when `commit` returns."""

    def __init__(self, state: ClusterState, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._revisions: dict[tuple[str, str], int] = {}
        self._events = 0
        self.epoch = Epoch(1)
        self.followers: list[CommitFollower] = []
        self.appended: Callable[[tuple[Append, ...]], None] = lambda _: None
        """Called with the journal entries of each transaction, which are not kept."""

    async def commit(self, transaction: Transaction) -> Commit:
        number = self._state.number + 1
        now = self._clock.now()
        for write in transaction.writes:
            found = self._revisions.get((write.collection, write.id), ABSENT)
            if write.expect is not None and write.expect != found:
                refusal = Refusal(collection=write.collection, id=write.id, expect=write.expect, found=found)
                raise Conflict(refusal)
        changes = []
        for write in transaction.writes:
            body = write.body if isinstance(write, Put) else None
            if body is None:
                self._revisions.pop((write.collection, write.id), None)
            else:
                self._revisions[write.collection, write.id] = number
            changes.append(Change(collection=write.collection, id=write.id, revision=number, body=body))
        events = []
        for draft in transaction.events:
            self._events += 1
            cursor = Cursor(self.epoch, self._events)
            events.append(
                Event(cursor=cursor, type=draft.type, subject=draft.subject, at=now, data=draft.data)
            )
        commit = Commit(
            number=number,
            epoch=self.epoch,
            at=now,
            changes=tuple(changes),
            events=tuple(events),
            entries=(),
        )
        self._state.apply(commit)
        self.appended(transaction.entries)
        for follow in self.followers:
            follow(commit)
        return commit
