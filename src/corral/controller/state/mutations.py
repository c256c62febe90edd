"""A mutation as a value: what to store, what to tell the caller, what the audit shall say.

A handler looks at the state and describes the change; it does not make it. So it can be run
again when somebody else was faster, and the idempotency record and the audit entry travel in
the same transaction as the change.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from corral.controller.state.ledger import Step
from corral.errors import Rejected


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
