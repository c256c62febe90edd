"""The watch of live copies sees two of one id that the records know nothing of, and no strangers."""

from __future__ import annotations

import os
import pathlib
import subprocess

from corral.testing.live_copies import LiveCopies
from corral.testing.waiting import eventually


def begun(directory: pathlib.Path, id: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sleep", "600"], cwd=directory, env={"PATH": os.environ["PATH"], "CORRAL_INSTANCE_ID": id}
    )


async def test_two_copies_of_one_id_are_seen_and_remembered(tmp_path: pathlib.Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    with LiveCopies(here) as copies:
        first, other = begun(here, "lobby-1"), begun(here, "lobby-2")
        stranger = begun(elsewhere, "lobby-1")
        try:
            await eventually(lambda: set(copies.seen) == {"lobby-1", "lobby-2"})
            assert copies.together == {}
            second = begun(here, "lobby-1")
            try:
                await eventually(lambda: copies.together == {"lobby-1": {first.pid, second.pid}})
            finally:
                second.kill()
                second.wait()
            await eventually(lambda: copies.now() == {"lobby-1": {first.pid}, "lobby-2": {other.pid}})
        finally:
            for process in (first, other, stranger):
                process.kill()
                process.wait()
    assert set(copies.together) == {"lobby-1"}, "it is remembered"
