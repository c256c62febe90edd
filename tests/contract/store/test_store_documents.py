"""Documents: compare-and-set, all-or-nothing transactions, snapshots, changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_cases import Desk, drop, happened, put

from corral.domain.events import START
from corral.errors import Bug, Code, Rejected
from corral.store.port import ABSENT, Append, Change, Delete, Document, Put
from corral.store.store_errors import Conflict


async def test_a_stored_document_is_read_back_with_the_number_of_its_commit(desk: Desk) -> None:
    commit = await desk.commit(put("a", b"\x00\xff body", expect=ABSENT))
    found = await desk.store.reads.get("things", "a")
    assert found == Document(collection="things", id="a", revision=commit.number, body=b"\x00\xff body")
    assert await desk.store.reads.get("things", "b") is None
    assert await desk.store.reads.get("others", "a") is None


async def test_a_write_that_expects_another_revision_is_refused_and_says_what_it_found(desk: Desk) -> None:
    first = await desk.commit(put("a"))
    second = await desk.commit(put("a", b"2", expect=first.number))
    with pytest.raises(Conflict) as stale:
        await desk.commit(put("a", b"3", expect=first.number))
    assert stale.value.code is Code.REVISION_MISMATCH
    assert (stale.value.refusal.expect, stale.value.refusal.found) == (first.number, second.number)
    with pytest.raises(Conflict) as exists:
        await desk.commit(put("a", expect=ABSENT))
    assert exists.value.code is Code.ALREADY_EXISTS
    with pytest.raises(Conflict) as gone:
        await desk.commit(drop("nobody", expect=7))
    assert gone.value.code is Code.NOT_FOUND


async def test_a_refused_transaction_stores_none_of_its_parts(desk: Desk) -> None:
    await desk.commit(put("there"))
    before = await desk.store.reads.head()
    with pytest.raises(Conflict):
        await desk.commit(
            put("fresh"),
            put("there", expect=ABSENT),
            happened("fresh"),
            Append(journal="audit", body=b"entry"),
        )
    after = await desk.store.reads.head()
    assert (after.commit, after.sequence, after.entry) == (before.commit, before.sequence, before.entry)
    assert await desk.store.reads.get("things", "fresh") is None
    assert await desk.store.reads.events(START, limit=10) == []
    assert await desk.store.reads.entries("audit", limit=10) == []


async def test_a_transaction_stores_documents_events_and_entries_under_one_number(desk: Desk) -> None:
    commit = await desk.commit(
        put("a"), put("b"), happened("a", n=1), happened("b"), Append(journal="audit", body=b"e")
    )
    assert [change.revision for change in commit.changes] == [commit.number] * 2
    assert await desk.store.reads.events(START, limit=10) == list(commit.events)
    assert await desk.store.reads.entries("audit", limit=10) == list(commit.entries)
    head = await desk.store.reads.head()
    assert (head.commit, head.cursor) == (commit.number, commit.events[-1].cursor)


async def test_the_first_document_that_does_not_fit_is_the_one_named(desk: Desk) -> None:
    await desk.commit(put("x"), put("y"))
    with pytest.raises(Conflict) as refused:
        await desk.commit(put("fine"), put("y", expect=ABSENT), put("x", expect=ABSENT))
    assert refused.value.refusal.id == "y"


async def test_a_deleted_document_can_be_created_again_under_a_new_revision(desk: Desk) -> None:
    first = await desk.commit(put("a", expect=ABSENT))
    gone = await desk.commit(drop("a", expect=first.number))
    assert gone.changes == (Change(collection="things", id="a", revision=gone.number, body=None),)
    assert await desk.store.reads.get("things", "a") is None
    again = await desk.commit(put("a", expect=ABSENT))
    assert again.number > gone.number
    with pytest.raises(Conflict):
        await desk.commit(drop("a", expect=first.number))
    await desk.commit(drop("a"))
    await desk.commit(drop("a"))


async def test_a_scan_goes_through_a_collection_in_the_order_of_ids(desk: Desk) -> None:
    names = ["b", "a-1", "a", "é", "Z", "a.1", "日本"]
    await desk.commit(*(put(name) for name in names), put("other", collection="elsewhere"))
    await desk.commit(drop("b"))
    expected = sorted(set(names) - {"b"})
    assert [d.id for d in await desk.store.reads.scan("things", limit=100)] == expected
    page = await desk.store.reads.scan("things", limit=2)
    rest = await desk.store.reads.scan("things", after=page[-1].id, limit=100)
    assert [d.id for d in page + rest] == expected


async def test_a_scan_takes_bounds_and_begins_at_either_end(desk: Desk) -> None:
    names = ["a", "a\x01", "a-1", "a/", "b", "Z", "é", "日本", "\U0010ffff", "\ue000", "\x7f", "a\x02b"]
    await desk.commit(*(put(name) for name in names), put("b", collection="thing"), put("b", collection="z"))
    await desk.commit(drop("b"))
    ordered = sorted(set(names) - {"b"})
    scan = desk.store.reads.scan
    assert [d.id for d in await scan("things", limit=100)] == ordered
    assert [d.id for d in await scan("things", limit=100, newest=True)] == ordered[::-1]
    assert [d.id for d in await scan("things", limit=3, newest=True)] == ordered[::-1][:3]
    for low in ["", *names]:
        for high in [*names, None]:
            within = [name for name in ordered if name > low and (high is None or name < high)]
            assert [d.id for d in await scan("things", after=low, before=high, limit=100)] == within
            down = await scan("things", after=low, before=high, limit=2, newest=True)
            assert [d.id for d in down] == within[::-1][:2]


async def test_a_scan_ends_with_the_document_that_fills_the_size_asked_for(desk: Desk) -> None:
    await desk.commit(*(put(f"n{i}", b"x" * 1000 * i) for i in range(6)))

    async def found(**bounds: Any) -> list[str]:
        return [document.id for document in await desk.store.reads.scan("things", limit=100, **bounds)]

    assert await found(size=10**9) == ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert await found(size=3000) == ["n0", "n1", "n2"]
    assert await found(size=3001) == ["n0", "n1", "n2", "n3"]
    assert await found(size=1, after="n2", before="n5") == ["n3"]
    assert await found(size=6000, newest=True) == ["n5", "n4"]


async def test_an_index_is_scanned_together_with_the_documents_it_names(desk: Desk) -> None:
    names = {"k1": "a", "k2": 'quote"', "k3": "日\\本", "k4": "a", "k5": "gone", "k6": "never"}
    entries = [put(key, msgspec.json.encode([name, 1]), collection="index") for key, name in names.items()]
    await desk.commit(*entries, *(put(name, name.encode()) for name in set(names.values()) - {"never"}))
    await desk.commit(drop("gone"), drop("k4", collection="index"))
    expected = [("k1", "a"), ("k2", 'quote"'), ("k3", "日\\本"), ("k5", None), ("k6", None)]

    async def found(**bounds: Any) -> list[tuple[str, str | None]]:
        rows = await desk.store.reads.scan_index("index", "things", **bounds)
        for row in rows:
            assert row.entry.collection == "index"
            assert row.document is None or row.document.body == row.document.id.encode()
        return [(row.entry.id, None if row.document is None else row.document.id) for row in rows]

    assert await found(limit=100) == expected
    assert await found(limit=2) == expected[:2]
    assert await found(limit=3, newest=True) == expected[::-1][:3]
    assert await found(after="k1", before="k5", limit=100) == expected[1:3]
    assert await found(after="k1", before="k5", limit=1, newest=True) == expected[2:3]
    assert await found(after="k6", limit=100) == []
    assert await found(limit=100, size=1) == expected[:1]
    assert await found(limit=100, size=2) == expected[:2]
    assert await found(limit=100, size=3, newest=True) == expected[::-1][:3]


async def test_many_documents_are_read_at_once(desk: Desk) -> None:
    names = [f"n{i}" for i in range(1500)] + ['quote"', "日本"]
    await desk.commit(*(put(name, name.encode()) for name in names), put("n1", b"x", collection="others"))
    await desk.commit(drop("n7"))
    found = await desk.store.reads.get_many("things", [*names, "nobody"])
    assert {d.id: d.body for d in found} == {name: name.encode() for name in names if name != "n7"}
    assert len(found) == len(names) - 1
    assert await desk.store.reads.get_many("things", []) == []


async def test_a_snapshot_holds_the_collections_asked_for_as_of_its_head(desk: Desk) -> None:
    await desk.commit(put("a"), put("b", collection="others"), put("c", collection="more"))
    await desk.commit(drop("c", collection="more"))
    everything = await desk.store.reads.snapshot()
    assert {(d.collection, d.id) for d in everything.documents} == {("things", "a"), ("others", "b")}
    assert everything.head == await desk.store.reads.head()
    assert [d.id for d in (await desk.store.reads.snapshot(["others", "none"])).documents] == ["b"]
    assert (await desk.store.reads.snapshot([])).documents == ()


async def test_changes_come_in_whole_commits_and_once_for_each_document(desk: Desk) -> None:
    first = await desk.commit(put("a"), put("b"), put("c"))
    second = await desk.commit(put("d"))
    third = await desk.commit(drop("d"), put("a", b"again"))
    page = await desk.store.reads.changes(0, limit=1)
    assert [(c.id, c.revision) for c in page] == [("b", first.number), ("c", first.number)]
    rest = await desk.store.reads.changes(page[-1].revision, limit=10)
    assert [(c.id, c.revision, c.body) for c in rest] == [
        ("a", third.number, b"again"),
        ("d", third.number, None),
    ]
    assert second.number not in {c.revision for c in page + rest}
    assert await desk.store.reads.changes(third.number, limit=10) == []


async def test_changes_cannot_be_followed_from_a_number_this_store_never_had(desk: Desk) -> None:
    commit = await desk.commit(put("a"))
    with pytest.raises(Rejected) as refused:
        await desk.store.reads.changes(commit.number + 1, limit=10)
    assert refused.value.code is Code.RESYNC_REQUIRED


async def test_a_transaction_that_names_a_document_twice_is_a_bug(desk: Desk) -> None:
    with pytest.raises(Bug):
        await desk.commit(put("a"), drop("a"))


@pytest.mark.parametrize("name", ["nul\0", "half \ud800 a pair"])
async def test_text_no_database_can_hold_fails_its_caller_alone(desk: Desk, name: str) -> None:
    with pytest.raises(Rejected) as refused:
        await desk.commit(put(name))
    assert refused.value.code is Code.INVALID_FIELD
    await desk.commit(put("fine"))


async def test_a_body_too_large_is_refused_with_a_way_out(desk: Desk) -> None:
    with pytest.raises(Rejected) as refused:
        await desk.commit(put("a", bytes(16 * 1024 * 1024 + 1)))
    assert refused.value.code is Code.BODY_TOO_LARGE


_IDS = st.sampled_from(["a", "b", "c", "d", "e"])
_STEPS = st.one_of(
    st.builds(lambda name, body: put(name, body), _IDS, st.binary(max_size=8)),
    st.builds(lambda name, body: put(name, body, expect=ABSENT), _IDS, st.binary(max_size=8)),
    st.builds(lambda name: drop(name), _IDS),
    st.builds(lambda name: drop(name, expect=1), _IDS),
    st.builds(lambda name: happened(name), _IDS),
    st.builds(lambda name: Append(journal=f"log/{name}", body=b"x"), _IDS),
)


def _named_once(steps: list[object]) -> bool:
    ids = [step.id for step in steps if isinstance(step, Put | Delete)]
    return len(ids) == len(set(ids))


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(st.lists(_STEPS, max_size=4).filter(_named_once), max_size=8), page=st.integers(1, 5))
async def test_commits_changes_and_events_each_fold_to_what_a_snapshot_holds(
    desk: Desk, history: list[list[Put]], page: int
) -> None:
    for steps in history:
        try:
            await desk.commit(*steps)
        except Conflict:
            continue
    stored = await desk.stored()
    assert desk.memory == stored

    folded: dict[tuple[str, str], Change] = {}
    after = 0
    while changes := await desk.store.reads.changes(after, limit=page):
        folded.update({(c.collection, c.id): c for c in changes})
        after = changes[-1].revision
    live = {key: (c.revision, c.body) for key, c in folded.items() if c.body is not None}
    assert live == {key: (d.revision, d.body) for key, d in stored.items()}

    events = [event for commit in desk.commits for event in commit.events]
    assert await desk.store.reads.events(START, limit=10_000) == events
    assert [event.cursor.sequence for event in events] == list(range(1, len(events) + 1))
    assert [commit.number for commit in desk.commits] == list(range(1, len(desk.commits) + 1))
