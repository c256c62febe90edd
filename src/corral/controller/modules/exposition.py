"""Modules at `/metrics`: what they measure themselves, and what the host measures about them."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from corral.controller.node_modules.node_figures import HOST_FAMILIES, NodeFamily, NodeFigures
from corral.modules.capability_entries import CapabilityView
from corral.modules.module_metrics import BUCKETS, Family, Histogram

PREFIX: Final = "corral_module_"
CAPABILITY_PREFIX: Final = "corral_capability_"
_BOUNDS: Final = (*(str(bound) for bound in BUCKETS), "+Inf")
_SUFFIXES: Final = {"counter": "_total", "gauge": "", "histogram": ""}


class ModuleFigures(Collector):
    """Shows the modules of the present term; nothing at all while there is none.

    `rows` gives figures by name as (help, is a counter, [(module, value)]); `leaked` how many processes
    of each module lingered or had to be killed; `families` what modules recorded; `capabilities` who
    provides what, and how often that was called; `nodes` what came from nodes, which has the label `node`.
    """

    def __init__(
        self,
        *,
        figures: Callable[[], Iterable[tuple[str, str, bool, list[tuple[str, float]]]]],
        leaked: Callable[[], dict[str, int]],
        families: Callable[[], Iterable[tuple[str, str, Family]]],
        dropped: Callable[[], dict[tuple[str, str], int]],
        capabilities: Callable[[], Iterable[CapabilityView]],
        nodes: NodeFigures | None = None,
    ) -> None:
        self._figures = figures
        self._leaked = leaked
        self._families = families
        self._dropped = dropped
        self._capabilities = capabilities
        self._nodes = nodes or NodeFigures()

    def describe(self) -> Iterable[Metric]:
        """Empty: the names are not known before modules are there."""
        return []

    def collect(self) -> Iterator[Metric]:
        told = self._nodes.families()
        hosts: dict[str, list[NodeFamily]] = collections.defaultdict(list)
        for each in told:
            if each.name in HOST_FAMILIES:
                hosts[each.name].append(each)
        for metric in itertools.chain(self._host_rows(), self._leaks(), [self._lost()]):
            for each in hosts.get(metric.name.removeprefix(PREFIX), ()):
                _add(metric, _origin(each), each.family)
            yield metric
        yield self._lost_of_nodes()
        yield from self._called()
        yield from self._recorded([each for each in told if each.name not in HOST_FAMILIES])

    def _host_rows(self) -> Iterator[Metric]:
        for name, help, counts, rows in self._figures():
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
            "Samples that nodes told of their modules and that were refused here.",
            labels=["node", "why"],
        )
        for (node, why), count in sorted(self._nodes.dropped().items()):
            lost.add_metric([node, why], count)
        return lost

    def _leaks(self) -> Iterator[Metric]:
        leaked = self._leaked()
        told = "Processes of a module that lingered or had to be killed."
        family = GaugeMetricFamily(PREFIX + "leaked", told, labels=["module"])
        alias = GaugeMetricFamily(PREFIX + "classloader_leaked", told, labels=["moduleId"])
        for module, count in sorted(leaked.items()):
            family.add_metric([module], count)
            alias.add_metric([module], count)
        yield family
        yield alias

    def _called(self) -> Iterator[Metric]:
        """One series a capability that has a provider now."""
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

    def _recorded(self, told: Iterable[NodeFamily]) -> Iterator[Metric]:
        """One family a name: the first module's kind counts, others of that name are left out."""
        rows = [(name, {"module": module}, family) for module, name, family in self._families()]
        rows += [(each.name, _origin(each), each.family) for each in told]
        rows.sort(key=lambda row: row[0])
        for name, group in itertools.groupby(rows, key=lambda row: row[0]):
            metric: Metric | None = None
            for _, labels, family in group:
                if metric is None:
                    metric = Metric(
                        PREFIX + name, family.help or f"Recorded by modules as {name}.", family.kind
                    )
                if metric.type == family.kind:
                    _add(metric, labels, family)
            if metric is not None:
                yield metric


def _origin(told: NodeFamily) -> dict[str, str]:
    return {"module": told.module, "node": told.node}


def _add(metric: Metric, origin: dict[str, str], family: Family) -> None:
    for labels, value in family.numbers.items():
        metric.add_sample(metric.name + _SUFFIXES[family.kind], {**origin, **dict(labels)}, value)
    for labels, histogram in family.histograms.items():
        _add_histogram(metric, {**origin, **dict(labels)}, histogram)


def _add_histogram(metric: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    seen = 0
    for bound, count in zip(_BOUNDS, histogram.counts, strict=True):
        seen += count
        metric.add_sample(metric.name + "_bucket", {**labels, "le": bound}, seen)
    metric.add_sample(metric.name + "_sum", labels, histogram.total)
    metric.add_sample(metric.name + "_count", labels, seen)
