"""The committer of simulations refuses and numbers transactions as a database does."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_cases import Desk, drop, put

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Committer
from corral.simulation.memory_store import MemoryStore
from corral.simulation.virtual_time import VirtualClock
from corral.store.port import ABSENT, Transaction
from corral.store.store_errors import Conflict

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CASES = itertools.count()
"""Each example has documents of its own: the store is shared by all of them."""
IDS = ("a", "b", "c")
EXPECTED = st.sampled_from(("any", "absent", "right", "stale"))
WRITES = st.lists(
    st.tuples(st.sampled_from(IDS), st.booleans(), EXPECTED),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
)


class Outcomes:
    """What a committer does with one transaction after another; revisions are given as the transaction that set them."""

    def __init__(self, committer: Committer, case: str) -> None:
        self._committer = committer
        self._case = case
        self._revisions: dict[str, int] = {}
        self._numbers: dict[int, int] = {}

    async def of(self, number: int, writes: list[tuple[str, bool, str]]) -> Any:
        made = tuple(self._write(*each) for each in writes)
        try:
            commit = await self._committer.commit(Transaction(writes=made))
        except Conflict as refused:
            found = refused.refusal
            return refused.code, found.id, self._numbers.get(found.found, found.found)
        self._numbers[commit.number] = number
        for change in commit.changes:
            if change.body is None:
                self._revisions.pop(change.id, None)
            else:
                self._revisions[change.id] = change.revision
        return [(each.id, self._numbers[each.revision], each.body) for each in commit.changes]

    def _write(self, id: str, keeps: bool, expected: str) -> Any:
        id = f"{self._case}-{id}"
        known = self._revisions.get(id, ABSENT)
        expect = {"any": None, "absent": ABSENT, "right": known, "stale": known + 1_000_000}[expected]
        return put(id, b"x", expect=expect) if keeps else drop(id, expect=expect)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=st.lists(WRITES, min_size=1, max_size=6))
async def test_it_answers_each_transaction_as_the_stores_do(
    desk: Desk, transactions: list[list[tuple[str, bool, str]]]
) -> None:
    case = f"case-{next(CASES)}"
    stored = Outcomes(desk.writer, case)
    modelled = Outcomes(MemoryStore(ClusterState(), VirtualClock(START)), case)
    for number, writes in enumerate(transactions):
        assert await modelled.of(number, writes) == await stored.of(number, writes)
