"""A template's way through a whole cluster: uploaded, planned, laid, started, saved back."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import urllib.request

import pytest

from corral.cli.failure import CommandFailure
from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instances, wait_for_line

pytestmark = pytest.mark.timeout(120)


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, body in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(body), 0o644
            archive.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


async def upload(api, name: str, files: dict[str, bytes]) -> dict:
    def put() -> dict:
        request = urllib.request.Request(
            f"{api.url}/api/v1/templates/{name}",
            data=packed(files),
            method="PUT",
            headers={"Authorization": f"Bearer {api.admin_token}", "Content-Type": "application/gzip"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    return await asyncio.to_thread(put)


async def test_a_template_is_laid_started_and_saved_back(cluster):
    api = await cluster.controller()
    daemon = await cluster.daemon("n1", api, disk__reserve_mb=0)
    await upload(api, "base", {"conf.txt": b"I am %INSTANCE_ID%\n", "big": bytes(200_000)})
    await create_group(
        api,
        "lobby",
        workloads.shell("cat conf.txt; mkdir world; echo w > world/level; echo ready; exec sleep 3600"),
        templates=["base"],
        substitute=["*.txt"],
        min=1,
        probes=[{"kind": "log", "pattern": "^ready$"}],
    )
    (item,) = await wait_for_instances(api, "lobby", 1)
    assert await wait_for_line(api, item["id"], "I am") == f"I am {item['id']}"
    saved = await api.call(
        "POST", f"/api/v1/instances/{item['id']}/save", {"template": "world", "paths": ["world/"]}
    )
    assert saved["files"] == 1
    with pytest.raises(CommandFailure):
        await api.call(
            "POST", f"/api/v1/instances/{item['id']}/save", {"template": "none", "paths": ["nothing/"]}
        )
    plan = await api.call("GET", f"/api/v1/instances/{item['id']}/plan")
    run = daemon.app.supervision.supervisor.instances.find(item["id"])
    assert run.order.plan_hash == plan["hash"]
    assert run.files.was_ready()
