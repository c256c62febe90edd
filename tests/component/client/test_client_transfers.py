"""Uploads of what changes meanwhile, and downloads that break off."""

from __future__ import annotations

import os
import pathlib

import pytest
from callers import calling
from scripted_server import ScriptedServer, answer

from corral.client import Unreachable
from corral.client.bodies import SourceChanged

DONE = {"id": "a-1", "path": "p", "to": None, "digest": None, "size": 1, "entries": 1, "changed": True}
HALF = b"HTTP/1.1 200 X\r\nContent-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\nhello"  # and no more


class ChangingFile(os.PathLike[str]):
    """A file that has another size when it is opened than when it was looked at."""

    def __init__(self, path: pathlib.Path, later: bytes) -> None:
        self._path = path
        self._later = later
        self._asked = 0

    def __fspath__(self) -> str:
        self._asked += 1
        if self._asked > 1:
            self._path.write_bytes(self._later)
        return str(self._path)


@pytest.mark.parametrize("later", [b"x" * 15, b"x" * 5], ids=["longer", "shorter"])
async def test_a_file_that_changes_its_size_is_not_stored_cut_off(kind, tmp_path, later):
    (tmp_path / "f").write_bytes(b"x" * 10)
    async with ScriptedServer([answer(200, DONE)]) as server, calling(kind, server.url) as caller:
        with pytest.raises(SourceChanged):
            await caller.call(
                lambda corral: corral.instances.put_files_content(
                    "a-1", path="p", content=ChangingFile(tmp_path / "f", later)
                )
            )
    assert server.asked == [], "the server never had all that was announced"


async def test_a_download_that_broke_off_does_not_become_an_empty_file_at_the_second_attempt(kind, tmp_path):
    target = tmp_path / "t"
    target.write_bytes(b"good")
    async with ScriptedServer([HALF], closes=True) as server, calling(kind, server.url) as caller:
        download = await caller.call(lambda corral: _as_value(corral.instances.files_archive("a-1")))
        with pytest.raises(Unreachable):
            await caller.call(lambda _: download[0].save(target))
        with pytest.raises(ValueError, match="read already"):
            await caller.call(lambda _: download[0].save(target))
    assert target.read_bytes() == b"good"
    assert os.listdir(tmp_path) == ["t"]


def _as_value(download: object) -> list[object]:
    """An async download may not be awaited itself."""
    return [download]
