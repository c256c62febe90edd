"""Modules at `/metrics`: what they measure themselves, and what the host measures about them."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from corral.controller.modules.late_metrics import LateMetric, still
from corral.controller.modules_on_nodes.node_metrics import HOST_FAMILIES, NodeFigures, NodePart
from corral.modules.capabilities.capability_entries import CapabilityView
from corral.modules.services.module_metrics import Family

PREFIX: Final = "corral_module_"
CAPABILITY_PREFIX: Final = "corral_capability_"


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
        told = self._nodes.named()
        hosts = {name: told.pop(name, []) for name in HOST_FAMILIES}
        for metric in itertools.chain(self._host_rows(), self._leaks(), [self._lost()]):
            late = LateMetric.of(metric)
            for node, families in hosts.get(metric.name.removeprefix(PREFIX), ()):
                late.owe(families, node=node)
            yield late
        yield self._lost_of_nodes()
        yield from self._called()
        yield from self._recorded(told)

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

    def _recorded(self, told: Mapping[str, list[NodePart]]) -> Iterator[Metric]:
        """One family a name: the first module's kind counts, others of that name are left out."""
        own: dict[str, list[tuple[str, Family]]] = collections.defaultdict(list)
        for module, name, family in self._families():
            own[name].append((module, still(family)))
        for name in sorted(own.keys() | told.keys()):
            ours, theirs = own.get(name, []), told.get(name, [])
            _, first = (ours or theirs[0].families)[0]
            metric = LateMetric(PREFIX + name, first.help or f"Recorded by modules as {name}.", first.kind)
            metric.owe(ours)
            for node, families in theirs:
                metric.owe(families, node=node)
            yield metric
