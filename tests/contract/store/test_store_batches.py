"""One batch, handed to the engine as the writer does: what it refuses, what it numbers, what it leaves alone."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import Sequence

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_cases import Desk, House, at_work, drop, happened, put, transaction

from corral.domain.events import START
from corral.errors import Code
from corral.store.migrations import load_migrations
from corral.store.port import ABSENT, Append, BatchOutcome, Commit, Delete, Put, Refusal, Transaction
from corral.store.store_errors import Conflict, StoreUnavailable

AT = dt.datetime(2026, 11, 17, tzinfo=dt.UTC)
NAMES = itertools.count(1)


async def batch(desk: Desk, *transactions: Transaction) -> BatchOutcome:
    """Around the writer, which would never let a document occur twice."""
    return await desk.store.commits.commit_batch(
        epoch=desk.epoch, batch=f"by-hand-{next(NAMES)}", at=AT, transactions=transactions
    )


def refusal(id: str, *, expect: int, found: int) -> Refusal:
    return Refusal(collection="things", id=id, expect=expect, found=found)


async def test_a_refusal_in_the_middle_of_a_batch_leaves_its_neighbours_whole(desk: Desk) -> None:
    there = (await desk.commit(put("changed"), put("removed"), put("kept"), put("also kept"))).number
    outcome = await batch(
        desk,
        transaction(put("changed", b"1", expect=there), put("new", expect=ABSENT), happened("first", n=1)),
        transaction(
            put("also kept", b"never", expect=there),
            put("never", expect=ABSENT),
            put("kept", b"never", expect=there + 7),
            put("any", b"never"),
            happened("second"),
            Append(journal="audit", body=b"second"),
        ),
        transaction(
            drop("removed", expect=there),
            put("any", b"3"),
            happened("third"),
            happened("third"),
            Append(journal="audit", body=b"third"),
        ),
    )
    assert outcome.refusals == (None, refusal("kept", expect=there + 7, found=there), None)
    assert {id: (d.revision, d.body) for (_, id), d in (await desk.stored()).items()} == {
        "changed": (there + 1, b"1"),
        "new": (there + 1, b"{}"),
        "any": (there + 2, b"3"),
        "kept": (there, b"{}"),
        "also kept": (there, b"{}"),
    }
    assert [(c.id, c.revision, c.body) for c in await desk.store.reads.changes(there + 1, limit=9)] == [
        ("any", there + 2, b"3"),
        ("removed", there + 2, None),
    ]
    events = await desk.store.reads.events(START, limit=9)
    assert [(e.cursor.sequence, e.subject) for e in events] == [(1, "first"), (2, "third"), (3, "third")]
    entries = await desk.store.reads.entries("audit", limit=9)
    assert [(e.number, e.body) for e in entries] == [(1, b"third")]
    head = await desk.store.reads.head()
    assert (head.commit, head.sequence, head.entry) == (there + 2, 3, 1)
    assert await desk.store.commits.resolve_batch(head.batch, epoch=desk.epoch) == outcome


async def test_a_batch_may_refuse_every_one_of_its_transactions(desk: Desk) -> None:
    there = (await desk.commit(put("a"), happened("a"))).number
    before = await desk.store.reads.head()
    outcome = await batch(
        desk,
        transaction(put("a", b"x", expect=ABSENT), happened("x"), Append(journal="audit", body=b"x")),
        transaction(put("b", b"x", expect=there), happened("x")),
    )
    assert outcome.refusals == (
        refusal("a", expect=ABSENT, found=there),
        refusal("b", expect=there, found=ABSENT),
    )
    after = await desk.store.reads.head()
    assert (after.commit, after.cursor, after.entry) == (before.commit, before.cursor, before.entry)
    assert await desk.stored() == desk.memory


async def test_a_tombstone_counts_as_absent_and_never_by_its_revision(desk: Desk) -> None:
    await desk.commit(put("a"), put("b"), put("c"), put("d"))
    gone = (await desk.commit(drop("a"), drop("b"), drop("c"), drop("d"))).number
    outcome = await batch(
        desk,
        transaction(put("a", b"again", expect=ABSENT)),
        transaction(put("b", b"never", expect=gone)),
        transaction(drop("c", expect=gone)),
        transaction(drop("d", expect=ABSENT)),
    )
    assert outcome.refusals == (
        None,
        refusal("b", expect=gone, found=ABSENT),
        refusal("c", expect=gone, found=ABSENT),
        None,
    )
    changes = await desk.store.reads.changes(gone - 1, limit=9)
    assert [(c.id, c.revision, c.body) for c in changes] == [
        ("b", gone, None),
        ("c", gone, None),
        ("a", gone + 1, b"again"),
        ("d", gone + 2, None),
    ]


async def test_a_removal_and_a_creation_of_one_document_follow_each_other(desk: Desk) -> None:
    first = (await desk.commit(put("a", b"1"))).number
    results = await asyncio.gather(
        desk.commit(drop("a", expect=first)),
        desk.commit(put("a", b"2", expect=ABSENT)),
        desk.commit(put("b", b"beside")),
        desk.commit(put("a", b"3", expect=ABSENT)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Commit, Commit, Commit, Conflict]
    refused = results[3]
    assert isinstance(refused, Conflict)
    assert refused.code is Code.ALREADY_EXISTS
    assert {id: d.body for (_, id), d in (await desk.stored()).items()} == {"a": b"2", "b": b"beside"}
    assert await desk.stored() == desk.memory


@pytest.mark.parametrize("creation_first", [False, True])
async def test_in_one_batch_every_expectation_is_about_the_state_before_it(
    desk: Desk, creation_first: bool
) -> None:
    there = (await desk.commit(put("a", b"1"))).number
    both = [transaction(drop("a", expect=there)), transaction(put("a", b"2", expect=ABSENT))]
    refusals: list[Refusal | None] = [None, refusal("a", expect=ABSENT, found=there)]
    if creation_first:
        both.reverse()
        refusals.reverse()
    assert (await batch(desk, *both)).refusals == tuple(refusals)
    assert await desk.store.reads.get("things", "a") is None
    assert [c.revision for c in await desk.store.reads.changes(there, limit=9)] == [there + 1]


@pytest.mark.parametrize(
    "twice",
    [
        [put("there", b"1", expect=1), put("there", b"2", expect=1)],
        [put("there", b"1", expect=1), put("there", b"2")],
        [put("there", b"1"), drop("there", expect=1)],
        [put("new", b"1", expect=ABSENT), put("new", b"2", expect=ABSENT)],
        [put("new", b"1", expect=ABSENT), put("new", b"2")],
        [put("new", b"1"), drop("new")],
    ],
)
async def test_postgres_stores_nothing_of_a_batch_that_writes_a_document_twice(
    postgres_house: House, twice: Sequence[Put | Delete]
) -> None:
    async with at_work(await postgres_house.open()) as desk:
        assert (await desk.commit(put("there"))).number == 1
        with pytest.raises(StoreUnavailable, match="second time") as refused:
            await batch(desk, *(transaction(write, happened("never")) for write in twice))
        assert not refused.value.in_doubt
        assert await desk.stored() == desk.memory
        assert (await desk.store.reads.head()).cursor == START
        assert (await desk.commit(put("there", expect=1))).number == 2


async def test_a_creation_waits_for_the_removal_of_its_tombstone(postgres_house: House) -> None:
    async with at_work(await postgres_house.open()) as desk:
        await desk.commit(put("a"))
        gone = (await desk.commit(drop("a"))).number
        connection = await asyncpg.connect(postgres_house.url)
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'corral_commit'"
        )
        try:
            async with connection.transaction():
                await connection.execute("delete from document where body is null")
                created = asyncio.create_task(desk.commit(put("a", b"again", expect=ABSENT), put("b")))
                async with asyncio.timeout(10):
                    while not await connection.fetchval(waiting):
                        await asyncio.sleep(0.01)
                assert not created.done()
            assert (await created).number == gone + 1
        finally:
            await connection.close()
        assert await desk.stored() == desk.memory


async def test_a_database_of_the_schema_before_commits_with_the_new_function(postgres_house: House) -> None:
    connection = await asyncpg.connect(postgres_house.url)
    await connection.execute("create table schema_version (version int primary key, name text not null)")
    for step in load_migrations("corral.store.postgres")[:3]:
        await connection.execute(step.sql)
        await connection.execute("insert into schema_version values ($1, $2)", step.version, step.name)
    await connection.fetchval(
        "select corral_commit(0, 'old', now(), 2, '{1,2}', '{things,things}', '{a,b}', $1, '{0,4}',"
        " '{1,2}', '{NODE_ONLINE,NODE_ONLINE}', '{a,b}', $2, '{}', '{}', '{}')",
        [b"1", b"2"],
        [b"{}", b"{}"],
    )
    store = await postgres_house.open()
    source = "select prosrc ~ 'CRF02' from pg_proc where proname = 'corral_commit'"
    assert [row[0] for row in await connection.fetch(source)] == [True]
    await connection.close()
    async with at_work(store) as desk:
        assert [(d.id, d.revision) for d in desk.memory.values()] == [("a", 1)]
        await desk.commit(put("a", b"2", expect=1), put("b", expect=ABSENT), happened("b"))
        assert [e.cursor.sequence for e in await store.reads.events(START, limit=9)] == [1, 2]
        assert await desk.stored() == desk.memory


IDS = ("a", "b", "c", "d", "e", "f")
KINDS = st.sampled_from(["right", "right", "right", "absent", "any", "wrong"])
WRITE = st.tuples(st.booleans(), KINDS)
BATCHES = st.lists(
    st.tuples(st.permutations(IDS), st.lists(WRITE, max_size=6), st.integers(1, 4)), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
async def test_any_batch_does_what_a_comparison_row_by_row_would(
    desk: Desk, batches: list[tuple[list[str], list[tuple[bool, str]], int]]
) -> None:
    before = await desk.store.reads.head()
    model = {id: (d.revision, d.body) for (_, id), d in (await desk.stored()).items()}
    number, sequence = before.commit, before.sequence
    for ids, writes, parts in batches:
        found = {id: model.get(id, (ABSENT, b""))[0] for id in IDS}
        steps: list[Put | Delete] = []
        for id, (is_put, kind) in zip(ids, writes, strict=False):
            expect = {"right": found[id], "absent": ABSENT, "any": None, "wrong": number + 3}[kind]
            steps.append(put(id, kind.encode(), expect=expect) if is_put else drop(id, expect=expect))
        transactions = [transaction(*steps[part::parts], happened(str(part))) for part in range(parts)]
        refusals: list[Refusal | None] = []
        for each in transactions:
            stale = [w for w in each.writes if w.expect is not None and w.expect != found[w.id]]
            if stale:
                expected = stale[0].expect
                assert expected is not None
                refusals.append(refusal(stale[0].id, expect=expected, found=found[stale[0].id]))
                continue
            refusals.append(None)
            number, sequence = number + 1, sequence + 1
            for write in each.writes:
                if isinstance(write, Put):
                    model[write.id] = (number, write.body)
                else:
                    model.pop(write.id, None)
        outcome = await batch(desk, *transactions)
        assert outcome.refusals == tuple(refusals)
    assert {id: (d.revision, d.body) for (_, id), d in (await desk.stored()).items()} == model
    head = await desk.store.reads.head()
    assert (head.commit, head.sequence) == (number, sequence)
