"""Clusters of tests run instances, and take them along when they end."""

from __future__ import annotations

import os
import pathlib
import select
import sys

import pytest

from corral.testing import workloads
from corral.testing.api_calls import (
    create_group,
    instances_of,
    read_console,
    send_command,
    wait_for_instance,
    wait_for_instances,
    wait_for_line,
)
from corral.testing.cluster import LocalCluster
from corral.testing.ports import free_range
from corral.testing.processes import ProcessCluster
from corral.testing.workloads import read_numbered


async def test_a_cluster_in_this_process_runs_instances_and_takes_them_along(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(tmp_path) as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)
        await create_group(api, "lobby", workloads.reading_commands(), min=2)
        await create_group(api, "talker", workloads.chatty(lines=500))
        first, second = await wait_for_instances(api, "lobby", 2)
        pidfds = [os.pidfd_open(item["pid"]) for item in (first, second)]

        await send_command(api, first["id"], "hello")
        assert await wait_for_line(api, first["id"], "hello") == "got hello"

        (talker,) = await wait_for_instances(api, "talker", 1)
        await wait_for_line(api, talker["id"], "line 500 ")
        read_numbered(await read_console(api, talker["id"])).check(last=500)

        await api.call("POST", f"/api/v1/instances/{second['id']}/stop", {})
        ended = await wait_for_instance(api, second["id"], lambda item: item["state"] == "STOPPED")
        assert ended["exit"]["code"] == 0
        assert len(await instances_of(api, "lobby")) >= 2
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], 0)[0], "it outlived the cluster"
        os.close(pidfd)


@pytest.mark.system
async def test_processes_of_a_cluster_take_their_instances_along(tmp_path: pathlib.Path) -> None:
    first, last = free_range(12)
    http, grpc, bootstrap = (f"127.0.0.1:{first + place}" for place in range(3))
    async with ProcessCluster(tmp_path) as processes:
        up = processes.start(
            *("up", "--data", str(tmp_path / "d"), "--http", http, "--grpc", grpc, "--bootstrap", bootstrap),
            *("--demo", "--demo-ports", str(first + 3), str(last)),
        )
        await up.ready()
        await up.kill()


_TAKES_TWO_PORTS = """
import os, socket, sys
number = int(os.environ["CORRAL_PORT"])
sockets = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
for place, each in enumerate(sockets):
    each.bind(("127.0.0.1", number + place))
print("has both", flush=True)
sys.stdin.read()
"""


@pytest.mark.trap("T89")
async def test_servers_that_take_the_port_beside_theirs_do_not_take_each_others(
    tmp_path: pathlib.Path,
) -> None:
    first, last = free_range(6)
    ports = {
        "primary": {"range": [first, last - 1], "protocol": "udp"},
        "info": {"of": "primary", "offset": 1, "protocol": "udp"},
    }
    async with LocalCluster(tmp_path) as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)
        await create_group(api, "cube", [sys.executable, "-c", _TAKES_TWO_PORTS], min=2, ports=ports)
        both = await wait_for_instances(api, "cube", 2)
        for item in both:
            await wait_for_line(api, item["id"], "has both")
        assert sorted(item["ports"]["primary"] for item in both) == [first, first + 2]
        assert all(item["ports"]["info"] == item["ports"]["primary"] + 1 for item in both)
