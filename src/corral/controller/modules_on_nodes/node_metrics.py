"""Metrics of modules on nodes, from the last frame of each node; bounded, and dropped with the session."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from corral.controller.sessions.node_links import ModuleLink
from corral.domain.ids import NodeId
from corral.modules.manifest.manifest_checks import ID
from corral.modules.services.module_metrics import (
    BUCKETS,
    HELP_MAX,
    MAX_NAMES,
    MAX_SERIES,
    Family,
    HistogramSeries,
    Labels,
    sample_problem,
    series_labels,
)
from corral.sdk.protocol.messages import MetricSample
from corral.wire.v1.module_pb2 import ModuleMetricFamily, ModuleMetrics, ModuleMetricSample

FRAME_BYTES: Final = 1024 * 1024
NODE_SAMPLES: Final = 4000
"""Most samples read from one frame of a node; the rest is counted as dropped."""
HOST_FAMILIES: Final = {
    "cpu_seconds": ("counter", ()),
    "calls": ("counter", ()),
    "call_failures": ("counter", ()),
    "call_seconds": ("counter", ()),
    "memory_bytes": ("gauge", ()),
    "threads": ("gauge", ()),
    "processes": ("gauge", ()),
    "leaked": ("gauge", ()),
    "samples_dropped": ("counter", ("why",)),
}
"""Families that a node's host reports about its modules, under names that modules may not use: kind and
labels."""
_LARGEST_COUNT: Final = 2**53
_STAND_IN: Final = "x"
_OF_PROCESS: Final = "memory_bytes"
"""Reported of modules that have a process."""


class NodeFamilies(NamedTuple):
    """The families of one name from the modules of one node. Never changed: the next frame replaces it."""

    node: NodeId
    families: list[tuple[str, Family]]
    """By module id, sorted."""


class ModuleUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a module on a node uses, as its node reported last."""

    cpu_seconds: float
    memory_bytes: int
    threads: int
    processes: int
    calls: int
    failures: int


class NodeMetrics:
    """The last frame of each session. A frame is parsed only when metrics are read: a node that floods costs
    no parsing."""

    def __init__(self) -> None:
        self._frames: dict[ModuleLink, ModuleMetrics] = {}
        self._sheets: dict[ModuleLink, _ParsedFrame] = {}
        self._dropped: dict[ModuleLink, collections.Counter[str]] = {}
        self._latest: dict[NodeId, ModuleLink] = {}
        """By node, the session that sent last."""
        self._usage: dict[NodeId, Mapping[str, ModuleUsage]] = {}
        """By node and module, of the last frame that was parsed."""

    def usage(self, node: NodeId, module: str) -> ModuleUsage | None:
        """What a module uses on a node, by the last frame that `look` has parsed; None: it has no process there, as far as
        is known."""
        found = self._usage.get(node)
        return found.get(module) if found is not None else None

    def received(self, link: ModuleLink, metrics: ModuleMetrics) -> None:
        """Replace the session's last frame. One larger than FRAME_BYTES is dropped and counted."""
        if link.over.is_set():
            return
        if metrics.ByteSize() > FRAME_BYTES:
            self._dropped.setdefault(link, collections.Counter())["frame"] += 1
            return
        self._frames.pop(link, None)  # moves the link to the end: the session that sent last counts
        self._frames[link] = metrics
        self._latest[link.facts.node_id] = link
        self._sheets.pop(link, None)

    def left(self, link: ModuleLink) -> None:
        """Drop the frames of this session, which is over. Idempotent."""
        for held in (self._frames, self._sheets, self._dropped):
            held.pop(link, None)
        if self._latest.get(link.facts.node_id) is link:
            del self._latest[link.facts.node_id]
            self._usage.pop(link.facts.node_id, None)

    async def look(self) -> None:
        """Parse new frames in a thread; `named` parses those that arrive meanwhile."""
        fresh = {link: frame for link, frame in self._frames.items() if link not in self._sheets}
        sheets = (
            await asyncio.to_thread(lambda: [_ParsedFrame(frame) for frame in fresh.values()])
            if fresh
            else []
        )
        for (link, frame), sheet in zip(fresh.items(), sheets, strict=True):
            if self._frames.get(link) is frame:
                self._keep(link, sheet)

    def named(self) -> dict[str, list[NodeFamilies]]:
        """Families by name, then node: one session per node, also while an old session of it lingers."""
        latest = {link.facts.node_id: link for link in self._frames}
        found: dict[str, list[NodeFamilies]] = collections.defaultdict(list)
        for node, link in sorted(latest.items(), key=lambda item: item[0]):
            for name, families in self._sheet(link).named.items():
                found[name].append(NodeFamilies(node, families))
        return found

    def dropped(self) -> dict[tuple[NodeId, str], int]:
        """Number of refused samples by node and reason, in the present sessions; counted when a frame is
        parsed."""
        total: collections.Counter[tuple[NodeId, str]] = collections.Counter()
        for link, counts in self._dropped.items():
            for why, count in counts.items():
                total[link.facts.node_id, why] += count
        return dict(total)

    def _sheet(self, link: ModuleLink) -> _ParsedFrame:
        sheet = self._sheets.get(link)
        return sheet if sheet is not None else self._keep(link, _ParsedFrame(self._frames[link]))

    def _keep(self, link: ModuleLink, sheet: _ParsedFrame) -> _ParsedFrame:
        if link not in self._sheets:
            self._sheets[link] = sheet
            if self._latest.get(link.facts.node_id) is link:
                self._usage[link.facts.node_id] = sheet.usage
            self._dropped.setdefault(link, collections.Counter()).update(sheet.dropped)
        return sheet


