"""What a VIEWER reads of real servers on a real node: marks lie wherever people write, and no answer shows one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest
from sse_client import following

from corral.controller.http.pipeline.route_table import Route, Stream
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import GRANTS, Role
from corral.domain.sensitive_fields import HIDDEN
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

MARK = "hunter2"
URL = f"http://bob:{MARK}@127.0.0.1:9/server.jar?sig={MARK}"
READS = 'while read line; do case "$line" in bye*) exit 0;; esac; done'
SPARSE = {
    "memory_mb": 16,
    "env": {"DB_PASSWORD": MARK},
    "variables": {"RCON": MARK},
    "crash_loop": {"failures": 1},
    "startup_timeout_seconds": 2,
    "stop": [{"signal": "SIGKILL", "wait_seconds": 1}],
    "min": 1,
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "talks": {
        "command": ["sh", "-c", READS, MARK],
        "stop": [{"command": f"bye {MARK}", "wait_seconds": 20}],
        "maintenance": {"bypass": [MARK]},
    },
    "waits": {
        "command": ["sleep", "1000"],
        "probes": [{"kind": "command", "command": ["false", MARK], "interval_ms": 100}],
    },
    "asks": {
        "command": ["sleep", "1000"],
        "ports": {"primary": {"range": [30000, 39000]}},
        "probes": [{"kind": "http", "port": "primary", "path": f"/?key={MARK}", "interval_ms": 100}],
    },
    "lacks": {"command": ["/nowhere/server", f"--password={MARK}"], "args": [MARK]},
    "fetches": {
        "command": ["true"],
        "artifact": {"url": URL, "sha256": "0" * 64, "file": "server.jar"},
        "patches": [{"file": "a.properties", "path": "rcon.password", "value": MARK}],
    },
}
"""Servers that are told to stop, never become ready, do not exist, cannot be downloaded."""
FAILING = ("waits", "asks", "lacks", "fetches")


async def run_servers(controller: LocalController) -> None:
    """Each group has done what it does, and every way to fail was told."""
    for name, document in DOCUMENTS.items():
        await controller.call("POST", "/api/v1/groups", {"name": name, **SPARSE, **document})

    async def states() -> dict[str, set[str]]:
        items = (await controller.call("GET", "/api/v1/instances?limit=500"))["items"]
        return {name: {each["state"] for each in items if each["group"] == name} for name in DOCUMENTS}

    async def settled() -> bool:
        found = await states()
        assert found["talks"] == {"RUNNING"}, found
        assert all("CRASHED" in found[name] for name in FAILING), found
        return True

    await eventually(settled, deadline=60)
    await controller.call("POST", "/api/v1/instances/talks-1/command", {"command": f"login {MARK}"})
    await controller.call("PATCH", "/api/v1/groups/talks", {"env": {"OTHER": MARK}})
    await controller.call("POST", "/api/v1/groups/talks/hold", {"reason": "enough"})

    async def stopped() -> bool:
        found = await states()
        assert found["talks"] == {"STOPPED"}, found
        return True

    await eventually(stopped, deadline=60)


async def known_ids(controller: LocalController) -> dict[str, list[str]]:
    """By the first word of a path, what there is."""
    found = {}
    for kind in ("nodes", "groups", "instances", "crashes", "deployments"):
        items = (await controller.call("GET", f"/api/v1/{kind}?limit=500"))["items"]
        found[kind] = [each.get("id") or each["name"] for each in items]
    return found


def addressed(route: Route, ids: dict[str, list[str]]) -> list[str]:
    kind = route.path.removeprefix("/api/v1/").partition("/")[0]
    choices = [["1"] if name == "number" else ids.get(kind, []) for name in route.parameters]
    paths = []
    for chosen in itertools.product(*choices):
        path = route.path
        for name, value in zip(route.parameters, chosen, strict=True):
            path = path.replace(f"{{{name}}}", value)
        paths.append(path)
    if route.path == "/api/v1/decisions":
        subjects = [f"{kind}/{id}" for kind in ("instance", "group", "node") for id in ids[f"{kind}s"]]
        return [f"{route.path}?limit=500&subject={subject}" for subject in subjects]
    if route.path == "/api/v1/logs":
        return [f"{route.path}?limit=500&source={source}" for source in ("controller", "node:n1")]
    return [f"{path}?limit=500" if hasattr(route.query, "limit") else path for path in paths]


async def everything(controller: LocalController, role: Role) -> dict[str, str]:
    """Everything that a role reads: all answers, and the event log from its beginning as a stream."""
    ids = await known_ids(controller)
    made = await controller.call("POST", "/api/v1/tokens", {"name": role.value, "role": role.value})
    found: dict[str, str] = {}
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=30) as client:
        for route in ROUTES:
            if route.method != "GET" or isinstance(route, Stream) or route.permission not in GRANTS[role]:
                continue
            for path in addressed(route, ids):
                answer = await client.get(path)
                assert answer.status_code < 500, (path, answer.text)
                found[path] = answer.text
        newest = (await client.get("/api/v1/events?newest=true&limit=1")).json()["items"][0]["id"]
        frames = []
        async with following(client, params={"after": "0-0"}) as stream:
            while not frames or frames[-1]["id"] != newest:
                frames.append((await stream.event()).data)
        found["stream"] = json.dumps(frames, ensure_ascii=False)
    return found


@pytest.mark.system
@pytest.mark.trap("T91")
async def test_no_mark_of_real_servers_reaches_a_viewer_and_an_operator_sees_them(
    cluster: LocalCluster,
) -> None:
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    await run_servers(controller)
    seen = await everything(controller, Role.VIEWER)
    assert {path: text for path, text in seen.items() if MARK in text} == {}
    told = {(each["type"], each["subject"]): each["data"] for each in json.loads(seen["stream"])}
    assert told["INSTANCE_COMMAND", "talks-1"]["line"] == HIDDEN
    assert told["INSTANCE_STOPPED", "talks-1"]["exit"]["rung"] == HIDDEN
    assert told["INSTANCE_STOPPED", "talks-1"]["exit"]["summary"].startswith("stopped (command):")
    assert any("/plan" in path and HIDDEN in text for path, text in seen.items())
    sensitive = await everything(controller, Role.OPERATOR)
    for path in (
        "stream",
        "/api/v1/groups/talks",
        "/api/v1/groups/talks/revisions/1",
        "/api/v1/instances/talks-1/plan",
    ):
        assert MARK in sensitive[path], path
