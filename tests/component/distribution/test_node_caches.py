"""Caches of nodes: asked about, filled ahead of time, and never waited for without an end."""

from __future__ import annotations

import asyncio

import pytest

from corral.controller.distribution.node_caches import MAX_WAITING, CacheQueries
from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.plan_pb2 import (
    BootstrapCacheEntry,
    CacheFailure,
    CacheStatus,
    ConfigFormat,
    JarCacheEntry,
    RequestCacheStatus,
    TemplateCacheEntry,
)

JAR = {"url": "https://example.org/paper.jar", "sha256": "a" * 64}


def entries(message):
    return [(e.jar_file, e.download_url, e.sha256) for e in message.entries]


def refs(message):
    return [(ref.name, ref.hash) for ref in message.templates]


async def answer(talker, kind, **fields):
    """Wait for the order that somebody asked for, answer it; the order. The controller warms nodes that join by
    itself, a moment later: then it may know of a group that was made after that."""
    while (order := getattr(await talker.read_until(kind), kind)).request_id.startswith("warm-"):
        pass
    status = CacheStatus(request_id=order.request_id, **fields)
    await talker.send(DaemonMessage(cache_status=status))
    return order


async def test_a_nodes_cache_is_shown_with_the_versions_that_are_known(depot):
    await depot.begin()
    version = await depot.upload("base", {"a": b"1"})
    talker = await depot.talker()
    asking = asyncio.create_task(depot.term.distribution.cache_status("n1"))
    await answer(
        talker,
        "request_cache_status",
        total_size_bytes=10,
        quota_bytes=100,
        templates=[
            TemplateCacheEntry(name="base", hash=version.hash, size_bytes=1, last_used_ms=1_700_000_000_000),
            TemplateCacheEntry(name="base", hash="f" * 64, last_used_ms=2**62),
        ],
        jars=[JarCacheEntry(platform="paper", version="1", jar_file="p.jar", size_bytes=9, sha256="a" * 64)],
        bootstraps=[BootstrapCacheEntry(config_format=ConfigFormat.CONFIG_FORMAT_PAPER, version="1")],
        failures=[CacheFailure(subject="template/x", error_code="TEMPLATE_NOT_FOUND", error_message="no")],
    )
    report = await asking
    assert (report.total_bytes, report.quota_bytes) == (10, 100)
    assert [(t.version, t.last_used is None) for t in report.templates] == [(1, False), (None, True)]
    assert report.artifacts[0].file == "p.jar"
    assert report.bootstraps[0].config_format == "paper"
    assert report.failures[0].code == "TEMPLATE_NOT_FOUND"


async def test_only_the_node_that_was_asked_can_answer_and_its_end_is_an_answer_too(depot):
    await depot.begin()
    talker, liar = await depot.talker("n1"), await depot.talker("n2")
    asking = asyncio.create_task(depot.term.distribution.cache_status("n1"))
    order = (await talker.read_until("request_cache_status")).request_cache_status
    await liar.send(DaemonMessage(cache_status=CacheStatus(request_id=order.request_id)))
    await liar.send(DaemonMessage(cache_status=CacheStatus()))
    await talker.hang_up()
    with pytest.raises(Retryable) as caught:
        await asking
    assert caught.value.code is Code.NODE_OFFLINE
    with pytest.raises(Retryable) as caught:
        await depot.term.distribution.cache_status("n1")
    assert caught.value.code is Code.NODE_OFFLINE
    with pytest.raises(Rejected) as caught:
        await depot.term.distribution.cache_status("n9")
    assert caught.value.code is Code.NOT_FOUND


async def test_a_node_that_does_not_answer_is_not_asked_without_bound(depot):
    await depot.begin()
    await depot.talker()

    def question(asked):
        return ControllerMessage(request_cache_status=RequestCacheStatus(request_id=asked))

    questions = CacheQueries(links=depot.term.sessions, entropy=SystemEntropy())
    asked = [questions.ask("n1", question, timeout=0.5) for _ in range(MAX_WAITING + 1)]
    codes = [error.code for error in await asyncio.gather(*asked, return_exceptions=True)]
    assert sorted(code.name for code in codes) == ["RATE_LIMITED"] + ["TIMEOUT"] * MAX_WAITING
    with pytest.raises(Retryable) as caught:  # they are over, and there is room for others
        await questions.ask("n1", question, timeout=0.01)
    assert caught.value.code is Code.TIMEOUT


async def test_a_published_daemon_answers_without_an_id(depot):
    await depot.begin()
    talker = await depot.talker(features=[])
    asking = asyncio.create_task(depot.term.distribution.cache_status("n1"))
    await talker.read_until("request_cache_status")
    await talker.send(DaemonMessage(cache_status=CacheStatus(total_size_bytes=7)))
    assert (await asking).total_bytes == 7


async def test_a_joining_node_is_told_what_the_groups_that_may_run_there_need(depot):
    await depot.begin()
    version = await depot.upload("base", {"a": b"1"})
    other = await depot.upload("other", {"b": b"2"})
    await depot.group("lobby", templates=["base"], artifact=JAR)
    await depot.group("west", templates=["other"], node_labels={"zone": "west"})
    await depot.group("panes", templates=["other"], runtime="tmux")
    talker = await depot.talker("n1")
    order = (await talker.read_until("pre_warm_cache")).pre_warm_cache
    assert refs(order) == [("base", version.hash)]
    assert entries(order) == [("paper.jar", JAR["url"], JAR["sha256"])]
    failure = CacheFailure(subject="template/base", error_code="CACHE_FULL", error_message="no room")
    said = CacheStatus(request_id=order.request_id, failures=[failure])
    await talker.send(DaemonMessage(cache_status=said))
    west = await depot.talker("n2", labels={"zone": "west"})
    order = (await west.read_until("pre_warm_cache")).pre_warm_cache
    assert refs(order) == [("base", version.hash), ("other", other.hash)]
    await eventually(lambda: "n1" not in depot.term.distribution._warming)


