"""Commits: every change of the store is one transaction with its events and its audit entry, all or nothing.

A `Mutation` is such a change as a value. The handler of a request reads the state and describes the change;
it does not commit it. So the handler can run again after a conflict, and the idempotency record and the audit
entry are in the same transaction as the change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
import structlog

from corral.controller.state.cluster_state import ClusterState, Mirror, StoredRecord
from corral.controller.state.collections import AUDIT
from corral.domain.event_schemas.catalog import data_fault
from corral.domain.events import Draft, EventType
from corral.domain.records import AuditEntry, Record
from corral.domain.sensitive_fields import undeclared_fields
from corral.errors import Code, Rejected, Retryable
from corral.store.port import Append, Commit, Delete, Put, Transaction
from corral.store.store_errors import Conflict
from corral.system import log_context

R = TypeVar("R", bound=Record)

Step = Put | Delete | Draft | Append

_ATTEMPTS: Final = 20
_MOST_REPORTED: Final = 1000
"""Of different faults in the data of events: each is logged once."""
_NO_CLASS: Final = "it has no class in corral.domain.field_classes.event_data"
_NO_FIT: Final = "its data differs from its schema in corral.domain.event_schemas"
_log = structlog.get_logger("corral.controller.state")


class UndeclaredEventField(UserWarning):
    """An event's data has a field of which nobody said who may see it."""


class UndeclaredEventData(UserWarning):
    """An event's data is not of the form that its schema declares."""


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The principal of an operation, for the audit."""

    name: str
    address: str = ""
    label: str = ""
    """The display name of the actor, such as the name of a token."""


SYSTEM: Final = Actor(name="system")


class Committer(Protocol):
    """The part of the store's writer that the ledger uses."""

    async def commit(self, transaction: Transaction) -> Commit: ...


class Ledger:
    """Commits steps; memory has already changed when `commit` returns."""

    def __init__(self, writer: Committer, state: ClusterState) -> None:
        self._writer = writer
        self.state = state
        self._reported: set[tuple[EventType, str]] = set()

    async def commit(self, *steps: Step) -> Commit:
        """Commit all steps in one transaction. Raises `Conflict`, `StoreUnavailable`, `Fenced`;
        FORMAT_INVALID for a write that would replace an unreadable document."""
        self.state.quarantine.check(steps)
        for step in steps:
            if isinstance(step, Draft):
                self._report_undeclared(step)
                self._report_fault(step)
        return await self._writer.commit(
            Transaction(
                writes=tuple(step for step in steps if isinstance(step, Put | Delete)),
                events=tuple(step for step in steps if isinstance(step, Draft)),
                entries=tuple(step for step in steps if isinstance(step, Append)),
            )
        )

    def _report_undeclared(self, draft: Draft) -> None:
        """Say once which data of an event has no class: most readers do not see it. Tests fail by the warning."""
        for name in undeclared_fields(draft):
            if (draft.type, name) not in self._reported:
                self._reported.add((draft.type, name))
                _log.error("event_field.refused", type=draft.type.value, name=name, reason=_NO_CLASS)
            warnings.warn(f"{draft.type}.{name}: {_NO_CLASS}", UndeclaredEventField, stacklevel=3)

    def _report_fault(self, draft: Draft) -> None:
        """Say once how the data of an event differs from what is documented. Tests fail by the warning."""
        fault = data_fault(draft.type, draft.data)
        if not fault:
            return
        if (draft.type, fault) not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add((draft.type, fault))
            _log.error("event_data.refused", type=draft.type.value, reason=f"{_NO_FIT}: {fault}")
        warnings.warn(f"{draft.type}: {_NO_FIT}: {fault}", UndeclaredEventData, stacklevel=3)

    async def revise(
        self,
        mirror: Mirror[R],
        id: str,
        change: Callable[[StoredRecord[R]], tuple[R, Sequence[Step]] | None],
        *,
        expect: int | None = None,
    ) -> StoredRecord[R]:
        """Change one record by a pure function; after a conflict with another writer the function runs again
        on the new record.

        `change` returns the new record and the steps that go with it, or None for "no change needed". With
        `expect` the caller requires that revision, and a mismatch raises `Conflict`.
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
    request: str = "",
    outcome: str = "",
    attempt: str = "",
) -> Append:
    """The audit entry of a change, for the same transaction. `request`: the id of the request that made it, else of
    the one that is served here. `outcome` and `attempt` are those of an act outside the store."""
    return AUDIT.append(
        AuditEntry(
            actor=actor.name,
            actor_name=actor.label,
            action=action,
            subject=subject,
            address=actor.address,
            before=before,
            after=after,
            request=request or log_context.bound_request(),
            outcome=outcome,
            attempt=attempt,
        )
    )


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """A change as a value. Without `steps` the desired state is already stored, and only `body` is answered.

    `body` is a response schema; a field `revision` in it is filled with the number of the commit.
    """

    action: str
    subject: str
    steps: tuple[Step, ...]
    body: Any = None
    status: int = 200
    before: dict[str, object] | None = None
    after: dict[str, object] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """More headers of the answer, such as a cookie; an answer that is given again lacks them."""
    failed: str = ""
    """The code with which an act outside the store failed that is answered all the same; empty: it did not."""
    remembered: bool = True
    """Its answer is kept under the request's idempotency key; not needed where nothing is changed."""
    afterwards: Callable[[], object] | None = None
    """Of an `Act`: called once it is recorded, just before its answer is sent."""


class RecordedRefusal(Rejected):
    """A refusal that is stored: its `steps` are committed before the caller receives it. While a node of
    `returning` may reconnect within moments, the request waits for that first."""

    def __init__(self, error: Rejected, *, steps: tuple[Step, ...], returning: Collection[str] = ()) -> None:
        super().__init__(error.code, error.message, hint=error.hint, field=error.field)
        self.steps = steps
        self.returning = frozenset(returning)
