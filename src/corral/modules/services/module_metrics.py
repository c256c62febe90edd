"""Metrics of modules, held in the host and bounded: names, labels and series of each module.

Series belong to the scope that recorded them and are removed with it. What does not fit is dropped and
counted, never an error: a module must not fail because it measures too much.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.modules.process.process_values import OverLimit
from corral.modules.scope import Scope
from corral.modules.services.host_operations import NoticeHandler
from corral.sdk.protocol.frame_limits import METRIC_SAMPLES
from corral.sdk.protocol.messages import FORGOTTEN, METRIC, MetricSample, MetricSamples

KINDS: Final = ("counter", "gauge", "histogram")
MAX_NAMES: Final = 100
MAX_SERIES: Final = 1000
MAX_LABELS: Final = 8
LABEL_VALUE_MAX: Final = 128
HELP_MAX: Final = 200
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RESERVED: Final = frozenset(
    {
        "cpu_seconds",
        "memory_bytes",
        "threads",
        "processes",
        "calls",
        "call_failures",
        "call_seconds",
        "leaked",
        "classloader_leaked",
        "samples_dropped",
        "phase",
        "node_samples_dropped",
    }
)
"""Names of the host's own metrics about modules, under the same prefix."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SUFFIXES: Final = ("_total", "_bucket", "_sum", "_count", "_created", "_info")
_OURS: Final = frozenset({"module", "node", "le", "quantile"})
_DECODER: Final = msgspec.msgpack.Decoder(MetricSamples)

Labels = tuple[tuple[str, str], ...]


class HistogramSeries:
    """Number of observations below each bound of `BUCKETS`, and of all."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        place = next((n for n, bound in enumerate(BUCKETS) if value <= bound), len(BUCKETS))
        self.counts[place] += 1
        self.total += value


class Family:
    """One metric of one module."""

    def __init__(self, kind: str, help: str) -> None:
        self.kind = kind
        self.help = help
        self.numbers: dict[Labels, float] = {}
        self.histograms: dict[Labels, HistogramSeries] = {}

    def __len__(self) -> int:
        return len(self.numbers) + len(self.histograms)

    def holds(self, labels: Labels) -> bool:
        return labels in self.numbers or labels in self.histograms

    def drop(self, labels: Labels) -> bool:
        """Drop a series; returns whether it existed."""
        had = self.holds(labels)
        self.numbers.pop(labels, None)
        self.histograms.pop(labels, None)
        return had

    def record(self, labels: Labels, value: float) -> None:
        if self.kind == "histogram":
            self.histograms.setdefault(labels, HistogramSeries()).observe(value)
        elif self.kind == "counter":
            self.numbers[labels] = self.numbers.get(labels, 0.0) + value
        else:
            self.numbers[labels] = value


class _Sheet:
    """The series that one scope has recorded."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.families: dict[str, Family] = {}
        self.series = 0


class ModuleMetrics:
    """The series of all modules of a host."""

    def __init__(self) -> None:
        self._sheets: dict[str, _Sheet] = {}
        self.dropped: collections.Counter[tuple[str, str]] = collections.Counter()
        """Number of dropped samples by module and reason."""

    def notices(self) -> dict[str, NoticeHandler]:
        return {METRIC: self.take}

    def take(self, scope: Scope, body: msgspec.Raw) -> None:
        """Take in `MetricSamples`; invalid ones are counted as dropped, and all of them when there are too
        many."""
        try:
            samples = _DECODER.decode(body).samples
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.dropped[scope.module_id, "form"] += 1
            return
        if len(samples) > METRIC_SAMPLES:
            self.dropped[scope.module_id, "samples"] += len(samples)
            raise OverLimit(f"has {len(samples):,} samples, at most {METRIC_SAMPLES:,} are taken at once")
        sheet = self._sheets.get(scope.module_id)
        if sheet is None or sheet.scope is not scope:
            if scope.closed:
                return
            sheet = self._sheets[scope.module_id] = _Sheet(scope)
            scope.own("metrics", "samples", lambda: self._forget(scope))
        for sample in samples:
            why = self._drop(sheet, sample) if sample.kind == FORGOTTEN else self._record(sheet, sample)
            if why:
                self.dropped[scope.module_id, why] += 1

    def _forget(self, scope: Scope) -> None:
        sheet = self._sheets.get(scope.module_id)
        if sheet is not None and sheet.scope is scope:
            del self._sheets[scope.module_id]

    def forget(self, module_id: str) -> None:
        """Forget a removed package, with its counters."""
        self._sheets.pop(module_id, None)
        for key in [key for key in self.dropped if key[0] == module_id]:
            del self.dropped[key]

    def _drop(self, sheet: _Sheet, sample: MetricSample) -> str:
        """Drop a series. A missing one is no error: it may have been over its bounds."""
        family = sheet.families.get(sample.name) or sheet.families.get(sample.name.removesuffix("_total"))
        if family is not None and family.drop(series_labels(sample)):
            sheet.series -= 1
        return ""

    def _record(self, sheet: _Sheet, sample: MetricSample) -> str:
        name = sample.name.removesuffix("_total") if sample.kind == "counter" else sample.name
        family = sheet.families.get(name)
        why = sample_problem(name, sample) or ("kind" if family and family.kind != sample.kind else "")
        if why:
            return why
        labels = series_labels(sample)
        if family is None:
            if len(sheet.families) >= MAX_NAMES:
                return "names"
            family = Family(sample.kind, sample.help[:HELP_MAX])
        if not family.holds(labels):
            if sheet.series >= MAX_SERIES:
                return "series"
            sheet.series += 1
        sheet.families[name] = family
        family.record(labels, sample.value)
        return ""

    def families(self) -> Iterator[tuple[str, str, Family]]:
        """Module, name and family of all metrics; the modules of a name are sorted."""
        rows = [
            (name, module, family)
            for module, sheet in self._sheets.items()
            for name, family in sheet.families.items()
        ]
        for name, module, family in sorted(rows, key=lambda row: row[:2]):
            yield module, name, family


def series_labels(sample: MetricSample) -> Labels:
    """Labels of a sample, sorted and cut to length: they identify the series."""
    return tuple(sorted((key, value[:LABEL_VALUE_MAX]) for key, value in sample.labels.items()))


def sample_problem(name: str, sample: MetricSample) -> str:
    """Why a sample of this name is refused, in one word; empty when it is not."""
    if sample.kind not in KINDS:
        return "kind"
    base = next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)
    if not _NAME.fullmatch(name) or base in RESERVED or base != name:
        return "name"
    if len(sample.labels) > MAX_LABELS or any(
        key in _OURS or not _LABEL.fullmatch(key) for key in sample.labels
    ):
        return "labels"
    if not math.isfinite(sample.value) or (sample.kind == "counter" and sample.value < 0):
        return "value"
    return ""
