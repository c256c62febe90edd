"""A node's modules under a real controller."""

from __future__ import annotations

import os
import pathlib

import httpx
import pytest
from node_archives import install, node_archive, wait_at_nodes

from corral.domain.node_states import NodeState
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


@pytest.mark.system
async def test_the_request_of_an_install_is_in_the_log_of_the_node(cluster, scratch):
    controller = await cluster.controller()
    join = await controller.join_token("n1")
    known = ("--controller", controller.grpc_address, "--join", join, "--node-id", "n1")
    archive = node_archive(scratch / "a", "guard", source=SOURCE)
    headers = {"Authorization": f"Bearer {controller.admin_token}", "X-Request-Id": "req-install"}
    async with ProcessCluster(scratch) as processes:  # a log of its own takes a process of its own
        daemon = processes.start("daemon", "--data", str(scratch / "n1"), *known)
        await daemon.ready()
        await controller.wait_for_node("n1", NodeState.ONLINE)
        async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=60) as client:
            file = ("guard.cmod", archive.read_bytes(), "application/zip")
            answer = await client.post("/api/v1/modules", files={"file": file})
        assert answer.status_code == 201, answer.text
        await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))

        async def messages(request: str) -> list[tuple[str, str]]:
            shown = await controller.call("GET", f"/api/v1/logs?source=node:n1&request={request}&limit=500")
            return [(line["message"], line["fields"].get("phase", "")) for line in shown["items"]]

        seen: list[tuple[str, str]] = []

        async def reached() -> bool:
            seen[:] = await messages("req-install")
            return ("module.transition", "ACTIVE") in seen

        await eventually(reached, deadline=20, state=lambda: seen)
        assert await messages("req-other") == []


LEAKY = """
import subprocess
from corral.sdk import DaemonModule, PlatformModule

class Platform(PlatformModule):
    def on_start(self, ctx):
        subprocess.Popen(["sleep", "3600"], start_new_session=True)

class Module(DaemonModule):
    def on_start(self, ctx):
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
"""


@pytest.mark.system
async def test_what_a_module_that_is_gone_left_is_counted_for_the_controller_and_for_each_node(
    cluster, scratch
):
    controller = await cluster.controller(modules__leak_grace_seconds=1)
    await cluster.daemon("n1", controller, modules__leak_grace_seconds=1)
    backend = {
        "controller": {"entrypoint": "leaky_module:Platform"},
        "daemon": {"entrypoint": "leaky_module:Module"},
    }
    archive = node_archive(
        scratch / "a", "leaky", source=LEAKY, hosts=["controller", "daemon"], backend=backend
    )
    await install(controller, archive)
    await wait_at_nodes(controller, "leaky", n1=("ACTIVE", "1.0.0"))
    await controller.call("DELETE", "/api/v1/modules/leaky")
    metrics = controller.app.role.term.http.setting.metrics
    shown: list[str] = []

    async def counted() -> bool:
        text = (await metrics.exposition()).decode()
        shown[:] = [line for line in text.splitlines() if "leaked{" in line]
        return {
            'corral_module_leaked{module="leaky"} 1.0',
            'corral_module_classloader_leaked{moduleId="leaky"} 1.0',
            'corral_module_leaked{module="leaky",node="n1"} 1.0',
        } <= set(shown)

    await eventually(counted, state=lambda: shown)


async def test_what_nodes_wait_for_is_among_the_unresolved_requirements(cluster, scratch):
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    needs = {"requires": [{"id": "node.disk", "versionRange": "^1"}]}
    await install(controller, node_archive(scratch / "a", "disk-view", capabilities=needs))
    await wait_at_nodes(controller, "disk-view", n1=("WAITING", "1.0.0"))
    listed = await controller.call("GET", "/api/v1/capabilities")
    assert listed["unresolved"] == [
        {
            "module": "disk-view",
            "id": "node.disk",
            "version_range": "^1",
            "why": "missing_provider",
            "reason": "no active module provides node.disk there in the version that is needed",
            "optional": False,
            "nodes": ["n1"],
        }
    ]
    shown = await controller.call("GET", "/api/v1/modules/disk-view")
    assert shown["on_nodes"] == {"wanted": 1, "active": 0, "degraded": 0, "waiting": 1, "disconnected": 0}
