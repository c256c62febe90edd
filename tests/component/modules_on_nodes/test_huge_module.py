"""A module that is larger than anything that may be held in memory, over a slow line that breaks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pathlib
import zipfile

import pytest
from node_archives import PLAIN, at_nodes, install, wait_at_nodes

from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

MEGABYTE = 1024 * 1024
SIZE = int(os.environ.get("CORRAL_TEST_HUGE_MODULE_MB", "64")) * MEGABYTE


def resident() -> int:
    """What this process holds in memory that is its own."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def buckets(histogram) -> dict[float, float]:
    counts, below = {}, 0.0
    for sample in histogram.collect()[0].samples:
        if sample.name.endswith("_bucket"):
            counts[float(sample.labels["le"])] = sample.value - below
            below = sample.value
    return counts


def huge_archive(path: pathlib.Path) -> pathlib.Path:
    manifest = {
        "manifestVersion": 1,
        "id": "huge",
        "version": "1.0.0",
        "api": ">=1.0",
        "hosts": ["daemon"],
        "backend": {"daemon": {"entrypoint": "huge_module:Module"}},
    }
    block = os.urandom(MEGABYTE)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("module.yaml", json.dumps(manifest))
        archive.writestr("huge_module.py", PLAIN)
        with archive.open(zipfile.ZipInfo("data.bin"), "w", force_zip64=True) as entry:
            for number in range(SIZE // MEGABYTE):
                entry.write(number.to_bytes(4) + block[4:])
    return path


@pytest.mark.system
@pytest.mark.trap("T9")
@pytest.mark.trap("T54")
async def test_a_huge_module_costs_no_memory_delays_no_ping_and_survives_a_cut(cluster, scratch):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(link__heartbeat_seconds=0.2, link__missed_pongs=1000, via=proxy)
        await install(controller, huge_archive(scratch / "huge.cmod"))
        gc.collect()
        proxy.throttle(10_000_000 / 8)
        start = proxy.forwarded_bytes
        await cluster.daemon("n1", controller)
        before, peak = resident(), 0
        histogram = controller.app.role.term.sessions.round_trips
        await eventually(lambda: proxy.forwarded_bytes > start + MEGABYTE, deadline=60)
        counted = buckets(histogram)
        await eventually(lambda: sum(buckets(histogram).values()) - sum(counted.values()) >= 30, deadline=60)
        seen = {bound: count - counted.get(bound, 0) for bound, count in buckets(histogram).items()}
        quick = sum(count for bound, count in seen.items() if bound <= 0.1)
        # Behind the bytes of one credit it takes 0.2 s: half of them within 0.1 s cannot be luck.
        assert quick > sum(seen.values()) / 2, seen
        assert "fetching" in (await at_nodes(controller, "huge"))["n1"]["progress"]
        proxy.heal()
        await eventually(lambda: proxy.forwarded_bytes > start + SIZE // 3, deadline=60)
        await proxy.cut(refuse=False)
        waiting = asyncio.create_task(wait_at_nodes(controller, "huge", deadline=120, n1=("ACTIVE", "1.0.0")))
        while not waiting.done():
            peak = max(peak, resident())
            await asyncio.wait([waiting], timeout=0.02)
        await waiting
        assert peak - before < 48 * MEGABYTE, f"{(peak - before) // MEGABYTE} MiB more"
        assert proxy.forwarded_bytes - start < SIZE * 1.15
