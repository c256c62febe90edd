"""The whole product once, as users run it: a controller, a daemon and the command line, each a process.

Part of `make test`; what else whole processes have to stand is tested by `make system`.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from corral.testing import workloads
from corral.testing.api_calls import wait_for_instance, wait_for_line
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from tests.system.estate import Estate
from tests.system.site_of_servers import CONTROLLER, DAEMON, Site

OBSERVER = pathlib.Path(__file__).parents[2] / "modules" / "process-observer"


@pytest.mark.timeout(240)
async def test_an_instance_beside_a_module_lives_through_kills_of_daemon_and_controller(
    processes: ProcessCluster, scratch: pathlib.Path
) -> None:
    site = Site(Estate(processes, scratch))
    controller = await site.estate.controller(**CONTROLLER)
    daemon = await site.estate.daemon("n1", **DAEMON)
    await site.corral("module", "build", str(OBSERVER), "--out", str(scratch / "observer.cmod"))
    installed = await site.corral("module", "install", str(scratch / "observer.cmod"))
    assert "ACTIVE" in installed
    assert "n1:" in installed

    command = workloads.reading_commands()
    document = {"name": "lobby", "command": command, "stop": [{"command": "stop", "wait_seconds": 20}]}
    (scratch / "lobby.json").write_text(json.dumps(document))
    await site.corral("group", "create", "-f", str(scratch / "lobby.json"))
    await site.corral("instance", "start", "lobby", "--wait")
    before = await wait_for_instance(site, "lobby-1", lambda item: item["state"] == "RUNNING")
    await site.corral("instance", "command", "lobby-1", "hello")
    await wait_for_line(site, "lobby-1", "got hello")

    await daemon.kill()
    await site.estate.daemon("n1", **DAEMON)
    await controller.kill()
    await site.estate.controller(**CONTROLLER)
    await site.estate.wait_for_node("n1", "ONLINE")
    after = await wait_for_instance(site, "lobby-1", lambda item: item["state"] == "RUNNING")
    assert (after["pid"], after["incarnation"]) == (before["pid"], before["incarnation"])
    await site.corral("instance", "command", "lobby-1", "again")
    await wait_for_line(site, "lobby-1", "got again")
    assert "got hello\ngot again" in await site.corral("instance", "logs", "lobby-1")

    async def observed() -> bool:
        (module,) = (await site.call("GET", "/api/v1/nodes/n1/modules"))["items"]
        return (module["module"], module["phase"]) == ("process-observer", "ACTIVE")

    await eventually(observed, deadline=40)
    assert "STOPPED" in await site.corral("instance", "stop", "lobby-1", "--wait")
    ended = await wait_for_instance(site, "lobby-1", lambda item: item["state"] == "STOPPED")
    assert (ended["exit"]["code"], ended["exit"]["crashed"]) == (0, False)
