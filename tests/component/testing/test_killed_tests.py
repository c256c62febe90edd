"""A test run that is killed leaves no instance behind."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from corral.testing.reaper import Reaper
from corral.testing.survivors import survivors
from corral.testing.waiting import eventually

CONFTEST = 'pytest_plugins = ["corral.testing.pytest_plugin"]\n'
TEST = """
import asyncio
from corral.testing import workloads
from corral.testing.runtime_nodes import start_detached

async def test_that_never_ends(tmp_path):
    await start_detached(tmp_path / "node", "lobby-1", workloads.ignoring_signals())
    await start_detached(tmp_path / "node", "lobby-2", workloads.double_forking())
    print("started", flush=True)
    await asyncio.sleep(600)
"""


async def test_instances_of_a_killed_test_run_end(tmp_path: pathlib.Path, reaper: Reaper) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TEST)
    place = tmp_path / "temporary"
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-o", "asyncio_mode=auto", f"--basetemp={place}", "test_it.py"),
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    try:
        said = next((line for line in run.stdout if "started" in line), None)
        assert said is not None, "the inner test did not get that far"
        node = next(place.glob("*/node"))
        assert survivors([node])
    finally:
        run.kill()
        run.communicate(timeout=30)
    await eventually(lambda: not survivors([node]), state=lambda: survivors([node]))
