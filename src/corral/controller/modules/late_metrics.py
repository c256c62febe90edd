"""Metrics whose samples are made by whoever writes them down.

Of a large fleet there are tens of thousands of samples. What they are made of is put together on the loop, in
references; the samples themselves are made in the thread that turns them into text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from corral.modules.services.module_metrics import BUCKETS, Family, HistogramSeries

_BOUNDS: Final = (*(str(bound) for bound in BUCKETS), "+Inf")
_SUFFIXES: Final = {"counter": "_total", "gauge": "", "histogram": ""}


class LateMetric(Metric):
    """A family of which samples are owed until somebody asks for them. What is owed is changed by nobody: see
    `still`."""

    def __init__(self, name: str, documentation: str, kind: str) -> None:
        self._owed: list[tuple[str, Sequence[tuple[str, Family]]]] = []
        super().__init__(name, documentation, kind)

    @classmethod
    def of(cls, metric: Metric) -> LateMetric:
        """One that begins with the samples of another."""
        late = cls(metric.name, metric.documentation, metric.type)
        late.samples = list(metric.samples)
        return late

    def owe(self, families: Sequence[tuple[str, Family]], *, node: str = "") -> None:
        """The series of these, each with its module and their node as labels; one of another kind is left out."""
        self._owed.append((node, families))

    @property
    def samples(self) -> list[Sample]:
        owed, self._owed = self._owed, []
        for node, families in owed:
            for module, family in families:
                if family.kind == self.type:
                    _add(self, {"module": module, "node": node} if node else {"module": module}, family)
        return self._made

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        self._made = samples


def still(family: Family) -> Family:
    """As it is now, whatever is recorded afterwards."""
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
