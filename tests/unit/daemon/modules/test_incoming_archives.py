"""Archives that came with their frames, on their way to their place."""

from __future__ import annotations

import os
from pathlib import Path

from corral.daemon.modules.module_archives import ArchiveDownloads
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy


async def test_what_comes_again_is_a_new_file_whatever_became_of_the_first(tmp_path: Path) -> None:
    """One that was made ready for its place, and could not be moved there, is read-only."""
    incoming = ArchiveDownloads(
        tmp_path / "incoming", max_bytes=100, clock=SystemClock(), entropy=SystemEntropy()
    )
    incoming.open()
    first = await incoming.write("a" * 64, b"first")
    first.chmod(0o400)
    os.link(first, tmp_path / "first")
    again = await incoming.write("a" * 64, b"again")
    assert (again, again.read_bytes()) == (first, b"again")
    assert (tmp_path / "first").read_bytes() == b"first"
