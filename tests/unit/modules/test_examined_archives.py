"""Archives that are kept after they were examined: whose they are, for how long, and how many."""

from __future__ import annotations

import pathlib

import pytest

from corral.controller.modules.examined_archives import (
    KEPT_IN_ALL,
    KEPT_OF_OWNER,
    KEPT_SECONDS,
    ExaminedArchives,
)
from corral.controller.modules.upload_files import sweep_uploads
from corral.errors import Code, Rejected
from corral.signing import Sidecar
from corral.system.clock import SystemClock

SIGNED = Sidecar(kind="sig", content=b"s")


class LateClock(SystemClock):
    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


class Kept:
    def __init__(self, directory: pathlib.Path, *, most_bytes: int = 1000) -> None:
        self.directory = directory
        self.clock = LateClock()
        self.archives = ExaminedArchives(clock=self.clock, most_bytes=most_bytes)

    async def keep(self, owner: str, sha256: str, *, size: int = 1, sidecar: Sidecar | None = None) -> bool:
        """As a handler does with a form, whose file is removed after it."""
        file = self.directory / "module-received.part"
        file.write_bytes(sha256.encode())
        until = await self.archives.keep(owner, file, sha256=sha256, size=size, sidecar=sidecar)
        file.unlink()
        return until is not None

    async def has(self, owner: str, sha256: str) -> bool:
        try:
            async with self.archives.opened(owner, sha256) as kept:
                return kept.path.read_bytes() == sha256.encode()
        except Rejected as refused:
            if refused.code is not Code.NOT_FOUND:
                raise
            return False

    @property
    def files(self) -> int:
        return len(list(self.directory.iterdir()))


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Kept:
    return Kept(tmp_path)


async def test_an_archive_is_kept_for_its_owner_and_for_a_while(kept: Kept) -> None:
    assert await kept.keep("a", "x", sidecar=SIGNED)
    assert await kept.has("a", "x")
    assert not await kept.has("b", "x")
    assert not await kept.has("a", "y")
    async with kept.archives.opened("a", "x") as found:
        assert found.sidecar == SIGNED
    kept.clock.passed = KEPT_SECONDS - 1
    await kept.archives.purge()
    assert await kept.has("a", "x")
    kept.clock.passed = KEPT_SECONDS + 1
    assert not await kept.has("a", "x")
    assert kept.files == 0


async def test_what_is_borrowed_stays_until_it_is_given_back(kept: Kept) -> None:
    await kept.keep("a", "x")
    async with kept.archives.opened("a", "x") as found:
        await kept.archives.forget("a", "x")
        await kept.archives.forget("a", "x")
        assert found.path.read_bytes() == b"x"
    assert kept.files == 0
    await kept.keep("a", "x")
    with pytest.raises(ZeroDivisionError):
        async with kept.archives.opened("a", "x"):
            raise ZeroDivisionError
    assert kept.files == 1


async def test_of_one_owner_the_oldest_makes_room_and_others_keep_theirs(kept: Kept) -> None:
    await kept.keep("other", "x")
    for number in range(KEPT_OF_OWNER + 2):
        assert await kept.keep("a", str(number))
    assert [await kept.has("a", str(number)) for number in range(5)] == [False, False, True, True, True]
    assert await kept.has("other", "x")
    assert kept.files == KEPT_OF_OWNER + 1
    for _ in range(5):
        assert await kept.keep("a", "4", sidecar=SIGNED)
    assert await kept.has("a", "2"), "the same archive takes one place"
    assert kept.files == KEPT_OF_OWNER + 1


async def test_there_are_so_many_places_and_bytes_in_all(kept: Kept) -> None:
    for number in range(KEPT_IN_ALL):
        assert await kept.keep(f"owner-{number}", "x")
    assert not await kept.keep("late", "x")
    assert await kept.keep("owner-0", "x"), "one's own makes room"
    assert kept.files == KEPT_IN_ALL
    await kept.archives.close()
    assert kept.files == 0


async def test_a_large_archive_has_no_place_beside_another(tmp_path: pathlib.Path) -> None:
    kept = Kept(tmp_path, most_bytes=100)
    assert await kept.keep("a", "x", size=60)
    assert not await kept.keep("b", "y", size=41)
    assert await kept.keep("b", "y", size=40)
    assert not await kept.keep("c", "z", size=101)
    assert kept.files == 2


async def test_nothing_is_kept_once_the_term_is_over_or_the_file_cannot_be(kept: Kept) -> None:
    gone = kept.directory / "gone"
    assert await kept.archives.keep("a", gone, sha256="x", size=1, sidecar=None) is None
    await kept.archives.close()
    assert not await kept.keep("a", "x")
    assert kept.files == 0


async def test_what_a_dead_process_has_kept_is_swept_with_its_uploads(kept: Kept) -> None:
    await kept.keep("a", "x")
    assert kept.files == 1
    sweep_uploads(kept.directory)
    assert kept.files == 0
    assert not await kept.has("a", "x"), "and it is not believed to be there"


async def test_one_that_has_no_place_drives_none_of_its_owner_out(kept: Kept) -> None:
    for number in range(KEPT_OF_OWNER):
        assert await kept.keep("a", f"x{number}", size=100)
    assert not await kept.keep("a", "large", size=1001)
    assert not await kept.keep("a", "x0", size=1001), "nor does it take the place of its former self"
    for number in range(KEPT_OF_OWNER):
        assert await kept.has("a", f"x{number}")
    assert kept.files == KEPT_OF_OWNER
