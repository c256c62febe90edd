"""The fixtures of the HTTP suite."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from http_rig import Rig, http_rig


@pytest.fixture
def data() -> Iterator[pathlib.Path]:
    """A data directory in memory, where there is some: the root disk creates files slowly."""
    parent = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    directory = tempfile.mkdtemp(prefix="corral-http-", dir=parent)
    yield pathlib.Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data) as made:
        yield made


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    """The administrator."""
    async with rig.client() as made:
        yield made
