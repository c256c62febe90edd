"""Many blobs at once, and who may drop them: stamps against drops, whoever is faster."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import os
import pathlib
import random
import time
from collections.abc import AsyncIterator

import pytest
from store_cases import House

from corral.errors import Code, Rejected
from corral.store.port import BlobInfo, Store

NOW = dt.datetime.now(dt.UTC)
LATER = NOW + dt.timedelta(hours=1)
MUCH_LATER = NOW + dt.timedelta(hours=2)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _small(count: int, *, mark: str = "") -> list[bytes]:
    return [f"{mark}{number}".encode() * 3 for number in range(count)]


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _read(store: Store, digests: list[str]) -> bytes:
    return b"".join([block async for block in store.blobs.read_blobs(digests)])


async def test_many_blobs_are_stored_at_once_and_read_as_one_stream(store: Store) -> None:
    contents = [b"", *_small(300), os.urandom(300_000), os.urandom(3_000_000), b""]
    infos = await store.blobs.put_blobs(contents)
    assert infos == [BlobInfo(digest=_digest(each), size=len(each)) for each in contents]
    shuffled = contents * 2
    random.Random(7).shuffle(shuffled)
    assert await _read(store, [_digest(each) for each in shuffled]) == b"".join(shuffled)
    assert b"".join([block async for block in store.blobs.read_blob(infos[-2].digest)]) == contents[-2]


async def test_nothing_at_all_is_stored_read_stamped_and_dropped(store: Store) -> None:
    assert await store.blobs.put_blobs([]) == []
    assert await _read(store, []) == b""
    assert await store.blobs.blob_sizes([]) == {}
    assert await store.blobs.touch_blobs([], at=NOW) == set()
    assert await store.blobs.drop_blobs([], before=NOW) == 0
    assert await store.blobs.blob_stamps(limit=10) == []


async def test_the_same_content_twice_is_one_blob_however_it_came(store: Store) -> None:
    content = os.urandom(500_000)
    first, second = await store.blobs.put_blobs([content, content])
    assert first == second == await store.blobs.put_blob(_one(content))
    assert [first] == await store.blobs.put_blobs([content])
    assert [stamp.digest for stamp in await store.blobs.blob_stamps(limit=10)] == [first.digest]
    assert await _read(store, [first.digest]) == content


async def test_only_those_that_are_there_have_sizes(store: Store) -> None:
    await store.blobs.put_blobs([b"a", b"bc"])
    asked = [_digest(b"a"), _digest(b"bc"), _digest(b"none")]
    assert await store.blobs.blob_sizes(asked) == {_digest(b"a"): 1, _digest(b"bc"): 2}


async def test_a_stream_names_the_first_blob_that_is_missing(store: Store) -> None:
    await store.blobs.put_blobs([b"a"])
    with pytest.raises(Rejected) as refused:
        await _read(store, [_digest(b"a"), _digest(b"gone"), _digest(b"gone too")])
    assert refused.value.code is Code.NOT_FOUND
    assert _digest(b"gone") in refused.value.message


async def test_only_digests_name_blobs(store: Store) -> None:
    for call in (
        lambda: store.blobs.blob_sizes(["../x"]),
        lambda: store.blobs.touch_blobs(["../x"], at=NOW),
        lambda: store.blobs.drop_blobs(["../x"], before=NOW),
        lambda: _read(store, ["../x"]),
    ):
        with pytest.raises(Rejected) as refused:
            await call()
        assert refused.value.code is Code.INVALID_FIELD


async def test_blobs_are_listed_in_pages_with_their_stamps(store: Store) -> None:
    contents = _small(50)
    await store.blobs.put_blobs(contents)
    wanted = sorted(map(_digest, contents))
    await store.blobs.touch_blobs(wanted[:1], at=LATER)
    found, after = [], ""
    while page := await store.blobs.blob_stamps(after=after, limit=7):
        assert len(page) <= 7
        found += page
        after = page[-1].digest
    assert [stamp.digest for stamp in found] == wanted
    assert found[0].at == LATER
    assert all(abs(stamp.at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5) for stamp in found[1:])
    assert {stamp.digest: stamp.size for stamp in found} == await store.blobs.blob_sizes(wanted)


async def test_what_was_stamped_stays_and_what_is_older_goes(store: Store) -> None:
    kept, gone, large = b"kept", b"gone", os.urandom(700_000)
    await store.blobs.put_blobs([kept, gone])
    await store.blobs.put_blob(_one(large))
    every = [_digest(kept), _digest(gone), _digest(large)]
    assert await store.blobs.drop_blobs(every, before=NOW - dt.timedelta(minutes=5)) == 0
    missing = await store.blobs.touch_blobs([_digest(kept), _digest(b"never there")], at=MUCH_LATER)
    assert missing == {_digest(b"never there")}
    assert await store.blobs.drop_blobs(every, before=LATER) == 2
    assert await store.blobs.blob_sizes(every) == {_digest(kept): 4}
    assert await store.blobs.drop_blobs(every, before=MUCH_LATER) == 0
    assert await store.blobs.drop_blobs(every, before=MUCH_LATER + dt.timedelta(microseconds=1)) == 1


async def test_a_stamp_never_goes_back_in_time(store: Store) -> None:
    await store.blobs.put_blobs([b"a"])
    await store.blobs.touch_blobs([_digest(b"a")], at=MUCH_LATER)
    await store.blobs.touch_blobs([_digest(b"a")], at=NOW - dt.timedelta(days=1))
    await store.blobs.put_blobs([b"a"])
    assert [stamp.at for stamp in await store.blobs.blob_stamps(limit=1)] == [MUCH_LATER]


async def test_a_put_of_a_blob_that_is_there_stamps_it(house: House) -> None:
    store = await house.open()
    contents = [b"one", b"two"]
    await store.blobs.put_blobs(contents)
    moment = dt.datetime.now(dt.UTC)
    await store.blobs.put_blob(_one(b"one"))
    await store.blobs.put_blobs([b"two"])
    assert all(stamp.at >= moment for stamp in await store.blobs.blob_stamps(limit=2))
    assert await store.blobs.drop_blobs([_digest(each) for each in contents], before=moment) == 0


async def test_a_dropped_blob_can_be_stored_again(store: Store) -> None:
    content = os.urandom(600_000)
    for _ in range(3):
        (info,) = await store.blobs.put_blobs([content])
        assert await store.blobs.drop_blobs([info.digest], before=LATER) == 1
        assert await store.blobs.touch_blobs([info.digest], at=MUCH_LATER) == {info.digest}
        await store.blobs.put_blob(_one(content))
        assert await _read(store, [info.digest]) == content
        assert await store.blobs.drop_blobs([info.digest], before=LATER) == 1


async def test_a_stamp_that_was_confirmed_is_never_lost_to_a_drop(house: House) -> None:
    """Either the stamp comes first and the blob stays, or the drop does and the stamp says so."""
    store = await house.open()
    other = await house.another(store)
    chance = random.Random(11)
    for turn in range(15):
        contents = _small(60, mark=f"{turn}-")
        digests = [_digest(each) for each in contents]
        await store.blobs.put_blobs(contents)
        mixed = [chance.sample(digests, k=60) for _ in range(4)]
        answers = await asyncio.gather(
            store.blobs.touch_blobs(mixed[0], at=MUCH_LATER),
            other.blobs.drop_blobs(mixed[1], before=LATER),
            other.blobs.touch_blobs(mixed[2], at=MUCH_LATER),
            store.blobs.drop_blobs(mixed[3], before=LATER),
        )
        left = set(await store.blobs.blob_sizes(digests))
        for missing in (answers[0], answers[2]):
            assert set(digests) - missing <= left
        assert bool(await _read(store, sorted(left))) == bool(left)
        assert answers[1] + answers[3] == 60 - len(left)


async def test_a_put_of_an_existing_blob_wins_against_a_drop_with_an_older_limit(house: House) -> None:
    store = await house.open()
    other = await house.another(store)
    for turn in range(15):
        contents = _small(40, mark=f"{turn}-")
        digests = [_digest(each) for each in contents]
        await store.blobs.put_blobs(contents)
        limit = dt.datetime.now(dt.UTC)
        await asyncio.gather(
            store.blobs.put_blobs(contents[:20]),
            *(store.blobs.put_blob(_one(each)) for each in contents[20:25]),
            other.blobs.drop_blobs(digests, before=limit),
        )
        assert set(await store.blobs.blob_sizes(digests)) >= set(digests[:25])
        assert await _read(store, digests[:25]) == b"".join(contents[:25])


async def test_batches_in_any_order_do_not_wait_for_each_other_for_ever(house: House) -> None:
    store = await house.open()
    other = await house.another(store)
    contents = _small(200)
    chance = random.Random(3)
    digests = [_digest(each) for each in contents]
    async with asyncio.timeout(30):
        for _ in range(5):
            await asyncio.gather(
                store.blobs.put_blobs(chance.sample(contents, k=200)),
                other.blobs.put_blobs(chance.sample(contents, k=200)),
                store.blobs.touch_blobs(chance.sample(digests, k=200), at=NOW),
                other.blobs.drop_blobs(chance.sample(digests, k=200), before=LATER),
            )


async def test_thousands_of_small_blobs_take_no_more_than_seconds(store: Store) -> None:
    contents = _small(5000)
    began = time.monotonic()
    for start in range(0, 5000, 1000):
        await store.blobs.put_blobs(contents[start : start + 1000])
    digests = [_digest(each) for each in contents]
    assert await store.blobs.touch_blobs(digests, at=LATER) == set()
    assert await _read(store, digests) == b"".join(contents)
    assert time.monotonic() - began < 60


async def test_a_reader_that_leaves_early_leaves_no_file_open(store: Store) -> None:
    infos = await store.blobs.put_blobs([os.urandom(900_000) for _ in range(5)])
    stream = store.blobs.read_blobs([info.digest for info in infos])
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator in both adapters


async def test_a_batch_that_was_killed_halfway_is_gone_at_the_next_open(
    sqlite_house: House, data: pathlib.Path
) -> None:
    left_over = data / "artifacts" / ".incoming" / "tmpbatch" / _digest(b"x")
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"x")
    store = await sqlite_house.open()
    assert not left_over.parent.exists()
    assert await store.blobs.blob_stamps(limit=10) == []


async def test_a_cancelled_batch_leaves_all_or_nothing_of_each_blob(house: House) -> None:
    store = await house.open()
    contents = [os.urandom(100_000) for _ in range(30)]
    work = asyncio.create_task(store.blobs.put_blobs(contents))
    await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    found = await store.blobs.blob_sizes([_digest(each) for each in contents])
    for each in contents:
        if _digest(each) in found:
            assert await _read(store, [_digest(each)]) == each


async def test_blobs_of_an_older_schema_get_a_stamp_when_they_are_migrated(postgres_house: House) -> None:
    import asyncpg

    store = await postgres_house.open()
    await store.blobs.put_blobs([b"old"])
    await postgres_house.close()
    connection = await asyncpg.connect(postgres_house.url)
    await connection.execute(
        "alter table blob drop column stamp; drop index event_of_module;"
        " drop function corral_drop_module_events; drop function corral_chain;"
        " drop table chain, chain_link, chain_removed; delete from schema_version where version >= 2"
    )
    await connection.close()
    store = await postgres_house.open()
    (stamp,) = await store.blobs.blob_stamps(limit=10)
    assert abs(stamp.at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
