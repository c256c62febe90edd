"""Revisions of groups in a store: one of two starts that record the same number has to look again, and a later leader finds
what was recorded."""

from __future__ import annotations

import datetime as dt

import pytest
from store_cases import at_work

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import REVISIONS
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.plans import PlanArtifact, PlanTemplate
from corral.domain.groups.revisions import RevisionPins, RevisionRecord, revision_id
from corral.store.port import ABSENT, Put, Store
from corral.store.store_errors import Conflict

NUMBERS = (1, 2, 9, 10, 11)


def revision(number: int) -> RevisionRecord:
    return RevisionRecord(
        group="lobby",
        number=number,
        spec=GroupSpec(name="lobby", command=("serve",), env={"A": str(number)}),
        pins=RevisionPins(
            templates=(PlanTemplate(name="files", version=number, hash="h", override=False),),
            artifact=PlanArtifact(file="a.jar", sha256="a" * 64),
        ),
        basis=f"basis-{number}",
        created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        by="admin",
        trigger="manual",
    )


def step(number: int, *, expect: int = ABSENT) -> Put:
    return REVISIONS.put(revision_id("lobby", number), revision(number), expect=expect)


async def test_of_two_starts_that_record_the_same_number_one_conflicts(store: Store) -> None:
    async with at_work(store) as desk:
        await desk.commit(step(1))
        with pytest.raises(Conflict):
            await desk.commit(step(1))


async def test_a_later_leader_finds_every_revision_and_which_is_the_newest(store: Store) -> None:
    async with at_work(store) as desk:
        for number in NUMBERS:
            await desk.commit(step(number))
        await desk.commit(REVISIONS.delete(revision_id("lobby", 2), expect=None))
    state = ClusterState()
    state.load(await store.reads.snapshot(state.collections))
    assert state.revisions.numbers("lobby") == [1, 9, 10, 11]
    assert state.revisions.newest("lobby") == revision(11)
    assert [each.record for each in state.revisions.of_group("lobby")] == [
        revision(number) for number in NUMBERS if number != 2
    ]
