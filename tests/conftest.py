"""Fixtures of every suite: leak checks and uvloop come from the plugin we ship."""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import pytest

pytest_plugins = ["corral.testing.pytest_plugin"]


@pytest.fixture
def scratch():
    """A directory in memory, where there is some: the root disk is slow with many small files."""
    parent = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-", dir=parent))
    yield directory
    shutil.rmtree(directory)
