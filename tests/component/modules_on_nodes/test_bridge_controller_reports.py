"""What nodes say of their modules: events into the log, figures to `/metrics`; and what is not believed."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import sqlite3
from collections.abc import Mapping
from typing import Any

import pytest
from bridge_bench import HeldLink, bridge_bench, payload
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from corral.controller.modules.metrics_exposition import ModuleMetricsCollector
from corral.controller.modules_on_nodes.node_metrics import (
    FRAME_BYTES,
    NODE_SAMPLES,
    ModuleUsage,
    NodeMetrics,
)
from corral.controller.modules_on_nodes.published_events import (
    BURST_SECONDS,
    KIB_PER_SECOND,
    PER_SECOND,
    PublishedEvents,
    published,
)
from corral.daemon.link.spool_file import open_table
from corral.daemon.link.spool_table import SpoolTable
from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.json_limits import MAX_DEPTH
from corral.domain.modules.manifest import EventsPart, Manifest, ModuleHost
from corral.domain.modules.records import PackageRecord
from corral.modules.services.event_rules import DATA_BYTES, SUBJECT_MAX
from corral.modules.services.module_metrics import BUCKETS, MAX_NAMES, MAX_SERIES, Family
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import EventPublish, ModuleMetricFamily, ModuleMetrics, ModuleMetricSample

NOW = dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC)
NORTH = NodeId("north")


def guard(*, hosts: tuple[ModuleHost, ...] = (ModuleHost.DAEMON,)) -> PackageRecord:
    manifest = Manifest(
        manifest_version=1, id="guard", version="1.0.0", hosts=hosts, events=EventsPart(publishes=("SEEN",))
    )
    return PackageRecord(
        id="guard",
        version="1.0.0",
        sha256="0" * 64,
        size=1,
        manifest=manifest,
        installed_at=NOW,
        updated_at=NOW,
    )


def told(**fields: Any) -> EventPublish:
    defaults: dict[str, Any] = {
        "module_id": "guard",
        "event_type": "SEEN",
        "subject": "lobby-1",
        "payload_json": b'{"who": "alex"}',
        "published_at_ms": int(NOW.timestamp() * 1000) - 60_000,
    }
    return EventPublish(**{**defaults, **fields})


def test_what_a_module_tells_is_stamped_with_where_it_comes_from():
    (step,) = published(NORTH, told(), guard(), NOW)
    assert isinstance(step, Draft)
    assert step.type is EventType.MODULE_EVENT
    assert step.subject == "guard/SEEN"
    assert step.data == {
        "module": "guard",
        "node": "north",
        "type": "SEEN",
        "subject": "lobby-1",
        "published_at": "2026-03-04T05:05:07+00:00",
        "data": {"who": "alex"},
    }


@pytest.mark.parametrize("milliseconds", [0, -5, 2**62, 10**15])
def test_a_clock_that_nobody_can_have_is_not_believed(milliseconds):
    (step,) = published(NORTH, told(published_at_ms=milliseconds, payload_json=b""), guard(), NOW)
    assert isinstance(step, Draft)
    assert step.data["published_at"] == NOW.isoformat()
    assert step.data["data"] == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"module_id": "other"},
        {"module_id": ""},
        {"event_type": "SOLD"},
        {"event_type": "GROUP_CREATED"},
        {"event_type": ""},
        {"subject": "s" * (SUBJECT_MAX + 1)},
        {"payload_json": b"[1]"},
        {"payload_json": b"nonsense"},
        {"payload_json": b'{"a": "\xff"}'},
        {"payload_json": b'{"a": NaN}'},
        {"payload_json": json.dumps({"a": 2**70}).encode()},
        {"payload_json": b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"},
        {"payload_json": b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"},
        {"payload_json": b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"},
        {"payload_json": json.dumps({"a": "x" * DATA_BYTES}).encode()},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_what_a_module_may_not_tell_leaves_nothing_behind(fields):
    assert published(NORTH, told(**fields), guard(), NOW) == []


def test_a_module_that_is_not_for_nodes_tells_nothing_there():
    assert published(NORTH, told(), None, NOW) == []
    assert published(NORTH, told(), guard(hosts=(ModuleHost.CONTROLLER,)), NOW) == []


async def test_what_one_node_tells_another_hears_as_a_module_on_the_controller_does(scratch):
    deep = b'{"a": ' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    async with bridge_bench(scratch) as bench:
        south = bench.join(HeldLink("south"))
        bench.subscribe(south, "guard/SEEN")
        await bench.ledger.commit(*published(NORTH, told(payload_json=deep), guard(), NOW))
        await bench.ledger.commit(*published(NORTH, told(), guard(), NOW))
        await eventually(lambda: len(south.events()) == 2)
        shown = payload(south.events()[1])
        assert (shown["type"], shown["subject"], shown["data"]) == (
            "guard/SEEN",
            "lobby-1",
            {"who": "alex"},
        )


# --- figures --------------------------------------------------------------------------------------

Shown = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exposed(
    figures: NodeMetrics, *, own: Mapping[str, Family] | None = None, host: list[Any] | None = None
) -> Shown:
    """Everything at `/metrics`, as a scraper reads it: a name has one family, a series stands there once."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(
        ModuleMetricsCollector(
            host_metrics=lambda: host or [],
            leaked=lambda: {"shop": 0},
            families=lambda: [("shop", name, family) for name, family in (own or {}).items()],
            dropped=lambda: {("shop", "name"): 1},
            capabilities=list,
            nodes=figures,
        )
    )
    text = generate_latest(registry).decode()
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    helps = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert len(types) == len(set(types))
    assert len(helps) == len(set(helps))
    shown: Shown = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in shown, key
            shown[key] = one.value
    return shown


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"corral_module_{name}", tuple(sorted(labels.items()))


