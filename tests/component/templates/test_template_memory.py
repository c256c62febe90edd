"""A large tree passes through in flat memory, and the loop goes on meanwhile."""

from __future__ import annotations

import os
import pathlib
import random
import time
import zlib
from collections.abc import AsyncIterator

import pytest
from library_cases import a_library, a_version, sha256

from corral.controller.templates.archive_import import ArchiveUnpacking
from corral.controller.templates.tar_writer import header_of
from corral.domain.templates import TemplateFile
from corral.store.port import Store
from corral.testing.archives import in_chunks, tar_gz
from corral.testing.counted_calls import calls_by_turn

MIB = 1024 * 1024


async def large_archive(files: int, size: int) -> AsyncIterator[bytes]:
    """A tar.gz that is never in memory as a whole, of contents that no packer makes smaller."""
    chance = random.Random(1)
    packer = zlib.compressobj(0, wbits=31)
    for number in range(files):
        file = TemplateFile(path=f"world/region/r.{number}.mca", mode=0o644, size=size, digest="")
        yield packer.compress(header_of(file))
        for _ in range(size // 65536):
            yield packer.compress(chance.randbytes(65536))
    yield packer.compress(bytes(1024)) + packer.flush()


def peak_of_memory() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.mark.system
@pytest.mark.trap("T9")
async def test_a_large_template_costs_no_memory_and_does_not_stop_the_loop(
    store: Store, scratch: pathlib.Path
) -> None:
    library = a_library(store, scratch)
    await library.intake_archive(in_chunks(tar_gz({"warm": os.urandom(9 * MIB)})))
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = peak_of_memory()
    async with calls_by_turn() as count:
        intake = await library.intake_archive(large_archive(2, 64 * MIB))
        size = 0
        async for block in library.archive(a_version(intake)):
            size += len(block)
    assert size == intake.archive_size
    assert intake.size == 128 * MIB
    assert peak_of_memory() - before < 48 * MIB
    assert count.of(ArchiveUnpacking.next) == 0, "it was unpacked in the loop"
    assert count.most_in_a_turn < 20_000


@pytest.mark.system
async def test_a_tree_of_many_small_files_is_taken_in_quickly(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    data = tar_gz({f"mods/{number % 50}/{number}.json": str(number).encode() * 20 for number in range(5000)})
    began = time.monotonic()
    async with calls_by_turn() as count:
        intake = await library.intake_archive(in_chunks(data))
    assert time.monotonic() - began < 60
    assert count.of(ArchiveUnpacking.next) == 0, "it was unpacked in the loop"
    assert count.most_in_a_turn < 150_000
    archive = b"".join([block async for block in library.archive(a_version(intake))])
    assert sha256(archive) == intake.hash