async def test_whatever_is_drawn_for_a_start_is_there_before(depot):
    await depot.begin()
    maps = [await depot.upload(f"maps/{name}", {"map": name.encode()}) for name in ("blue", "green", "red")]
    await depot.group("arena", template_selection={"one_in_groups": [{"name": "maps"}]})
    talker = await depot.talker("n1")
    order = (await talker.read_until("pre_warm_cache")).pre_warm_cache
    assert [hash for _, hash in refs(order)] == [version.hash for version in maps]


async def test_a_published_daemon_that_joins_gets_what_it_can_download(depot):
    await depot.begin()
    await depot.upload("base", {"a": b"1"})
    await depot.group("lobby", templates=["base"], artifact=JAR)
    talker = await depot.talker("n1", features=[])
    order = (await talker.read_until("pre_warm_cache")).pre_warm_cache
    assert refs(order) == []
    assert entries(order) == [("paper.jar", JAR["url"], JAR["sha256"])]


async def test_warming_answers_when_all_is_fetched_and_names_what_failed(depot):
    await depot.begin()
    version = await depot.upload("base", {"a": b"1"})
    talker = await depot.talker()
    await depot.group("lobby", templates=["base"])
    warming = asyncio.create_task(depot.term.distribution.prewarm("n1", "lobby"))
    failure = CacheFailure(subject="template/base", error_code="CACHE_FULL", error_message="no room")
    order = await answer(talker, "pre_warm_cache", failures=[failure])
    assert refs(order) == [("base", version.hash)]
    assert [trouble.code for trouble in (await warming).failures] == ["CACHE_FULL"]
    await depot.group("west", templates=["base"], node_labels={"zone": "west"})
    for group, code in (("nothing", Code.NOT_FOUND), ("west", Code.CONFLICT)):
        with pytest.raises(Rejected) as caught:
            await depot.term.distribution.prewarm("n1", group)
        assert caught.value.code is code


async def test_warming_a_published_daemon_names_what_its_cache_lacks(depot):
    await depot.begin()
    talker = await depot.talker(features=[])
    await depot.upload("base", {"a": b"1"})
    await depot.group("lobby", templates=["base"], artifact=JAR)
    held = JarCacheEntry(platform="paper", version="1.21.4", sha256=JAR["sha256"])
    for jars, lacking in (([], ["artifact/", "template/base"]), ([held], ["template/base"])):
        warming = asyncio.create_task(depot.term.distribution.prewarm("n1", "lobby"))
        await talker.read_until("request_cache_status")
        await talker.send(DaemonMessage(cache_status=CacheStatus(jars=jars)))
        failures = (await warming).failures
        assert [each.subject[: len(name)] for each, name in zip(failures, lacking, strict=True)] == lacking


async def test_a_group_is_warmed_on_all_nodes_that_it_may_run_on(depot):
    await depot.begin()
    await depot.upload("base", {"a": b"1"})
    await depot.talker("n1")
    west = await depot.talker("n2", labels={"zone": "west"})
    await depot.group("lobby", templates=["base"], node_labels={"zone": "west"})
    warming = asyncio.create_task(depot.term.distribution.prewarm_all("lobby"))
    await answer(west, "pre_warm_cache")
    assert [(each.node, each.ok) for each in await warming] == [("n2", True)]


async def test_a_sync_answers_for_each_node(depot):
    await depot.begin()
    version = await depot.upload("base", {"a": b"1"})
    good, bad = await depot.talker("n1"), await depot.talker("n2")
    await depot.talker("n3", features=[])
    gone = await depot.talker("n4")
    await gone.hang_up()
    await eventually(lambda: depot.session("n4") is None)
    distribution = depot.term.distribution
    syncing = asyncio.create_task(distribution.sync("base", ["n1", "n2", "n3", "n4"]))
    order = await answer(good, "pre_warm_cache")
    assert (refs(order), entries(order)) == ([("base", version.hash)], [])
    failure = CacheFailure(subject="template/base", error_code="DISK_FULL", error_message="full")
    await answer(bad, "pre_warm_cache", failures=[failure])
    answers = {each.node: (each.ok, each.code) for each in await syncing}
    assert answers == {
        "n1": (True, ""),
        "n2": (False, "DISK_FULL"),
        "n3": (False, "NOT_SUPPORTED"),
        "n4": (False, "NODE_OFFLINE"),
    }
    for name, nodes in (("nothing", None), ("base", ["n9"])):
        with pytest.raises(Rejected) as caught:
            await distribution.sync(name, nodes)
        assert caught.value.code is Code.NOT_FOUND


async def test_all_connected_nodes_are_meant_when_none_is_named(depot):
    await depot.begin()
    await depot.upload("base", {"a": b"1"})
    one, two = await depot.talker("n1"), await depot.talker("n2")
    syncing = asyncio.create_task(depot.term.distribution.sync("base"))
    await answer(one, "pre_warm_cache")
    await answer(two, "pre_warm_cache")
    assert [each.ok for each in await syncing] == [True, True]
