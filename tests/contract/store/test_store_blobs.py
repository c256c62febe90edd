"""Blobs: whole and verified, or not there."""

from __future__ import annotations

import asyncio
import hashlib
import pathlib
from collections.abc import AsyncIterator

import pytest
from store_cases import House

from corral.errors import Code, Rejected
from corral.store.port import BlobInfo, Store
from corral.testing.waiting import eventually


async def _pieces(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def _read(store: Store, digest: str, **how: int) -> bytes:
    return b"".join([piece async for piece in store.blobs.read_blob(digest, **how)])


def _content(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 1_500_000])
async def test_a_blob_is_read_back_from_any_offset(store: Store, size: int) -> None:
    content = _content(size)
    info = await store.blobs.put_blob(_pieces(content), expect=_digest(content))
    assert info == BlobInfo(digest=_digest(content), size=size)
    assert await store.blobs.blob_info(info.digest) == info
    assert await _read(store, info.digest) == content
    for offset in (1, 65536, 262_143, 262_144, size, size + 5):
        assert await _read(store, info.digest, offset=offset, chunk=70_000) == content[offset:]


async def test_pieces_of_a_read_are_never_larger_than_asked_for(store: Store) -> None:
    info = await store.blobs.put_blob(_pieces(_content(300_000)))
    sizes = [len(piece) async for piece in store.blobs.read_blob(info.digest, chunk=1000)]
    assert max(sizes) <= 1000
    assert sum(sizes) == 300_000


async def test_content_of_another_digest_is_refused_and_not_kept(store: Store) -> None:
    content = _content(600_000)
    with pytest.raises(Rejected) as refused:
        await store.blobs.put_blob(_pieces(content), expect=_digest(b"other"))
    assert refused.value.code is Code.DIGEST_MISMATCH
    assert await store.blobs.blob_info(_digest(content)) is None
    assert await store.blobs.blob_info(_digest(b"other")) is None


async def test_an_upload_that_breaks_off_leaves_nothing_visible(store: Store) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield _content(600_000)
        raise ConnectionResetError("the uploader went away")

    with pytest.raises(ConnectionResetError):
        await store.blobs.put_blob(broken())
    assert await store.blobs.blob_info(_digest(_content(600_000))) is None


async def test_identical_uploads_at_the_same_time_are_one_blob(store: Store) -> None:
    content = _content(700_000)
    infos = await asyncio.gather(*(store.blobs.put_blob(_pieces(content)) for _ in range(4)))
    assert len(set(infos)) == 1
    assert await _read(store, infos[0].digest) == content
    assert await store.blobs.delete_blob(infos[0].digest)
    assert not await store.blobs.delete_blob(infos[0].digest)
    assert await store.blobs.blob_info(infos[0].digest) is None


async def test_a_blob_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(Rejected) as refused:
        await _read(store, _digest(b"nothing"))
    assert refused.value.code is Code.NOT_FOUND


async def test_only_a_digest_names_a_blob(store: Store) -> None:
    for name in ["../../etc/passwd", "ab", "A" * 64, "", "a" * 63 + "\n"]:
        with pytest.raises(Rejected) as refused:
            await store.blobs.blob_info(name)
        assert refused.value.code is Code.INVALID_FIELD, name


async def test_a_blob_outlives_its_store_being_closed_and_opened(house: House) -> None:
    store = await house.open()
    info = await store.blobs.put_blob(_pieces(b"content"))
    await house.close()
    assert await _read(await house.open(), info.digest) == b"content"


async def test_files_of_uploads_that_were_killed_are_removed_at_open(
    sqlite_house: House, data: pathlib.Path
) -> None:
    left_over = data / "artifacts" / ".incoming" / "tmp123"
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"half")
    await sqlite_house.open()
    assert not left_over.exists()


async def test_a_cancelled_upload_leaves_no_file(sqlite_house: House, data: pathlib.Path) -> None:
    store = await sqlite_house.open()
    arrived = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield _content(600_000)
        arrived.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(store.blobs.put_blob(endless()))
    await arrived.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    incoming = data / "artifacts" / ".incoming"
    await eventually(lambda: not list(incoming.iterdir()))


async def test_chunks_of_dead_uploaders_are_swept_and_those_of_live_ones_are_not(
    postgres_house: House,
) -> None:
    import asyncpg

    store = await postgres_house.open()
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield _content(600_000)
        arrived.set()
        await go_on.wait()

    upload = asyncio.create_task(store.blobs.put_blob(slow()))
    await arrived.wait()
    connection = await asyncpg.connect(postgres_house.url)
    await connection.execute("insert into blob_chunk values (42, 0, 'left by a dead uploader')")
    await postgres_house.open()
    assert await connection.fetchval("select count(*) from blob_chunk where upload = 42") == 0
    await connection.close()
    go_on.set()
    info = await upload
    assert await _read(store, info.digest) == _content(600_000)
