"""A node's modules under a real controller."""

from __future__ import annotations

import os
import pathlib

import pytest
from node_archives import install, node_archive, wait_at_nodes

from corral.sdk.runner.proc_table import children
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually

SOURCE = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    pass
"""


def named(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.trap("T3")
async def test_a_package_for_nodes_alone_runs_on_the_node_and_its_controller_starts_no_process(
    cluster, scratch
):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    shown = await install(controller, node_archive(scratch / "a", "guard", source=SOURCE))
    assert (shown["phase"], shown["live"]) == ("ACTIVE", None)
    await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))
    live = daemon.app.modules.engine.live("guard")
    assert live is not None
    (zygote,) = [pid for pid in children(os.getpid()) if named(pid) == "corral-zygote"]
    assert [named(pid) for pid in children(zygote)] == ["mod:guard"]
    assert children(zygote) == [live.pid]


async def test_what_was_damaged_while_the_daemon_was_down_is_fetched_and_runs_again(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    archive = node_archive(scratch / "a", "guard", "1.0.0", source=SOURCE)
    await install(controller, archive)
    await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))
    await daemon.app.stop()
    (kept,) = (daemon.config.data / "cache" / "modules" / "artifacts").glob("*.zip")
    kept.chmod(0o600)
    kept.write_bytes(archive.read_bytes()[:-10])
    again = await cluster.restart(daemon)

    def mended() -> bool:
        return kept.exists() and kept.read_bytes() == archive.read_bytes()

    await eventually(mended)
    await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))
    assert await again.app.modules.settled() == ()
    await controller.call("DELETE", "/api/v1/modules/guard")
    await eventually(lambda: not again.app.modules.set_entries())
    await eventually(lambda: not list(kept.parent.glob("*.zip")))


SPEAKING = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        ctx.logger.warning("the disk is %s full", "half", extra={"disk": "sda"})
"""


async def test_what_a_module_logs_stands_in_the_log_of_its_node_under_its_name(cluster, scratch):
    controller = await cluster.controller()
    await install(controller, node_archive(scratch / "a", "guard", source=SPEAKING))
    join = await controller.join_token("n1")
    known = ("--controller", controller.grpc_address, "--join", join, "--node-id", "n1")
    async with ProcessCluster(scratch) as processes:  # a log of its own takes a process of its own
        daemon = processes.start("daemon", "--data", str(scratch / "n1"), *known)
        await daemon.ready()
        await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))

        async def lines() -> list[dict]:
            shown = await controller.call("GET", "/api/v1/logs?source=node:n1&level=WARN&limit=500")
            return [line for line in shown["items"] if line["logger"] == "module:guard"]

        (line,) = await eventually(lines)
        assert (line["level"], line["message"]) == ("WARN", "the disk is half full")
        assert line["fields"] == {"disk": "sda", "version": "1.0.0"}
