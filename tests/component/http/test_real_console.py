"""A console from a real process through daemon and link to the API, and what is left of it after the end."""

from __future__ import annotations

import sys
from typing import Any

import httpx
from http_rig import DEADLINE
from sse_client import following

from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

SERVER = """
import sys
for number in range(20000):
    print("line", number)
for line in sys.stdin:
    print("got", line.strip())
    if line.strip() == "stop":
        break
"""
LINES = [f"line {number}" for number in range(20_000)]


async def test_a_real_console_is_read_followed_searched_and_kept(cluster: LocalCluster) -> None:
    controller = await cluster.controller()
    await cluster.daemon("node-1", controller, instances__development=True)
    document = {"name": "lobby", "command": [sys.executable, "-c", SERVER]}
    await controller.call("POST", "/api/v1/groups", document)
    made = await controller.call("POST", "/api/v1/instances?wait=running&timeout=30", {"group": "lobby"})
    assert (made["state"], made["node"]) == ("RUNNING", "node-1")
    path = f"/api/v1/instances/{made['id']}/console"
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=DEADLINE) as client:
        async with following(client, f"{path}/stream", params={"after": 0}) as reader:
            seen: list[str] = []
            while len(seen) < len(LINES):
                frame = await reader.event()
                assert frame.data is not None
                seen += [item["line"] for item in frame.data["items"]]
            assert seen == LINES
            await client.post(f"/api/v1/instances/{made['id']}/command", json={"command": "hello"})
            while "got hello" not in seen:
                frame = await reader.event()
                assert frame.data is not None
                seen += [item["line"] for item in frame.data.get("items", [])]
        found = await client.get(f"{path}/search", params={"pattern": "^line 1999[0-9]$|^got"})
        assert [item["line"] for item in found.json()["items"]] == [*LINES[19_990:], "got hello"]
        stopped = await client.post(f"/api/v1/instances/{made['id']}/stop", params={"wait": "stopped"})
        assert (stopped.status_code, stopped.json()["state"]) == (200, "STOPPED"), stopped.text
        assert (stopped.json()["exit"]["code"], stopped.json()["exit"]["crashed"]) == (0, False)
        whole = "\n".join([*LINES, "got hello", "got stop", ""]).encode()

        async def kept() -> Any:
            return (await client.get(f"{path}/download")).content == whole

        await eventually(kept)
        newest = (await client.get(path, params={"newest": "true", "limit": 2})).json()
        assert [item["line"] for item in newest["items"]] == ["got hello", "got stop"]
