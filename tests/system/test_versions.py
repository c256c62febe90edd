"""The link between this version and the previous release, in both directions.

Before the first release there is only this version, and it is held to the same suite.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

import pytest
from estate import Estate
from previous_version import install, newest_release

from corral.testing.waiting import eventually

pytestmark = pytest.mark.system
RELEASE = newest_release()
PAIRS = [("this", "this")] + ([("this", RELEASE), (RELEASE, "this")] if RELEASE else [])


@pytest.fixture(scope="module")
def interpreters():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-previous-"))
    yield {"this": sys.executable, **({RELEASE: install(RELEASE, directory)} if RELEASE else {})}
    shutil.rmtree(directory)


@pytest.mark.trap("T60")
@pytest.mark.parametrize(("controller", "daemon"), PAIRS)
async def test_the_link_holds_between_versions(processes, scratch, interpreters, controller, daemon):
    estate = Estate(
        processes,
        scratch,
        controller_python=interpreters[controller],
        daemon_python=interpreters[daemon],
    )
    first = await estate.controller()
    running = await estate.daemon("n1")
    await estate.wait_for_node("n1", "ONLINE")

    async def starts_told() -> int:
        logs = await estate.call("GET", "/api/v1/logs?source=node:n1&limit=500")
        return [r["message"] for r in logs["items"]].count("daemon.started")

    async def started_once() -> bool:
        return await starts_told() == 1

    async def started_twice() -> bool:
        return await starts_told() == 2

    await eventually(started_once)  # a killed daemon may lose the log records of its last moment
    await estate.call("PUT", "/api/v1/logs/level", {"source": "node:n1", "level": "DEBUG"})
    await running.kill()
    await estate.wait_for_node("n1", "DISCONNECTED")
    await estate.daemon("n1")
    await first.kill()
    await estate.controller()
    await estate.wait_for_node("n1", "ONLINE")
    await eventually(started_twice)
    await estate.call("POST", "/api/v1/nodes/n1/revoke", {"reason": "done"})
    await estate.wait_for_node("n1", "REVOKED")