def sample(value: float = 1.0, buckets: tuple[int, ...] = (), **labels: str) -> ModuleMetricSample:
    return ModuleMetricSample(labels=labels, value=value, buckets=buckets)


def family(name: str, *samples: ModuleMetricSample, kind: str = "gauge", **more: Any) -> ModuleMetricFamily:
    fields = {"module_id": "guard", "help": "As told.", **more}
    return ModuleMetricFamily(name=name, kind=kind, samples=samples or [sample()], **fields)


def metrics(*families: ModuleMetricFamily) -> ModuleMetrics:
    return ModuleMetrics(families=families)


async def test_what_is_shown_is_how_it_was_when_somebody_asked_though_a_thread_writes_it_down():
    """The samples are made there: whatever is recorded meanwhile must not get among them."""
    figures, link = NodeMetrics(), HeldLink("north")
    figures.received(link, metrics(family("depth", sample(1, world="a"))))
    mine, took = Family("gauge", "Mine."), Family("histogram", "Mine.")
    mine.record((), 9)
    took.record((), 0.02)
    collected = list(
        ModuleMetricsCollector(
            host_metrics=lambda: [("memory_bytes", "Memory.", False, [("shop", 50.0)])],
            leaked=dict,
            families=lambda: [("shop", "depth", mine), ("shop", "took", took)],
            dropped=dict,
            capabilities=list,
            nodes=figures,
        ).collect()
    )
    mine.record((), 10)
    mine.record((("world", "b"),), 11)
    took.record((), 0.02)
    figures.received(link, metrics(family("depth", sample(2, world="a"))))
    made = await asyncio.to_thread(lambda: {metric.name: metric.samples for metric in collected})
    depth = [(one.labels, one.value) for one in made["corral_module_depth"]]
    assert depth == [({"module": "shop"}, 9), ({"module": "guard", "node": "north", "world": "a"}, 1)]
    assert made["corral_module_took"][-1].value == 1
    assert [one.value for one in made["corral_module_memory_bytes"]] == [50.0]
    (again,) = (metric.samples for metric in collected if metric.name == "corral_module_depth")
    assert again == made["corral_module_depth"]


