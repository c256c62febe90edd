"""A template that is larger than anything that may be held in memory, over a slow line."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import pathlib

import pytest
from cache_rig import MEGABYTE, CacheNode, publish

from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

SIZE = 64 * MEGABYTE


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


@pytest.mark.system
@pytest.mark.trap("T9")
async def test_a_huge_template_costs_no_memory_delays_no_ping_and_survives_a_cut(cluster, scratch):
    async with FaultProxy() as proxy, CacheNode(scratch / "n1", link_wait=30) as node:
        controller = await cluster.controller(
            link__heartbeat_seconds=0.05, link__missed_pongs=1000, via=proxy
        )
        block = os.urandom(MEGABYTE)
        content = b"".join(number.to_bytes(4) + block[4:] for number in range(SIZE // MEGABYTE))
        digest = hashlib.sha256(content).hexdigest()
        template = await publish(controller, "huge", {"world.bin": content})
        del content
        gc.collect()
        await node.join(controller)
        before, peak, start = resident(), 0, proxy.forwarded_bytes
        histogram = controller.app.role.term.sessions.round_trips
        proxy.throttle(10_000_000 / 8)

        async def fetch() -> pathlib.Path:
            async with node.cache.use() as use:
                manifest = await use.template(template)
                return use.content(manifest.files[0].digest)

        fetching = asyncio.create_task(fetch())
        await eventually(lambda: proxy.forwarded_bytes > start + MEGABYTE)
        counted = buckets(histogram)
        await eventually(lambda: sum(buckets(histogram).values()) - sum(counted.values()) >= 60, deadline=60)
        seen = {bound: count - counted.get(bound, 0) for bound, count in buckets(histogram).items()}
        proxy.heal()
        await eventually(lambda: proxy.forwarded_bytes > start + SIZE // 3, deadline=60)
        await proxy.cut(refuse=False)
        while not fetching.done():
            peak = max(peak, resident())
            await asyncio.wait([fetching], timeout=0.02)
        path = await fetching
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
        assert peak - before < 48 * MEGABYTE, f"{(peak - before) // MEGABYTE} MiB more"
        quick = sum(count for bound, count in seen.items() if bound <= 0.3)
        # On one connection the median is seconds; half of them within 0.3 s cannot be luck.
        assert quick > sum(seen.values()) / 2, seen
        assert proxy.forwarded_bytes - start < SIZE * 1.15
