"""Metrics of modules at `/metrics`: those they record themselves, and the host's own about them.

A large fleet has tens of thousands of samples. They are collected on the loop as references (`LateMetric`);
the samples themselves are made in the thread that renders the text.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from corral.controller.modules_on_nodes.node_metrics import HOST_FAMILIES, NodeFamilies, NodeMetrics
from corral.modules.capabilities.capability_entries import CapabilityView
from corral.modules.services.module_metrics import BUCKETS, Family, HistogramSeries

PREFIX: Final = "corral_module_"
CAPABILITY_PREFIX: Final = "corral_capability_"


class ModuleMetricsCollector(Collector):
    """Collects the modules of the present term; nothing while there is none.

    `host_metrics` gives values by name as (help, is a counter, [(module, value)]); `leaked` the number of processes
    of each module that lingered or had to be killed; `families` what modules recorded; `capabilities` the
    providers and their calls; `nodes` the metrics from nodes, with the label `node`.
    """

    def __init__(
        self,
        *,
        host_metrics: Callable[[], Iterable[tuple[str, str, bool, list[tuple[str, float]]]]],
        leaked: Callable[[], dict[str, int]],
        families: Callable[[], Iterable[tuple[str, str, Family]]],
        dropped: Callable[[], dict[tuple[str, str], int]],
        capabilities: Callable[[], Iterable[CapabilityView]],
        nodes: NodeMetrics | None = None,
    ) -> None:
        self._host_metrics = host_metrics
        self._leaked = leaked
        self._families = families
        self._dropped = dropped
        self._capabilities = capabilities
        self._nodes = nodes or NodeMetrics()

    def describe(self) -> Iterable[Metric]:
        """Empty: the names are not known before modules are installed."""
        return []

    def collect(self) -> Iterator[Metric]:
        by_name = self._nodes.named()
        hosts = {name: by_name.pop(name, []) for name in HOST_FAMILIES}
        for metric in itertools.chain(self._host_rows(), self._leaks(), [self._lost()]):
            late = LateMetric.of(metric)
            for node, families in hosts.get(metric.name.removeprefix(PREFIX), ()):
                late.add_pending(families, node=node)
            yield late
        yield self._lost_of_nodes()
        yield from self._called()
        yield from self._recorded(by_name)

    def _host_rows(self) -> Iterator[Metric]:
        for name, help, counts, rows in self._host_metrics():
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            family = kind(PREFIX + name, help, labels=["module"])
            for module, value in rows:
                family.add_metric([module], value)
            yield family

    def _lost(self) -> Metric:
        lost = CounterMetricFamily(
            PREFIX + "samples_dropped", "Samples of modules that were refused.", labels=["module", "why"]
        )
        for (module, why), count in sorted(self._dropped().items()):
            lost.add_metric([module, why], count)
        return lost

    def _lost_of_nodes(self) -> Metric:
        lost = CounterMetricFamily(
            PREFIX + "node_samples_dropped",
            "Samples of modules on nodes that were refused here.",
            labels=["node", "why"],
        )
        for (node, why), count in sorted(self._nodes.dropped().items()):
            lost.add_metric([node, why], count)
        return lost

    def _leaks(self) -> Iterator[Metric]:
        leaked = self._leaked()
        help = "Processes of a module that lingered or had to be killed."
        family = GaugeMetricFamily(PREFIX + "leaked", help, labels=["module"])
        alias = GaugeMetricFamily(PREFIX + "classloader_leaked", help, labels=["moduleId"])
        for module, count in sorted(leaked.items()):
            family.add_metric([module], count)
            alias.add_metric([module], count)
        yield family
        yield alias

    def _called(self) -> Iterator[Metric]:
        """One series per capability that has a provider now."""
        names = ["capability", "provider"]
        calls = CounterMetricFamily(CAPABILITY_PREFIX + "calls", "Calls of a capability.", labels=names)
        failures = CounterMetricFamily(
            CAPABILITY_PREFIX + "call_failures", "Calls of a capability that failed.", labels=names
        )
        deprecated = CounterMetricFamily(
            CAPABILITY_PREFIX + "deprecated_calls", "Calls of a capability that will go.", labels=names
        )
        for view in self._capabilities():
            calls.add_metric([view.id, view.provider], view.calls)
            failures.add_metric([view.id, view.provider], view.failures)
            deprecated.add_metric([view.id, view.provider], view.deprecated_calls)
        yield from (calls, failures, deprecated)

    def _recorded(self, by_name: Mapping[str, list[NodeFamilies]]) -> Iterator[Metric]:
        """One family per name: the first module's kind counts, others of that name are left out."""
        own: dict[str, list[tuple[str, Family]]] = collections.defaultdict(list)
        for module, name, family in self._families():
            own[name].append((module, still(family)))
        for name in sorted(own.keys() | by_name.keys()):
            ours, theirs = own.get(name, []), by_name.get(name, [])
            _, first = (ours or theirs[0].families)[0]
            metric = LateMetric(PREFIX + name, first.help or f"Recorded by modules as {name}.", first.kind)
            metric.add_pending(ours)
            for node, families in theirs:
                metric.add_pending(families, node=node)
            yield metric


_BOUNDS: Final = (*(str(bound) for bound in BUCKETS), "+Inf")
_SUFFIXES: Final = {"counter": "_total", "gauge": "", "histogram": ""}


class LateMetric(Metric):
    """A family whose samples are made when it is rendered. Pending samples never change: see `still`."""

    def __init__(self, name: str, documentation: str, kind: str) -> None:
        self._pending: list[tuple[str, Sequence[tuple[str, Family]]]] = []
        super().__init__(name, documentation, kind)

    @classmethod
    def of(cls, metric: Metric) -> LateMetric:
        """A copy that begins with the samples of another."""
        late = cls(metric.name, metric.documentation, metric.type)
        late.samples = list(metric.samples)
        return late

    def add_pending(self, families: Sequence[tuple[str, Family]], *, node: str = "") -> None:
        """Add the series of these, each with its module and node as labels; a family of another kind is left
        out."""
        self._pending.append((node, families))

    @property
    def samples(self) -> list[Sample]:
        pending, self._pending = self._pending, []
        for node, families in pending:
            for module, family in families:
                if family.kind == self.type:
                    _add(self, {"module": module, "node": node} if node else {"module": module}, family)
        return self._made

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        self._made = samples


def still(family: Family) -> Family:
    """A copy of the present values, unaffected by later records."""
    copied = Family(family.kind, family.help)
    copied.numbers = dict(family.numbers)
    for labels, histogram in family.histograms.items():
        taken = copied.histograms[labels] = HistogramSeries()
        taken.counts, taken.total = list(histogram.counts), histogram.total
    return copied


def _add(metric: Metric, origin: dict[str, str], family: Family) -> None:
    for labels, value in family.numbers.items():
        metric.add_sample(metric.name + _SUFFIXES[family.kind], {**origin, **dict(labels)}, value)
    for labels, histogram in family.histograms.items():
        _add_histogram(metric, {**origin, **dict(labels)}, histogram)


def _add_histogram(metric: Metric, labels: dict[str, str], histogram: HistogramSeries) -> None:
    seen = 0
    for bound, count in zip(_BOUNDS, histogram.counts, strict=True):
        seen += count
        metric.add_sample(metric.name + "_bucket", {**labels, "le": bound}, seen)
    metric.add_sample(metric.name + "_sum", labels, histogram.total)
    metric.add_sample(metric.name + "_count", labels, seen)