def test_figures_of_nodes_stand_beside_those_of_the_controller_under_one_name():
    figures, north, south = NodeMetrics(), HeldLink("north"), HeldLink("south")
    buckets = (*[0] * 3, 2, *[0] * (len(BUCKETS) - 3))
    for link, value in ((north, 1.0), (south, 2.0)):
        figures.received(
            link,
            metrics(
                family("depth", sample(value, world="a")),
                family("jumps", sample(value), kind="counter"),
                family("took", sample(0.02, buckets), kind="histogram"),
                family("memory_bytes", sample(100)),
                family("calls_total", sample(7), kind="counter"),
                family("leaked", sample(0)),
                family("samples_dropped", sample(3, why="series"), kind="counter"),
            ),
        )
    mine = Family("gauge", "Mine.")
    mine.record((), 9)
    host = [("memory_bytes", "Memory.", False, [("shop", 50.0)]), ("calls", "Calls.", True, [("shop", 4)])]
    shown = exposed(figures, own={"depth": mine}, host=host)
    assert shown[key("depth", module="shop")] == 9
    assert shown[key("depth", module="guard", node="north", world="a")] == 1
    assert shown[key("depth", module="guard", node="south", world="a")] == 2
    assert shown[key("jumps_total", module="guard", node="south")] == 2
    assert shown[key("took_bucket", module="guard", node="north", le="0.01")] == 2
    assert shown[key("took_count", module="guard", node="north")] == 2
    assert shown[key("took_sum", module="guard", node="north")] == 0.02
    assert shown[key("memory_bytes", module="shop")] == 50
    assert shown[key("memory_bytes", module="guard", node="north")] == 100
    assert shown[key("calls_total", module="guard", node="north")] == 7
    assert shown[key("leaked", module="guard", node="north")] == 0
    assert shown[key("samples_dropped_total", module="guard", node="north", why="series")] == 3


def test_a_kind_that_another_has_not_is_left_out_and_the_text_stays_valid():
    figures = NodeMetrics()
    figures.received(HeldLink("north"), metrics(family("depth", kind="counter")))
    figures.received(HeldLink("south"), metrics(family("depth")))
    mine = Family("gauge", "Mine.")
    mine.record((), 9)
    shown = exposed(figures, own={"depth": mine})
    assert {name for name, _ in shown if "depth" in name} == {"corral_module_depth"}
    assert key("depth", module="guard", node="south") in shown


def test_only_the_latest_frame_of_the_latest_session_counts_and_goes_with_it():
    figures, old, new = NodeMetrics(), HeldLink(session="s1"), HeldLink(session="s2")
    figures.received(old, metrics(family("depth", sample(1)), family("gone")))
    figures.received(old, metrics(family("depth", sample(2))))
    shown = exposed(figures)
    assert shown[key("depth", module="guard", node="north")] == 2
    assert not [name for name, _ in shown if "gone" in name]
    figures.received(new, metrics(family("depth", sample(3))))
    assert exposed(figures)[key("depth", module="guard", node="north")] == 3
    old.over.set()
    figures.left(old)
    figures.left(old)
    figures.received(old, metrics(family("depth", sample(4))))
    assert exposed(figures)[key("depth", module="guard", node="north")] == 3
    figures.left(new)
    assert not [name for name, _ in exposed(figures) if "depth" in name]
    assert figures.dropped() == {}


async def test_the_usage_of_a_module_on_a_node_is_that_of_the_latest_session_and_within_bounds():
    figures, old, new = NodeMetrics(), HeldLink(session="s1"), HeldLink(session="s2")
    figures.received(
        old,
        metrics(
            family("memory_bytes", sample(5e6)),
            family("cpu_seconds", sample(1.23456), kind="counter"),
            family("calls", sample(7), kind="counter"),
            family("threads", sample(-3)),
            family("processes", sample(1e300)),
            family("depth", sample(1), module_id="other"),
        ),
    )
    assert figures.usage(NORTH, "guard") is None, "nothing is parsed on the loop"
    await figures.look()
    used = figures.usage(NORTH, "guard")
    assert used == ModuleUsage(
        cpu_seconds=1.235, memory_bytes=5_000_000, threads=0, processes=2**53, calls=7, failures=0
    )
    assert figures.usage(NORTH, "other") is None, "it has no process, as far as its host says"
    assert figures.usage(NodeId("south"), "guard") is None
    figures.received(new, metrics(family("memory_bytes", sample(6))))
    assert figures.usage(NORTH, "guard") == used, "until the new frame is read"
    await figures.look()
    assert figures.usage(NORTH, "guard").memory_bytes == 6
    figures.left(old)
    assert figures.usage(NORTH, "guard").memory_bytes == 6
    figures.received(new, metrics())
    await figures.look()
    assert figures.usage(NORTH, "guard") is None
    figures.received(new, metrics(family("memory_bytes", sample(6))))
    await figures.look()
    figures.left(new)
    assert figures.usage(NORTH, "guard") is None


