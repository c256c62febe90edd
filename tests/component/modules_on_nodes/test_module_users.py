"""`modules.run_as` with a user that cannot come as far as the modules."""

from __future__ import annotations

import os

import pytest
from node_archives import at_nodes, install, node_archive

from corral.testing.waiting import eventually

NOBODY = "65534"
SIDES = {"controller": "Here", "daemon": "Module"}
SOURCE = """
from corral.sdk import DaemonModule, PlatformModule

class Here(PlatformModule):
    pass

class Module(DaemonModule):
    pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose the user")
async def test_both_hosts_say_which_directory_is_closed_and_what_opens_it(cluster, scratch):
    controller = await cluster.controller(modules__run_as=NOBODY)
    await cluster.daemon("n1", controller, modules__run_as=NOBODY)
    backend = {side: {"entrypoint": f"small_module:{name}"} for side, name in SIDES.items()}
    archive = node_archive(scratch, source=SOURCE, hosts=["controller", "daemon"], backend=backend)
    here = await install(controller, archive)
    there = await eventually(lambda: failed_at_node(controller))
    for reason, told in (
        (here["reason"], here["failure"]["message"]),
        (there["reason"], there["error"]),
    ):
        assert reason == "cannot_load:run_as_refused"
        assert "modules cannot run as user 65534" in told
        assert f"because of {scratch}" in told
        assert "chmod o+x" in told
        assert "`modules.run_as`" in told


async def failed_at_node(controller):
    state = (await at_nodes(controller, "small")).get("n1", {})
    return state if state.get("phase") == "FAILED" else None
