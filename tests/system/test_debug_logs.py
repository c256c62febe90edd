"""An operator who switches to DEBUG sees what each room does."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from corral.testing.workloads import reading_commands
from tests.system.estate import Estate

pytestmark = pytest.mark.system

DAEMON = {"link", "workload", "runs", "console", "cache", "node", "probes"}
CONTROLLER = {"http", "reconcile", "instances", "consoles", "sessions", "distribution", "store"}


async def test_every_room_says_something_useful_and_not_without_end(tmp_path: pathlib.Path) -> None:
    async with ProcessCluster(tmp_path) as processes:
        estate = Estate(processes, tmp_path)
        await estate.controller(CORRAL_LOG_LEVEL="DEBUG")
        daemon = await estate.daemon("n1")
        await estate.call("PUT", "/api/v1/logs/level", {"source": "node:n1", "level": "DEBUG"})
        await asyncio.to_thread(_upload_template, estate, tmp_path / "base")
        document = {"name": "g", "min": 1, "command": list(reading_commands()), "templates": ["base"]}
        document |= {
            "probes": [{"kind": "log", "pattern": "up"}],
            "ports": {"primary": {"range": [31000, 31999]}},
        }
        await estate.call("POST", "/api/v1/groups", document)
        await eventually(lambda: _ready(estate), deadline=40)
        await estate.call("PATCH", "/api/v1/groups/g", {"min": 0})
        await estate.call("POST", "/api/v1/instances/g-1/stop", {})
        for source, rooms in (("node:n1", DAEMON), ("controller", CONTROLLER)):
            await eventually(lambda at=source, of=rooms: _all_said(estate, at, of), deadline=40)
        before = await _debug(estate, "node:n1")
        await asyncio.sleep(
            1
        )  # not a wait for anything: a record that is logged because of a record shows by now
        assert len(await _debug(estate, "node:n1")) - len(before) < 50
        await daemon.terminate()


def _upload_template(estate: Estate, directory: pathlib.Path) -> None:
    directory.mkdir()
    (directory / "motd.txt").write_text("hello")
    environment = {**os.environ, "CORRAL_URL": f"http://{estate.http}", "CORRAL_TOKEN": estate.token}
    command = [sys.executable, "-m", "corral.cli", "template", "upload", "base", str(directory)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)


async def _ready(estate: Estate) -> bool:
    found = (await estate.call("GET", "/api/v1/instances"))["items"]
    return bool(found and found[0]["ready"])


async def _debug(estate: Estate, source: str) -> list[dict]:
    page = await estate.call("GET", f"/api/v1/logs?source={source}&limit=500&after=0")
    return [record for record in page["items"] if record["level"] == "DEBUG"]


async def _all_said(estate: Estate, source: str, rooms: set[str]) -> bool:
    return not await _missing(estate, source, rooms)


async def _missing(estate: Estate, source: str, wanted: set[str]) -> set[str]:
    """The rooms that have not said anything at DEBUG."""
    loggers = [record["logger"] for record in await _debug(estate, source)]
    return {room for room in wanted if not any(f".{room}" in logger for logger in loggers)}