HOSTILE = [
    family('x"} 1\nevil{a="'),
    family("Depth"),
    family(""),
    family("a" * 64),
    family("depth_total"),
    family("depth_bucket"),
    family("phase"),
    family("node_samples_dropped", kind="counter"),
    family("depth", kind="summary"),
    family("depth", kind=""),
    family("depth", module_id='m"} 1'),
    family("depth", module_id=""),
    family("depth", sample(math.nan)),
    family("depth", sample(math.inf)),
    family("depth", sample(-1), kind="counter"),
    family("depth", sample(node="south")),
    family("depth", sample(module="shop")),
    family("depth", sample(le="1")),
    family("depth", sample(**{'a"b': "c"})),
    family("depth", sample(**{f"l{n}": "x" for n in range(9)})),
    family("depth", sample(1, (1, 2)), kind="histogram"),
    family("depth", sample(1, (2**63,) * (len(BUCKETS) + 1)), kind="histogram"),
    family("depth", sample(math.nan, (1,) * (len(BUCKETS) + 1)), kind="histogram"),
    family("memory_bytes", kind="counter"),
    family("memory_bytes", sample(world="a")),
    family("samples_dropped", sample(1), kind="counter"),
    family("classloader_leaked"),
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_what_cannot_be_shown_is_dropped_and_counted_and_the_rest_is_shown(hostile):
    figures = NodeMetrics()
    figures.received(HeldLink(), metrics(hostile, family("fine")))
    shown = exposed(figures)
    of_nodes = [name for name, labels in shown if ("node", "north") in labels]
    assert of_nodes == ["corral_module_node_samples_dropped_total", "corral_module_fine"]
    assert sum(figures.dropped().values()) == 1


def test_texts_with_anything_in_them_are_shown_as_texts():
    figures = NodeMetrics()
    rude = 'a"b\\c\nd} 1\n# TYPE x gauge\n' + "ä" * 500
    figures.received(HeldLink(), metrics(family("depth", sample(1, world=rude), help=rude)))
    shown = exposed(figures)
    assert shown[key("depth", module="guard", node="north", world=rude[:128])] == 1


def test_a_family_may_come_in_parts_and_a_series_that_is_told_twice_is_shown_once():
    figures = NodeMetrics()
    figures.received(
        HeldLink(),
        metrics(
            family("depth", sample(1, world="a"), sample(2, world="a")),
            family("depth", sample(3, world="b"), sample(4, world="a")),
            family("depth", sample(5, world="c"), kind="counter"),
            family("samples_dropped", sample(6, why="name"), kind="counter"),
            family("samples_dropped", sample(7, why="series"), kind="counter"),
        ),
    )
    shown = exposed(figures)
    assert shown[key("depth", module="guard", node="north", world="a")] == 1
    assert shown[key("depth", module="guard", node="north", world="b")] == 3
    assert shown[key("samples_dropped_total", module="guard", node="north", why="name")] == 6
    assert shown[key("samples_dropped_total", module="guard", node="north", why="series")] == 7
    assert figures.dropped() == {("north", "labels"): 2, ("north", "kind"): 1}


def told_families(figures: NodeMetrics) -> list[tuple[str, Family]]:
    return [each for parts in figures.named().values() for part in parts for each in part.families]


def test_names_and_series_are_bounded_and_a_frame_that_is_too_large_is_not_looked_at():
    figures, link = NodeMetrics(), HeldLink()
    many = [family("depth", *(sample(n, n=str(n)) for n in range(MAX_SERIES + 10)))]
    many += [family(f"n{n}", module_id="other") for n in range(MAX_NAMES + 5)]
    figures.received(link, metrics(*many))
    assert sum(len(family) for module, family in told_families(figures) if module == "guard") == MAX_SERIES
    assert len([module for module, _ in told_families(figures) if module == "other"]) == MAX_NAMES
    assert figures.dropped() == {("north", "series"): 10, ("north", "names"): 5}
    flood = [family("x", *[sample()] * 100, module_id=f"m{n}") for n in range(2 * NODE_SAMPLES // 100)]
    figures.received(link, metrics(*flood))
    assert len(told_families(figures)) == NODE_SAMPLES // 100
    figures.received(link, metrics(family("depth", help="x" * FRAME_BYTES)))
    assert len(told_families(figures)) == NODE_SAMPLES // 100, "as before"
    assert figures.dropped()["north", "frame"] == 1


def test_a_node_that_floods_costs_no_more_than_one_that_does_not():
    """Frames are read when somebody looks, the latest only."""
    figures, link = NodeMetrics(), HeldLink()
    for n in range(1000):
        figures.received(link, metrics(family("Bad", sample(n))))
    assert told_families(figures) == []
    assert figures.dropped() == {("north", "name"): 1}


class StoppedClock(SystemClock):
    """Goes on only when it is told to."""

    at = 1.0

    def monotonic(self) -> float:
        return self.at


@pytest.mark.trap("T85")
def test_a_node_that_publishes_without_end_is_bounded_said_once_a_second_and_costs_no_other_its_events():
    publishing = PublishedEvents(clock=StoppedClock())
    with capture_logs() as logs:
        flood = [publishing.admit(NORTH, told()) for _ in range(PER_SECOND * BURST_SECONDS + 20)]
        assert sum(flood) == PER_SECOND * BURST_SECONDS
        refused = [publishing.steps(NORTH, told(module_id="other"), None) for _ in range(500)]
        refused += [publishing.steps(NodeId("south"), told(module_id="other"), None) for _ in range(500)]
    assert not any(refused)
    assert len([log for log in logs if log["event"] == "bridge_event.refused"]) < 20
    assert publishing.admit(NodeId("south"), told())
    assert publishing.steps(NodeId("south"), told(), guard())


@pytest.mark.trap("T85")
@pytest.mark.parametrize(("count", "size"), [(6_000, 0), (6_000, 1_500), (400, DATA_BYTES)])
def test_what_waited_on_a_node_is_never_too_fast_for_the_controller(scratch, count, size):
    """A backlog, and a controller that confirms at once. Nothing is too fast even for one that allows only two
    seconds' worth at once."""
    clock = StoppedClock()
    events = TokenBucket(burst=PER_SECOND * 2, per_second=PER_SECOND, monotonic=clock.monotonic)
    kib = TokenBucket(burst=KIB_PER_SECOND * 2, per_second=KIB_PER_SECOND, monotonic=clock.monotonic)
    body = DaemonMessage(event_publish=told(payload_json=b"x" * size)).SerializeToString()
    open_table(scratch, entropy=SystemEntropy(), log_bytes=1, max_bytes=1).close()
    database = sqlite3.connect(scratch / "spool.db", isolation_level=None)
    table = SpoolTable(database, log_bytes=1, max_bytes=2**30, monotonic=clock.monotonic)
    table.begin()
    for _ in range(count):
        table.add_background(body)
    table.commit()
    sent = after = 0
    while sent < count:
        table.begin()
        records = table.take(after, 1000)
        for record in records:
            assert events.take()
            assert kib.take(1 + size // 1024)
            sent, after = sent + 1, record.sequence
        table.forget(after)
        table.number_background()
        table.commit()
        if table.committed.highest == after and sent < count:
            clock.at += table.background_delay() + 0.001
    table.close()