class _ParsedFrame:
    """One frame, parsed and checked."""

    def __init__(self, metrics: ModuleMetrics) -> None:
        self._families: dict[tuple[str, str], Family] = {}
        self.dropped: collections.Counter[str] = collections.Counter()
        self._names: collections.Counter[str] = collections.Counter()
        self._series: collections.Counter[str] = collections.Counter()
        self._left = NODE_SAMPLES
        for family_frame in metrics.families[:NODE_SAMPLES]:
            self._read(family_frame)
        self._drop("names", len(metrics.families) - NODE_SAMPLES)
        self.named: dict[str, list[tuple[str, Family]]] = collections.defaultdict(list)
        for (module, name), family in sorted(self._families.items(), key=lambda item: item[0]):
            self.named[name].append((module, family))
        self.usage: Mapping[str, ModuleUsage] = {
            module: self._usage_of(module) for module, _ in self.named.get(_OF_PROCESS, ())
        }

    def _usage_of(self, module: str) -> ModuleUsage:
        def number(name: str) -> float:
            family = self._families.get((module, name))
            value = next(iter(family.numbers.values()), 0.0) if family is not None else 0.0
            return min(max(0.0, value), float(_LARGEST_COUNT))

        return ModuleUsage(
            cpu_seconds=round(number("cpu_seconds"), 3),
            memory_bytes=int(number("memory_bytes")),
            threads=int(number("threads")),
            processes=int(number("processes")),
            calls=int(number("calls")),
            failures=int(number("call_failures")),
        )

    def _drop(self, why: str, count: int = 1) -> None:
        if why and count > 0:
            self.dropped[why] += count

    def _read(self, family_frame: ModuleMetricFamily) -> None:
        """Add a family to the frame's result; a family may come in several parts."""
        name = (
            family_frame.name.removesuffix("_total") if family_frame.kind == "counter" else family_frame.name
        )
        family = self._families.get((family_frame.module_id, name)) or Family(
            family_frame.kind, family_frame.help[:HELP_MAX]
        )
        why = self._objection(family_frame, name, family)
        if why:
            self._drop(why, max(1, len(family_frame.samples)))
            return
        for sample in self._within_bounds(family_frame):
            self._drop(self._add(family, family_frame, name, sample))
        if len(family):
            self._families[family_frame.module_id, name] = family

    def _objection(self, family_frame: ModuleMetricFamily, name: str, family: Family) -> str:
        if not ID.fullmatch(family_frame.module_id):
            return "module"
        if family_frame.kind != family.kind:
            return "kind"
        if name in HOST_FAMILIES or (family_frame.module_id, name) in self._families:
            return ""
        self._names[family_frame.module_id] += 1
        return "names" if self._names[family_frame.module_id] > MAX_NAMES else ""

    def _within_bounds(self, family_frame: ModuleMetricFamily) -> Iterator[ModuleMetricSample]:
        looked, self._left = (
            min(len(family_frame.samples), self._left),
            max(0, self._left - len(family_frame.samples)),
        )
        self._drop("series", len(family_frame.samples) - looked)
        yield from family_frame.samples[:looked]

    def _add(
        self, family: Family, family_frame: ModuleMetricFamily, name: str, sample: ModuleMetricSample
    ) -> str:
        shown = MetricSample(
            name=name, kind=family_frame.kind, value=sample.value, labels=dict(sample.labels)
        )
        why = _problem(name, shown)
        labels = series_labels(shown)
        if why or family.holds(labels):
            return why or "labels"
        if self._series[family_frame.module_id] >= MAX_SERIES:
            return "series"
        if not _record(family, labels, sample):
            return "value"
        self._series[family_frame.module_id] += 1
        return ""


def _problem(name: str, sample: MetricSample) -> str:
    hosts = HOST_FAMILIES.get(name)
    if hosts is None:
        return sample_problem(name, sample)
    kind, labels = hosts
    if sample.kind != kind:
        return "kind"
    return "labels" if set(sample.labels) != set(labels) else sample_problem(_STAND_IN, sample)


def _record(family: Family, labels: Labels, sample: ModuleMetricSample) -> bool:
    if family.kind != "histogram":
        family.numbers[labels] = sample.value
        return True
    if len(sample.buckets) != len(BUCKETS) + 1 or max(sample.buckets) > _LARGEST_COUNT:
        return False
    histogram = HistogramSeries()
    histogram.counts, histogram.total = list(sample.buckets), sample.value
    family.histograms[labels] = histogram
    return True
