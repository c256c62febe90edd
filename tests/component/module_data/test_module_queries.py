"""Questions about documents: the same answer with an index, without one, and by plain Python."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import pytest
from data_rig import EXAMPLES, office_of
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.modules.document_filters import matches, parse_filter
from corral.domain.modules.document_values import order, value_at
from corral.sdk.filters import F
from corral.sdk.storage import Index
from corral.testing.counted_calls import calls_by_turn

FIELDS = ("a", "b", "c.d")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(
        [0.5, -1.0, 1.0, "", "a", "b", "\x00", "x" * 250, "x" * 249 + "y", [1], ["a", 1], {}, {"d": 1}]
    ),
)
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"a": SCALARS, "b": SCALARS, "c": st.fixed_dictionaries({}, optional={"d": SCALARS})}
)
CONDITIONS = st.one_of(
    st.dictionaries(
        st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "contains"]), SCALARS, min_size=1, max_size=2
    ),
    st.fixed_dictionaries({"in": st.lists(SCALARS, max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.just({"regex": "^x|a"}),
)
PLAIN = st.dictionaries(st.sampled_from(FIELDS), CONDITIONS, max_size=3)
FILTERS = st.one_of(
    PLAIN,
    st.fixed_dictionaries({"or": st.lists(PLAIN, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"and": st.lists(PLAIN, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"not": PLAIN}),
    st.fixed_dictionaries({"_id": st.fixed_dictionaries({"gte": st.sampled_from(["03", "1", ""])})}),
)
SORTS = st.lists(
    st.tuples(st.sampled_from(["", "-"]), st.sampled_from([*FIELDS, "_id"])),
    max_size=3,
    unique_by=lambda each: each[1],
).map(lambda fields: ["".join(each) for each in fields])
INDEXES = (
    [Index("a"), Index("b", "a"), Index("c.d", unique=False)],
    [Index("a", "b", "c.d"), Index("c.d", "a")],
)

_numbers = itertools.count()


def by_hand(documents, wanted, sort):
    """What a person would do: sort by the last field first, each time keeping ties as they are."""
    found = [(id, value) for id, value in documents.items() if matches(parse_filter(wanted), id, value)]
    found.sort(key=lambda each: each[0], reverse=bool(sort) and sort[-1].startswith("-"))
    for field in reversed(sort):
        name = field.removeprefix("-")
        found.sort(
            key=lambda each, name=name: order(
                each[0] if name == "_id" else value_at(each[1], tuple(name.split(".")))
            ),
            reverse=field.startswith("-"),
        )
    return [id for id, _ in found]


@EXAMPLES
@given(
    values=st.lists(DOCUMENTS, max_size=12),
    questions=st.lists(st.tuples(FILTERS, SORTS, st.integers(1, 5)), min_size=1, max_size=4),
    indexes=st.sampled_from(INDEXES),
)
async def test_an_index_changes_nothing_but_the_time_it_takes(office, values, questions, indexes) -> None:
    storage = office.documents()
    number = next(_numbers)
    plain = await storage.create(f"plain{number}", dict)
    indexed = await storage.create(f"indexed{number}", dict, indexes=indexes)
    documents = {f"{i:02}": value for i, value in enumerate(values)}
    for collection in (plain, indexed):
        async with storage.transaction() as tx:
            for id, value in documents.items():
                tx.insert(collection, value, id=id)
    for wanted, sort, limit in questions:
        expected = by_hand(documents, wanted, sort)
        for collection in (plain, indexed):
            assert [each.id for each in await collection.find(wanted, sort=sort)] == expected
            assert [each.id for each in await collection.find(wanted, sort=sort, limit=limit)] == expected[
                :limit
            ]
            some = await collection.find(wanted, sort=sort, skip=1, limit=limit)
            assert [each.id for each in some] == expected[1 : 1 + limit]
            assert await collection.count(wanted) == len(expected)
    await storage.drop(plain.name)
    await storage.drop(indexed.name)


@EXAMPLES
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from("wxyz"), DOCUMENTS),
        min_size=1,
        max_size=12,
    )
)
async def test_an_index_follows_every_change(one_office, steps) -> None:
    storage = one_office.documents()
    name = f"follow{next(_numbers)}"
    things = await storage.create(name, dict, indexes=[Index("a"), Index("b", "c.d")])
    documents = {}
    for kind, id, value in steps:
        if kind == "put":
            await things.replace(id, value, upsert=True)
            documents[id] = value
        else:
            await things.delete(id)
            documents.pop(id, None)
    for sort in (["a"], ["-a"], ["b", "c.d"], ["-b", "-c.d"]):
        assert [each.id for each in await things.find(sort=sort)] == by_hand(documents, {}, sort)
    entries = list(await one_office.rows(f"mod/arena/1/i/{name}/"))
    assert len(entries) == 2 * len(documents)
    await storage.drop(name)


class CountedReads:
    """Reads of a store that note how many documents they gave."""

    def __init__(self, inner) -> None:
        self._inner = inner
        self.given = 0
        self.largest = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def scan(self, *args, **kwargs):
        found = await self._inner.scan(*args, **kwargs)
        self.note(found)
        return found

    async def scan_index(self, *args, **kwargs):
        found = await self._inner.scan_index(*args, **kwargs)
        self.note([row.document for row in found])
        return found

    def note(self, documents) -> None:
        self.given += len(documents)
        self.largest = max(self.largest, sum(len(document.body) for document in documents))

    async def get_many(self, *args, **kwargs):
        found = await self._inner.get_many(*args, **kwargs)
        self.given += len(found)
        return found


async def test_a_sorted_question_with_an_index_reads_little(sqlite_store) -> None:
    """The best ten of many: along the index, not through everything."""
    counted = CountedReads(sqlite_store.reads)
    async with office_of(dataclasses.replace(sqlite_store, reads=counted)) as office:
        players = await office.documents().create("players", dict, indexes=[Index("game", "score")])
        await players.insert_many({"game": "ab"[i % 2], "score": i} for i in range(3000))
        counted.given = 0
        best = await players.find(F.game == "a", sort=["-score"], limit=10)
        assert [each.value["score"] for each in best] == list(range(2998, 2978, -2))
        assert counted.given < 20
        counted.given = 0
        assert await players.count((F.game == "b") & (F.score >= 2990)) == 5
        assert counted.given < 50


async def test_large_documents_among_many_small_ones_are_not_read_all_at_once(store) -> None:
    counted = CountedReads(store.reads)
    async with office_of(dataclasses.replace(store, reads=counted)) as office:
        things = await office.documents().create("things", dict, indexes=[Index("n")])
        await things.insert_many({"n": i} for i in range(4000))
        for i in range(20):
            await things.insert({"n": 4000 + i, "text": "x" * 500_000}, id=f"z{i:02}")
        counted.largest = 0
        assert await things.count(F.text.exists()) == 20
        assert await things.count(F.n >= 3990) == 30
        assert [each.value["n"] async for each in things.find(F.n >= 3998, sort=["n"])] == list(
            range(3998, 4020)
        )
        down = await things.find(sort=["-n"], limit=30)
        assert [each.value["n"] for each in down] == list(range(4019, 3989, -1))
        assert [each.id for each in await things.find(sort=["-_id"], limit=3)] == ["z19", "z18", "z17"]
    assert counted.largest < 2 * 1024 * 1024


class InterruptedReads:
    """Reads of a store that let something happen after the next page of an index."""

    def __init__(self, inner) -> None:
        self._inner = inner
        self.then = None

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def scan_index(self, *args, **kwargs):
        found = await self._inner.scan_index(*args, **kwargs)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return found


async def test_a_document_that_moves_along_an_index_while_it_is_walked_is_changed_once(sqlite_store) -> None:
    reads = InterruptedReads(sqlite_store.reads)
    async with office_of(dataclasses.replace(sqlite_store, reads=reads)) as office:
        things = await office.documents().create("things", dict, indexes=[Index("n")])
        await things.insert_many({"n": i, "seen": 0} for i in range(1200))
        first = await things.find_one(sort=["n"])

        async def move() -> None:
            await things.update(first.id, inc={"n": 5000})

        reads.then = move
        assert await things.update_many(F.n >= 0, inc={"seen": 1}) == 1200
        assert [each.value["seen"] for each in await things.find()] == [1] * 1200


@pytest.mark.trap("T42")
async def test_a_pattern_over_many_documents_does_not_hold_up_the_loop(one_office) -> None:
    texts = one_office.documents(documents_mb=256).collection("texts", dict)
    for _ in range(10):
        await texts.insert_many({"text": "a" * 20_000 + "!"} for _ in range(50))
    async with calls_by_turn() as count:
        found = await asyncio.gather(*(texts.count(F.text.matches("(a+)+$")) for _ in range(3)))
        assert found == [0, 0, 0]
        assert await texts.count(F.text.matches("(a+)+!$")) == 500
    assert count.of(matches) == 0, "documents were compared in the loop"


@pytest.mark.system
async def test_small_documents_in_great_numbers_do_not_hold_up_the_loop(one_office) -> None:
    things = await one_office.documents().create("things", dict, indexes=[Index("n")])
    await things.insert_many({"n": i, "text": "a" * (i % 50)} for i in range(8_000))
    async with calls_by_turn() as count:
        found = await asyncio.gather(
            *(things.find(F.text.matches("(a+)+b$")) for _ in range(4)),
            *(things.find(sort=["-text", "n"], limit=500) for _ in range(4)),
            *(things.count(F.n >= 5) for _ in range(4)),
        )
    assert [len(each) if isinstance(each, list) else each for each in found] == [0] * 4 + [500] * 4 + [
        7_995
    ] * 4
    assert count.of(matches) == 0
    assert count.most_in_a_turn < 150_000


@pytest.mark.system
async def test_huge_documents_do_not_hold_up_the_loop(one_office) -> None:
    things = await one_office.documents(documents_mb=256).create("things", dict, indexes=[Index("n")])
    async with calls_by_turn() as count:
        for i in range(3):
            await things.insert({"n": list(range(80_000)), "i": i})
        assert await things.count(F.n.contains(79_999)) == 3
        assert await things.update_many(None, push={"n": 1}) == 3
        assert len(await things.find(sort=["-n"], limit=2)) == 2
    assert count.of(matches) == 0
    assert count.most_in_a_turn < 10_000
