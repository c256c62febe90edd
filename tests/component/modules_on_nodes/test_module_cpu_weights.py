"""The share of the CPU that a manifest asks for, on both hosts."""

from __future__ import annotations

import os
import pathlib

import pytest
from node_archives import install, node_archive, wait_at_nodes

from corral.sdk.runner.proc_table import children

SOURCE = """
import subprocess

from corral.sdk import DaemonModule, PlatformModule

class Here(PlatformModule):
    def on_load(self, ctx):
        subprocess.Popen(["sleep", "3600"])

class Module(DaemonModule):
    def on_load(self, ctx):
        subprocess.Popen(["sleep", "3600"])
"""
OWN_SESSION = pathlib.Path("/proc/self/autogroup")
SESSIONS = OWN_SESSION.exists() and OWN_SESSION.read_text() != ""
"""Does this kernel share the CPU between sessions, and are we in one?"""
SIDES = {"controller": "Here", "daemon": "Module"}


def nice(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[16])


def session_nice(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


@pytest.mark.parametrize(("limits", "steps"), [({}, 5), ({"cpuWeight": 10}, 15), ({"cpuWeight": 10_000}, 0)])
async def test_a_module_and_what_it_starts_stand_back_by_their_weight_on_both_hosts(
    cluster, scratch, limits, steps
):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    backend = {
        side: {"entrypoint": f"both_module:{name}", "hookDeadlineMs": 30_000} for side, name in SIDES.items()
    }
    archive = node_archive(
        scratch, "both", source=SOURCE, hosts=["controller", "daemon"], backend=backend, limits=limits
    )
    shown = await install(controller, archive)
    await wait_at_nodes(controller, "both", n1=("ACTIVE", "1.0.0"))
    live = daemon.app.modules.engine.live("both")
    assert live is not None
    for pid in (shown["live"]["pid"], live.pid):
        (child,) = children(pid)
        assert nice(pid) == nice(child) == min(19, os.nice(0) + steps)
        if SESSIONS:
            assert session_nice(pid) == session_nice(child) == min(19, session_nice(os.getpid()) + steps)
