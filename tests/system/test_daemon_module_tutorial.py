"""The tutorial for authors of modules on nodes, command by command as it is printed."""

from __future__ import annotations

import asyncio

import pytest
from guide_reader import Reader

from corral.testing.ports import free_addresses

pytestmark = pytest.mark.system


async def test_every_command_of_the_tutorial_for_nodes_does_what_it_says(processes, scratch):
    http, grpc = free_addresses(2)
    up = processes.start("up", "--data", str(scratch / "data"), "--http", http, "--grpc", grpc, "--no-demo")
    await up.ready()
    reader = Reader(scratch, http)
    await asyncio.to_thread(reader.read, "write-a-daemon-module.md")
    assert "greeter" not in reader.type("corral module list")
    assert "greeter" not in reader.type('corral node modules "$(corral node list -o name)"')
    assert not any((scratch / "data").glob("*/cache/modules/artifacts/*.zip"))


def test_the_scaffold_of_a_module_for_nodes_passes_its_quick_test(scratch):
    new = "corral module new greeter --host daemon"
    said = Reader(scratch, "").type(f"{new}\ncorral module test greeter -q -n 0 -k greeted")
    assert "1 passed" in said
