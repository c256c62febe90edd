"""What the packers of this machine make of a directory is taken in as it lies on disk."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import AsyncIterator

import pytest
from library_cases import a_library, archive_of, tree_in

from corral.errors import Code, Rejected, Retryable
from corral.store.port import Store
from corral.testing.archives import in_chunks, tar_gz


@pytest.fixture
def directory(scratch: pathlib.Path) -> pathlib.Path:
    root = scratch / "server"
    (root / "plugins" / ("long-" * 20) / ("name-" * 30)).mkdir(parents=True)
    (root / "logs").mkdir()
    (root / "start.sh").write_bytes(b"#!/bin/sh\n")
    (root / "start.sh").chmod(0o755)
    (root / "plugins" / ("long-" * 20) / ("name-" * 30) / "ünïcode.jar").write_bytes(os.urandom(100_000))
    (root / "fixed.bin").write_bytes(b"\0" * 10_000)
    (root / "fixed.bin").chmod(0o444)
    return root


def lying_in(root: pathlib.Path) -> dict[str, tuple[bytes, int]]:
    modes = {"start.sh": 0o755, "fixed.bin": 0o444}
    files = [path for path in root.rglob("*") if path.is_file()]
    found = {str(path.relative_to(root)): (path.read_bytes(), modes.get(path.name, 0o644)) for path in files}
    return {**found, "logs/": (b"", 0o755)}


@pytest.mark.parametrize(
    "command",
    [
        ["tar", "-czf", "-", "."],
        ["tar", "--format=gnu", "-czf", "-", "."],
        ["tar", "--format=pax", "-czf", "-", "plugins", "logs", "start.sh", "fixed.bin"],
        ["tar", "--format=posix", "--sparse", "-cf", "-", "plugins", "logs", "start.sh", "fixed.bin"],
        ["zip", "-qr", "-", "."],
    ],
    ids=["tar", "gnu", "pax", "plain", "zip"],
)
async def test_a_packed_directory_comes_out_as_it_was(
    sqlite: Store, scratch: pathlib.Path, directory: pathlib.Path, command: list[str]
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    packed = subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout
    library = a_library(sqlite, scratch)
    intake = await library.intake_archive(in_chunks(packed))
    assert tree_in(await archive_of(library, intake)) == lying_in(directory)


@pytest.mark.trap("T26")
async def test_links_are_refused_with_what_to_do_about_them(
    sqlite: Store, scratch: pathlib.Path, directory: pathlib.Path
) -> None:
    library = a_library(sqlite, scratch)
    (directory / "twin").hardlink_to(directory / "start.sh")
    packed = subprocess.run(["tar", "-czf", "-", "."], cwd=directory, capture_output=True, check=True).stdout
    with pytest.raises(Rejected) as refused:
        await library.intake_archive(in_chunks(packed))
    assert refused.value.code is Code.PATH_REFUSED
    assert "--hard-dereference" in (refused.value.hint or "")
    command = ["tar", "--hard-dereference", "-czf", "-", "."]
    packed = subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout
    assert (await library.intake_archive(in_chunks(packed))).files == 4


async def test_a_disk_that_takes_no_upload_is_named(sqlite: Store, scratch: pathlib.Path) -> None:
    (scratch / "uploads").write_bytes(b"not a directory")
    with pytest.raises(Retryable) as refused:
        await a_library(sqlite, scratch).intake_archive(in_chunks(tar_gz({})))
    assert refused.value.code is Code.DISK_FULL
    assert str(scratch / "uploads") in refused.value.message


async def test_a_source_that_fails_with_an_operating_system_s_error_is_not_a_full_disk(
    sqlite: Store, scratch: pathlib.Path
) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError("the source failed")

    with pytest.raises(OSError, match="the source failed"):
        await a_library(sqlite, scratch).intake_archive(failing())
