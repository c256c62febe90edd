"""Bulk data on its own channel: verified, resumable, bounded, and never in the way of control."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from corral.domain.ids import NodeId
from corral.errors import Code, CorralError
from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

MEGABYTE = 1024 * 1024


async def refusal_of(coroutine) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await coroutine
    return caught.value


async def test_a_blob_is_fetched_and_verified(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    for size in (0, 1, 65536, 65537, 3 * MEGABYTE + 17):
        content = os.urandom(size)
        digest = await controller.put_blob(content, node="n1")
        async with daemon.app.link.data_channel() as channel:
            assert await channel.fetch(digest, scratch / "got") == size
        assert (scratch / "got").read_bytes() == content
        assert [path.name for path in scratch.glob("got*")] == ["got"]


async def test_a_cut_transfer_goes_on_where_it_stopped(cluster, scratch):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        content = os.urandom(4 * MEGABYTE)
        digest = await controller.put_blob(content, node="n1")
        daemon = await cluster.daemon("n1", controller)
        first = daemon.app.link.session_id
        proxy.throttle(8 * MEGABYTE)
        async with daemon.app.link.data_channel() as channel:
            fetching = asyncio.create_task(channel.fetch(digest, scratch / "got"))
            part = scratch / f"got.{digest[:16]}.part"
            await eventually(lambda: part.exists() and part.stat().st_size > MEGABYTE)
            await proxy.cut(refuse=False)
            assert (await refusal_of(fetching)).code in (Code.UNREACHABLE, Code.TRANSFER_INTERRUPTED)
        kept = part.stat().st_size
        assert MEGABYTE < kept < len(content)
        proxy.heal()
        await eventually(lambda: daemon.app.link.session_id not in ("", first))
        forwarded = proxy.forwarded_bytes
        async with daemon.app.link.data_channel() as channel:
            assert await channel.fetch(digest, scratch / "got") == len(content)
        assert proxy.forwarded_bytes - forwarded < len(content) - kept + 512 * 1024
        assert (scratch / "got").read_bytes() == content
        await daemon.app.stop()


async def test_an_expected_upload_becomes_a_blob(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    content = os.urandom(2 * MEGABYTE + 5)
    (scratch / "up").write_bytes(content)
    uploads = controller.app.role.term.link.uploads
    stored = uploads.expect("t1", node_id=NodeId("n1"), max_bytes=len(content))
    async with daemon.app.link.data_channel() as channel:
        digest = await channel.push("t1", scratch / "up")
    assert digest == hashlib.sha256(content).hexdigest() == (await stored).digest


async def test_a_cut_upload_goes_on_where_it_stopped(cluster, scratch):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        content = os.urandom(4 * MEGABYTE)
        (scratch / "up").write_bytes(content)
        uploads = controller.app.role.term.link.uploads
        stored = uploads.expect("t1", node_id=NodeId("n1"), max_bytes=len(content))
        first = daemon.app.link.session_id
        incoming = controller.data / "incoming"
        proxy.delay(0.002)
        async with daemon.app.link.data_channel() as channel:
            pushing = asyncio.create_task(channel.push("t1", scratch / "up"))

            def arrived() -> int:
                return sum(path.stat().st_size for path in incoming.iterdir())

            await eventually(lambda: arrived() > MEGABYTE)
            await proxy.cut(refuse=False)
            assert (await refusal_of(pushing)).code in (Code.UNREACHABLE, Code.TRANSFER_INTERRUPTED)
        proxy.heal()
        await eventually(lambda: daemon.app.link.session_id not in ("", first))
        kept, forwarded = arrived(), proxy.forwarded_bytes
        assert MEGABYTE < kept < len(content)
        async with daemon.app.link.data_channel() as channel:
            assert await channel.push("t1", scratch / "up") == hashlib.sha256(content).hexdigest()
        assert proxy.forwarded_bytes - forwarded < len(content) - kept + 512 * 1024
        assert (await stored).size == len(content)
        assert list(incoming.iterdir()) == []
        await daemon.app.stop()


async def test_an_upload_that_nobody_expects_or_that_is_too_large_is_refused(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    (scratch / "up").write_bytes(b"x" * 1000)
    transfers = controller.app.role.term.link.uploads
    stored = [
        transfers.expect("small", node_id=NodeId("n1"), max_bytes=10),
        transfers.expect("other", node_id=NodeId("n2"), max_bytes=10_000),
    ]
    async with daemon.app.link.data_channel() as channel:
        assert (await refusal_of(channel.push("none", scratch / "up"))).code is Code.NOT_FOUND
        assert (await refusal_of(channel.push("other", scratch / "up"))).code is Code.NOT_FOUND
        assert (await refusal_of(channel.push("small", scratch / "up"))).code is Code.BODY_TOO_LARGE
    assert not any(future.done() for future in stored)
    for future in stored:
        future.cancel()


async def test_a_data_channel_of_an_ended_session_is_refused(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    digest = await controller.put_blob(b"x", node="n1")
    async with daemon.app.link.data_channel() as channel:
        await daemon.app.stop()
        await eventually(lambda: controller.app.role.term.sessions.find(NodeId("n1")) is None)
        error = await refusal_of(channel.fetch(digest, scratch / "got"))
    assert error.code is Code.CONFLICT


@pytest.mark.system
@pytest.mark.trap("T54")
async def test_pings_pass_a_bulk_transfer_on_a_slow_line(cluster, scratch):
    """10 Mbit/s shared by everything: control must not stand in the queue of bulk."""
    async with FaultProxy() as proxy:
        controller = await cluster.controller(
            link__heartbeat_seconds=0.05, link__missed_pongs=1000, via=proxy
        )
        digest = await controller.put_blob(os.urandom(64 * MEGABYTE), node="n1")
        daemon = await cluster.daemon("n1", controller)
        proxy.throttle(10_000_000 / 8)
        histogram = controller.app.role.term.sessions.round_trips
        async with daemon.app.link.data_channel() as channel:
            fetching = asyncio.create_task(channel.fetch(digest, scratch / "got"))
            part = scratch / f"got.{digest[:16]}.part"
            await eventually(lambda: part.exists() and part.stat().st_size > MEGABYTE // 2)
            before = buckets(histogram)
            await eventually(
                lambda: sum(buckets(histogram).values()) - sum(before.values()) >= 60, deadline=60
            )
            after = buckets(histogram)
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
        seen = {bound: after[bound] - before.get(bound, 0) for bound in after}
        quick = sum(count for bound, count in seen.items() if bound <= 0.3)
        # On one connection the median is seconds; half of them within 0.3 s cannot be luck.
        assert quick > sum(seen.values()) / 2, seen
        await daemon.app.stop()


def buckets(histogram) -> dict[float, float]:
    """Round trips by bucket, not cumulated."""
    counts, below = {}, 0.0
    for sample in histogram.collect()[0].samples:
        if sample.name.endswith("_bucket"):
            counts[float(sample.labels["le"])] = sample.value - below
            below = sample.value
    return counts
