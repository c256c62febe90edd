"""The source of a new module on the nodes: hooks around each instance, a setting, a metric."""

from __future__ import annotations

from typing import Final

_MANIFEST: Final = """\
manifestVersion: 1
id: ${id}
version: 0.1.0
title: ${title}
description: Gives every instance a greeting, and counts how they end.
api: ">=1.0 <2"
hosts: [daemon]
backend:
  daemon:
    entrypoint: ${package}.module:${name}
config:
  type: object
  properties:
    greeting: {type: string, default: Hello, maxLength: 100}
  additionalProperties: false
"""

_MODULE: Final = '''\
"""${title}: runs on every node."""

from __future__ import annotations

from corral.sdk import DaemonModule, ExitInfo, InstanceHandle, InstanceSpec, ModuleContext


class ${name}(DaemonModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.ended = ctx.metrics.counter("instances_ended", "Instances that ended, by group")

    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        """Right before it is executed. `jvm_args`, `args` and `env` may be changed."""
        spec.env["GREETING"] = f"{self.ctx.config['greeting']}, {spec.instance_id}!"

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        """It has a process; `adopted`: it ran before this module did."""
        self.ctx.logger.info("%s runs as process %d", handle.instance_id, handle.pid)

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        """Told of every end, also of those that nobody was there to see."""
        self.ended.increase(group=handle.group, crashed="yes" if exit.crashed else "no")
'''

_TEST: Final = '''\
"""Tests of ${id}. Run them with: corral module test"""

from __future__ import annotations

from ${package}.module import ${name}

from corral.testing.module_bench import ModuleBench
from corral.testing.module_house import ModuleHouse


async def test_an_instance_is_greeted() -> None:
    """Only the class, behind the messages it will really see: quick."""
    async with ModuleBench(${name}, manifest="module.yaml", host="daemon") as bench:
        await bench.start()
        spec = await bench.node.starting("lobby-1", group="lobby")
        assert spec.env["GREETING"] == "Hello, lobby-1!"


async def test_it_runs_on_a_node(house: ModuleHouse) -> None:
    """The archive on a real node, around a real process."""
    await house.install()
    await house.wait_on_node("ACTIVE")
    instance = await house.start_instance("lobby", ["/bin/sh", "-c", "echo $$GREETING; exec sleep 60"])
    assert await house.wait_for_line(instance, "Hello") == f"Hello, {instance['id']}!"
'''

FILES: Final = {
    "module.yaml": _MANIFEST,
    "${package}/module.py": _MODULE,
    "tests/test_module.py": _TEST,
}
