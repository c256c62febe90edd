"""Orders to warm a cache."""

from __future__ import annotations

import asyncio

from corral.daemon.cache.prewarm import AT_ONCE, PrewarmOrders
from corral.domain.groups.plans import PlanArtifact
from corral.testing.waiting import eventually
from corral.wire.v1.plan_pb2 import CacheFailure, CacheStatus, PreWarmCache, PreWarmEntry


class SlowServers:
    """A cache whose downloads from `slow` never end."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    async def warm_template(self, name: str, hash: str) -> None:
        raise NotImplementedError

    async def warm_artifact(self, artifact: PlanArtifact) -> None:
        if "slow" in artifact.url:
            await asyncio.Event().wait()
        self.fetched.append(artifact.url)

    def status(self, request_id: str = "", failures: list[CacheFailure] | None = None) -> CacheStatus:
        return CacheStatus(request_id=request_id, failures=failures or [])


async def test_slow_servers_hold_up_an_order_for_a_limited_time():
    cache, answers = SlowServers(), []
    orders = PrewarmOrders(cache, longest=0.05)
    slow = [PreWarmEntry(download_url="http://joe:pw@slow.example/a?key=hush")] * AT_ONCE
    order = PreWarmCache(request_id="r1", entries=[*slow, PreWarmEntry(download_url="http://good.example/b")])
    orders.begin(lambda message: answers.append(message.cache_status) or True, order)
    await eventually(lambda: answers)
    assert cache.fetched == ["http://good.example/b"]
    assert [failure.error_code for failure in answers[0].failures] == ["CACHE_DOWNLOAD_FAILED"] * AT_ONCE
    assert "http://slow.example/a was not downloaded" in answers[0].failures[0].error_message
    await orders.close()


async def test_slow_servers_hold_up_no_other_order():
    cache, answers = SlowServers(), []
    orders = PrewarmOrders(cache, turn=0.05)
    slow = [PreWarmEntry(download_url="http://slow.example/a")] * (3 * AT_ONCE)
    for id, entries in (("slow", slow), ("good", [PreWarmEntry(download_url="http://good.example/b")])):
        orders.begin(
            lambda message: answers.append(message.cache_status.request_id) or True,
            PreWarmCache(request_id=id, entries=entries),
        )
    await eventually(lambda: answers)
    assert (answers, cache.fetched) == (["good"], ["http://good.example/b"])
    await orders.close()
