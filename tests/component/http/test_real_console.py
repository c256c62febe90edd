"""A console from a real process through daemon and link to the API, and what is left of it after the end."""

from __future__ import annotations

import sys
from typing import Any

import httpx
import pytest
from http_rig import DEADLINE
from sse_client import following

from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.fault_proxy import FaultProxy
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
            sent = await client.post(f"/api/v1/instances/{made['id']}/command", json={"command": "hello"})
            assert sent.json()["offset"] == sum(len(line) + 1 for line in LINES), "as its node knows it"
            while "got hello" not in seen:
                frame = await reader.event()
                assert frame.data is not None
                seen += [item["line"] for item in frame.data.get("items", [])]
        listed = await client.get(f"/api/v1/instances/{made['id']}/commands")
        assert [item["line"] for item in listed.json()["items"]] == ["hello"]
        last = await client.get(f"{path}/search", params={"pattern": "1$|^got", "newest": "true", "limit": 2})
        assert [(item["line"], item["match"]) for item in last.json()["items"]] == [
            ("got hello", [[0, 3]]),
            ("line 19991", [[9, 10]]),
        ]
        page = (await client.get(path, params={"newest": "true", "limit": 5000})).json()
        seen = [item["line"] for item in page["items"]]
        while page["previous_offset"]:
            page = (await client.get(path, params={"before": page["previous_offset"], "limit": 5000})).json()
            seen[:0] = [item["line"] for item in page["items"]]
        assert seen == [*LINES, "got hello"], "backwards to the first byte"
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


RUNS = 7
CRASHING = """
import time
begin = time.time_ns()
for number in range(4000):
    print(begin, number, "x" * 80)
raise SystemExit(3)
"""
POLICY = {"attempts": RUNS - 1, "interval_seconds": 300, "delay_ms": 10, "max_delay_ms": 20}


def client_of(controller: LocalController) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    return httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=DEADLINE)


@pytest.mark.system
@pytest.mark.trap("T67")
@pytest.mark.trap("T74")
async def test_a_crash_loop_over_a_slow_link_is_told_run_by_run_also_after_a_restart_of_the_controller(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        await cluster.daemon("node-1", controller)
        document = {"name": "noisy", "command": [sys.executable, "-c", CRASHING], "restart": POLICY}
        await controller.call("POST", "/api/v1/groups", document)
        proxy.throttle(600_000, requests=True)
        made = await controller.call("POST", "/api/v1/instances", {"group": "noisy"})
        first, path = made["incarnation"], f"/api/v1/instances/{made['id']}"

        async def over() -> bool:
            now = await controller.call("GET", path)
            return now["incarnation"] == first + RUNS - 1 and now["state"] == "CRASHED"

        await eventually(over, deadline=40)
        proxy.heal()
        events = await controller.call("GET", "/api/v1/events?types=NODE_ONLINE&limit=500")
        assert len(events["items"]) == 1, "the node stayed connected"
        async with client_of(controller) as client:
            runs = (await client.get(f"{path}/runs")).json()
            assert [run["incarnation"] for run in runs["items"]] == [*range(first + RUNS - 1, first - 1, -1)]
            assert {(run["state"], run["exit"]["code"]) for run in runs["items"]} == {("CRASHED", 3)}
            assert all(run["crash"] == f"{made['id']}.{run['incarnation']}" for run in runs["items"])
            whole = {
                run: (await client.get(f"{path}/console/download", params={"incarnation": run})).text
                for run in range(first, first + RUNS)
            }
        assert all(len(text.splitlines()) == 4000 for text in whole.values())
        assert len(set(whole.values())) == RUNS
        assert "session_frame.failed" not in capsys.readouterr().out, "every block was taken"
        await controller.app.stop()
        again = await cluster.controller(via=proxy)
        seen: dict[int, str] = dict.fromkeys(whole, "")
        at, offset = first, 0
        async with client_of(again) as client:
            headers = {"Last-Event-ID": f"{first}-0"}
            async with following(client, f"{path}/console/stream", headers=headers) as reader:
                while (frame := await reader.event()).event != "end":
                    assert frame.data is not None
                    assert frame.event in ("page", "run"), frame
                    if frame.event == "run":
                        assert frame.data["incarnation"] == at + 1
                        at, offset = at + 1, 0
                    for item in frame.data.get("items", []):
                        assert item["offset"] == offset
                        offset += len(item["line"]) + 1
                        seen[at] += item["line"] + "\n"
        assert seen == whole
