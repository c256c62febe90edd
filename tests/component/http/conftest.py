"""The fixtures of the HTTP suite."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import httpx
import pytest
from http_rig import Rig, http_rig


@pytest.fixture
def data(scratch: pathlib.Path) -> pathlib.Path:
    return scratch


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data) as made:
        yield made


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    """The administrator."""
    async with rig.client() as made:
        yield made
