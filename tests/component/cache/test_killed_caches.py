"""A daemon that is killed at any moment leaves a cache in which nothing is wrong."""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
import time

import pytest

from corral.daemon.cache.contents import CacheContents
from corral.daemon.cache.sealed_files import digest_of

CHURN = pathlib.Path(__file__).with_name("cache_churn.py")
KILLS = 12


def killed(root: pathlib.Path, seed: int) -> None:
    """Let it work for a moment, then no longer."""
    with subprocess.Popen(
        [sys.executable, str(CHURN), str(root), str(seed)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(random.Random(seed).uniform(0.0, 0.4))
        child.kill()


@pytest.mark.system
def test_nothing_half_made_is_ever_taken_for_whole(scratch):
    root = scratch / "cache"
    whole = 0
    for seed in range(KILLS):
        killed(root, seed // 2)  # every other one goes on with what the one before left behind
        shelves = CacheContents(root)
        shelves.scan()
        for digest, _ in shelves.contents.all():
            assert digest_of(shelves.contents.path(digest)) == digest
        for known in shelves.templates.all():
            manifest = shelves.templates.manifest(known.hash)
            assert manifest is not None, "an entry is whole or not there"
            assert shelves.missing(manifest) == [], "an entry is there only with all its contents"
            whole += 1
    assert whole, "some of them got far enough to be worth looking at"
