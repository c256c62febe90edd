"""P6: from `POST /instances` to a running process with a small template, one after another and 100 at once.

The moment of arrival is when a client of the event stream reads INSTANCE_RUNNING. The floor is what
cannot be saved: the template is copied and the same program is spawned and waited for until it executes.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import tarfile
import time
import urllib.request
from typing import Any

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import Api, Fleet, event_of, fleet
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory

ROUNDS = sized(60, 2)
BURST = sized(100, 10)
COMMAND = ["/bin/sh", "-c", "while read line; do :; done"]
FILES = {f"plugins/p{n}/config.yml": b"key: value\n" * 40 for n in range(20)}
FILES["server.properties"] = b"motd=%INSTANCE_ID% of %GROUP%\n" + b"key=value\n" * 60
TEMPLATE = {"templates": ["small"], "substitute": ["server.properties"]}


def upload(cluster: Fleet) -> None:
    """The small template: a few plugins' settings and the usual properties file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, body in FILES.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(body), 0o644
            archive.addfile(entry, io.BytesIO(body))
    put = urllib.request.Request(
        f"http://{cluster.http}/api/v1/templates/small",
        data=packed.getvalue(),
        method="PUT",
        headers={"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/gzip"},
    )
    with urllib.request.urlopen(put, timeout=30):
        pass


async def one_by_one(cluster: Fleet) -> list[float]:
    samples = []
    async with cluster.events() as events:
        for _ in range(ROUNDS):
            position, began = len(events.seen), time.time()
            made = await cluster.api("POST", "/api/v1/instances", {"group": "single"})
            moment, _ = await events.first(event_of("INSTANCE_RUNNING", made["id"]), after=position)
            samples.append((moment - began) * 1000)
    return samples


async def burst(cluster: Fleet) -> float:
    """Instances a second, from the first request to the last RUNNING."""
    clients = [Api(cluster.http, cluster.token) for _ in range(10)]
    async with cluster.events() as events:
        position, began = len(events.seen), time.time()

        async def some(client: Api) -> None:
            for _ in range(BURST // len(clients)):
                await client("POST", "/api/v1/instances", {"group": "burst"})

        await asyncio.gather(*(some(client) for client in clients))
        last = began
        running: set[str] = set()
        while len(running) < BURST:
            last, event = await events.first(lambda e: e["type"] == "INSTANCE_RUNNING", after=position)
            position = next(i for i, seen in enumerate(events.seen) if seen[1] is event) + 1
            running.add(event["subject"])
    for client in clients:
        client.close()
    return BURST / (last - began)


def floor() -> list[float]:
    samples, children = [], []
    scratch = fresh_directory()
    template = scratch / "template"
    for path, body in FILES.items():
        (template / path).parent.mkdir(parents=True, exist_ok=True)
        (template / path).write_bytes(body)
    for number in range(ROUNDS):
        began = time.perf_counter()
        directory = scratch / str(number)
        shutil.copytree(template, directory)
        children.append(subprocess.Popen(COMMAND, cwd=directory, stdin=subprocess.PIPE))
        samples.append((time.perf_counter() - began) * 1000)
    for child in children:
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
    return samples


async def bench() -> list[dict[str, Any]]:
    raw = percentile(floor(), 0.5)
    async with fleet() as cluster:
        await asyncio.to_thread(upload, cluster)
        await cluster.group("single", COMMAND, **TEMPLATE)
        await cluster.group("burst", COMMAND, **TEMPLATE)
        single = await one_by_one(cluster)
        rate = await burst(cluster)
    p50, p95 = percentile(single, 0.5), percentile(single, 0.95)
    return [
        result("P6 POST to running, p50", p50, "ms", floor=raw, target="≤ 25 ms", ok=p50 <= 25),
        result("P6 POST to running, p95", p95, "ms", floor=raw, target="≤ 60 ms", ok=p95 <= 60),
        result("P6 burst of 100 on one node", rate, "1/s", target="≥ 80 /s", ok=rate >= 80),
    ]


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
