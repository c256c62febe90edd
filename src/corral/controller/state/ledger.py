"""The one way to change anything: a transaction with its events and its audit entry, all or nothing.

A `Mutation` is such a change as a value. The handler of a request reads the state and describes the change; it does not
make it. So it can run again after a conflict, and the idempotency record and the audit entry are in the same
transaction as the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from corral.controller.state.cluster_state import ClusterState, Mirror, Stored
from corral.controller.state.collections import AUDIT
from corral.domain.events import Draft
from corral.domain.records import AuditEntry, Record
from corral.errors import Code, Rejected, Retryable
from corral.store.port import Append, Commit, Delete, Put, Transaction
from corral.store.store_errors import Conflict

R = TypeVar("R", bound=Record)

Step = Put | Delete | Draft | Append

_ATTEMPTS: Final = 20


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf something is done, for the audit."""

    name: str
    address: str = ""
    label: str = ""
    """What people call the actor: the name of a token, for one."""


SYSTEM: Final = Actor(name="system")


class Committer(Protocol):
    """What the ledger needs of the store's writer."""

    async def commit(self, transaction: Transaction) -> Commit: ...


class Ledger:
    """Commits steps; memory has already changed when `commit` returns."""

    def __init__(self, writer: Committer, state: ClusterState) -> None:
        self._writer = writer
        self.state = state

    async def commit(self, *steps: Step) -> Commit:
        """All steps in one transaction. Raises `Conflict`, `StoreUnavailable`, `Fenced`; FORMAT_INVALID for what
        would overwrite a document that cannot be read."""
        self.state.quarantine.check(steps)
        return await self._writer.commit(
            Transaction(
                writes=tuple(step for step in steps if isinstance(step, Put | Delete)),
                events=tuple(step for step in steps if isinstance(step, Draft)),
                entries=tuple(step for step in steps if isinstance(step, Append)),
            )
        )

    async def revise(
        self,
        mirror: Mirror[R],
        id: str,
        change: Callable[[Stored[R]], tuple[R, Sequence[Step]] | None],
        *,
        expect: int | None = None,
    ) -> Stored[R]:
        """Change one record by a pure function, again from the start when somebody was faster.

        `change` gives the new record and the steps that go with it, or None for "already so".
        With `expect` the caller insists on that revision and a mismatch is a `Conflict` for him.
        """
        for _ in range(_ATTEMPTS):
            current = mirror.require(id)
            outcome = change(current)
            if outcome is None:
                return current
            record, steps = outcome
            revision = current.revision if expect is None else expect
            try:
                await self.commit(mirror.collection.put(id, record, expect=revision), *steps)
            except Conflict:
                if expect is not None:
                    raise
                continue
            return mirror.require(id)
        raise Retryable(
            Code.CONFLICT,
            f"{mirror.collection.name}/{id} changed {_ATTEMPTS} times while it was being changed",
            hint="try again",
            retry_after=1.0,
        )


def audit(
    actor: Actor,
    action: str,
    subject: str,
    *,
    before: dict[str, object] | None = None,
    after: dict[str, object] | None = None,
) -> Append:
    """The audit entry that goes into the same transaction as what it describes."""
    return AUDIT.append(
        AuditEntry(
            actor=actor.name,
            actor_name=actor.label,
            action=action,
            subject=subject,
            address=actor.address,
            before=before,
            after=after,
        )
    )


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` may be empty: then everything is already as wanted and only `body` is answered.

    `body` is a response shape; a field `revision` in it is filled with the number of the commit.
    """

    action: str
    subject: str
    steps: tuple[Step, ...]
    body: Any = None
    status: int = 200
    before: dict[str, object] | None = None
    after: dict[str, object] | None = None


class RecordedRefusal(Rejected):
    """A refusal that is a decision itself: its `steps` are stored before the caller hears it. While a node of
    `returning` may be back in a moment, the caller waits for that first."""

    def __init__(self, error: Rejected, *, steps: tuple[Step, ...], returning: Collection[str] = ()) -> None:
        super().__init__(error.code, error.message, hint=error.hint, field=error.field)
        self.steps = steps
        self.returning = frozenset(returning)
