"""The modules for nodes that ship with Corral: built by the tool their users have, installed through the API, and
around real instances."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import httpx
import pytest

from corral.daemon.workload.java import refusal, units
from corral.testing import workloads
from corral.testing.api_calls import wait_for_instance, wait_for_instances
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.module_house import ModuleHouse
from corral.testing.waiting import eventually

SOURCES = pathlib.Path(__file__).parents[3] / "modules"
AT_ONCE = {"attempts": 5, "delay_ms": 1, "max_delay_ms": 1}


def command_of(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def is_alive(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}/stat").exists()


class Java:
    """A program of that name that stays until it reads `stop`; its command line shows how it was called."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "java"
        self.path.write_text('#!/bin/sh\nwhile IFS= read -r line; do [ "$line" = stop ] && exit 0; done\n')
        self.path.chmod(0o755)

    @property
    def command(self) -> list[str]:
        return [str(self.path), "-Dplanned=1", "-jar", "server.jar", "nogui"]

    def flags_of(self, pid: int) -> list[str]:
        words = command_of(pid)
        return words[words.index(str(self.path)) + 1 : words.index("-Dplanned=1")]


async def test_flags_reach_every_jvm_of_their_group_and_outlast_the_controller(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    java = Java(scratch)
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    house = ModuleHouse(controller, SOURCES / "jvm-flags", scratch)
    assert (await house.install())["phase"] == "ACTIVE"
    await house.wait_on_node("ACTIVE")
    await house.request("PUT", "/flags/lobby", {"flags": ["-Da=1"]})
    lobby = await house.start_instance("lobby", java.command, restart=AT_ONCE)
    other = await house.start_instance("other", java.command)
    assert (java.flags_of(lobby["pid"]), java.flags_of(other["pid"])) == (["-Da=1"], [])
    said = await controller.call("POST", "/api/v1/commands/execute", {"command": "jvm-flags set * -Dall=1"})
    assert said["output"] == ["*: -Dall=1"]
    lobby, other = await house.restart_instance(lobby), await house.restart_instance(other)
    assert java.flags_of(lobby["pid"]) == ["-Dall=1", "-Da=1"]
    assert java.flags_of(other["pid"]) == ["-Dall=1"]
    group = await controller.call("GET", "/api/v1/groups/lobby")
    assert group["command"] == java.command
    told = lobby["modules"]["changes"]
    assert [(each["module"], each["jvm_args_added"]) for each in told] == [
        ("jvm-flags", ["-Dall=1", "-Da=1"])
    ]
    await _boots_without_controller(cluster, controller, daemon, java, lobby["pid"])


async def _boots_without_controller(
    cluster: LocalCluster, controller: LocalController, daemon: LocalDaemon, java: Java, pid: int
) -> None:
    """The instance that crashes then is started by the node alone, with the flags it had."""
    await controller.app.stop()
    again = await cluster.restart(daemon)
    assert is_alive(pid)
    await eventually(lambda: [scope.module_id for scope in again.app.modules.serving()] == ["jvm-flags"])
    os.kill(pid, signal.SIGKILL)

    def successors() -> list[int]:
        runs = [
            run for run in again.app.supervision.supervisor.instances.runs() if run.order.group == "lobby"
        ]
        return [run.handle.pid for run in runs if run.handle is not None and run.handle.pid != pid]

    await eventually(lambda: bool(successors()) and is_alive(successors()[0]))
    assert java.flags_of(successors()[0]) == ["-Dall=1", "-Da=1"]


@pytest.mark.system
async def test_processes_are_observed_and_shown_by_node_instance_and_group(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    house = ModuleHouse(controller, SOURCES / "process-observer", scratch)
    instance = await house.start_instance("lobby", workloads.forking(3))  # before the module: it is adopted
    await house.install()
    await house.configure({"intervalSeconds": 1})
    await house.wait_on_node("ACTIVE")

    def figures() -> dict[str, float]:
        shown = daemon.app.modules.metrics.families()
        return {name: sum(family.numbers.values()) for _, name, family in shown if len(family)}

    await eventually(lambda: "instance_cpu_percent" in figures(), state=figures)
    assert figures()["instance_processes"] == 4
    assert figures()["instance_resident_bytes"] > 100_000
    labels = f'group="lobby",instance="{instance["id"]}",module="process-observer",node="n1"'

    async def shown() -> bool:
        return f"corral_module_instance_processes{{{labels}}} 4.0" in await _metrics(controller)

    await eventually(shown, state=figures)
    await controller.call("PATCH", "/api/v1/groups/lobby", {"min": 0})
    await controller.call("POST", f"/api/v1/instances/{instance['id']}/kill")
    await wait_for_instances(controller, "lobby", 0)
    await eventually(lambda: figures() == {}, state=figures)


async def _metrics(controller: LocalController) -> str:
    async with httpx.AsyncClient(base_url=controller.url) as client:
        token = {"Authorization": f"Bearer {controller.admin_token}"}
        return (await client.get("/metrics", headers=token)).text


async def test_a_process_beside_an_instance_outlives_the_daemon_comes_again_and_goes_with_its_rule(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    house = ModuleHouse(controller, SOURCES / "sidecar", scratch)
    await house.install()
    script = 'echo "$$ {group} {pid} $TARGET" > beside.new; mv beside.new beside; exec sleep 3600'
    rule = {"name": "exporter", "command": ["/bin/sh", "-c", script], "env": {"TARGET": "{instance}"}}
    await house.configure({"rules": [rule], "checkSeconds": 0.2})
    await house.wait_on_node("ACTIVE")
    instance = await house.start_instance("lobby", workloads.silent())
    file = scratch / "n1" / "running" / instance["id"] / "beside"

    def beside() -> list[str]:
        return file.read_text().split() if file.exists() else []

    await eventually(lambda: bool(beside()))
    pid = int(beside()[0])
    assert beside()[1:] == ["lobby", str(instance["pid"]), instance["id"]]
    daemon = await cluster.restart(daemon)
    await eventually(lambda: bool(daemon.app.modules.serving()))
    assert is_alive(pid)
    file.unlink()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: bool(beside()))
    again = int(beside()[0])
    assert again != pid
    await house.wait_on_node("ACTIVE")
    await house.configure({"rules": [], "checkSeconds": 0.2})
    await eventually(lambda: not is_alive(again))
    assert is_alive(instance["pid"])
    same = await wait_for_instance(controller, instance["id"], lambda now: now["state"] == "RUNNING")
    assert same["pid"] == instance["pid"]


@pytest.mark.parametrize(
    "flag",
    [
        "-Xss2m",
        "--add-opens=a/b=C",
        "-jar",
        "-cp",
        "--module=x",
        "@x",
        "x",
        "-p",
        "-XX:Flags=x",
        "--add-reads",
    ],
)
def test_what_jvm_flags_takes_no_node_refuses(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SOURCES / "jvm-flags")
    from jvm_flags.rules import flags_problem

    accepted = flags_problem([flag]) == ""
    assert accepted == all(not refusal(unit) for unit in units([flag]))
    sys.modules.pop("jvm_flags.rules")
