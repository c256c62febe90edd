"""Reading gzip: whatever an archive is made of, content comes or the reading ends."""

from __future__ import annotations

import gzip
import io
import random
import zlib

import pytest

from corral.archives.gzip_reader import FREE_MEMBERS, MOST_IDLE, GzipReader

CONTENT = random.Random(1).randbytes(100_000) + b"a" * 1_000_000
PACKED = gzip.compress(CONTENT)
EMPTY = gzip.compress(b"")
NAMED = b"\x1f\x8b\x08\x08" + b"\0" * 6
"""The head of a member whose name follows."""


class Source(io.BytesIO):
    """Counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self.taken += len(block)
        return block


def unpacked(packed: bytes, *, size: int = 10_000) -> bytes:
    reader = GzipReader(io.BytesIO(packed), lambda: None)
    return b"".join(iter(lambda: reader.read(size), b""))


@pytest.mark.parametrize("size", [1_000, 70_000, 10_000_000])
def test_all_members_are_read_and_padding_is_passed_over(size: int) -> None:
    assert unpacked(PACKED, size=size) == CONTENT
    assert unpacked(EMPTY + PACKED + EMPTY + PACKED + b"\0" * 5_000, size=size) == CONTENT * 2
    assert unpacked(EMPTY) == b""


def test_members_of_common_sizes_may_be_many() -> None:
    assert unpacked(gzip.compress(b"x" * 60_000) * (FREE_MEMBERS + 10)) == b"x" * 60_000 * (FREE_MEMBERS + 10)


@pytest.mark.parametrize("length", [0, 1, 15, 5_000, len(PACKED) - 8, len(PACKED) - 1])
def test_what_was_cut_is_told(length: int) -> None:
    with pytest.raises(EOFError):
        unpacked(PACKED[:length])


@pytest.mark.parametrize(
    "packed",
    [PACKED + b"rest", PACKED[:-8] + b"\0" * 8, b"\x1f\x8b\x07" + PACKED[3:]],
    ids=["followed by something", "with another checksum", "of another method"],
)
def test_what_is_damaged_is_refused(packed: bytes) -> None:
    with pytest.raises(zlib.error):
        unpacked(packed)


@pytest.mark.parametrize(
    "endless",
    [b"\0", EMPTY, NAMED + b"x" * 1000],
    ids=["padding", "empty members", "a name"],
)
def test_input_without_content_is_not_read_on(endless: bytes) -> None:
    times = 8 * MOST_IDLE // len(endless)
    source = Source(PACKED + (endless * times if endless[:4] != NAMED[:4] else NAMED + b"x" * 8 * MOST_IDLE))
    reader = GzipReader(source, lambda: None)
    with pytest.raises(zlib.error, match="content"):
        while reader.read(100_000):
            pass
    assert source.taken < len(PACKED) + 2 * MOST_IDLE


def test_reading_can_be_broken_off_where_no_content_comes() -> None:
    checks = iter(range(5))
    reader = GzipReader(io.BytesIO(EMPTY * 900), lambda: next(checks) and None)
    with pytest.raises(StopIteration):
        reader.read(1)
