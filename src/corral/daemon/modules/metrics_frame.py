"""What modules of a node measured as one frame, bounded and fair: none crowds out the others."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from corral.modules.lifecycle.host_metrics import HostMetric
from corral.modules.services.module_metrics import Family
from corral.wire.v1.module_pb2 import ModuleMetricFamily, ModuleMetrics, ModuleMetricSample

FRAME_BYTES: Final = 512 * 1024
DROPPED: Final = "samples_dropped"
CUT: Final = "frame"
"""Why samples were dropped that did not fit."""
_DROPPED_HELP: Final = "Samples of modules that were refused."
_OVERHEAD: Final = 8
"""Tag and length of a family or a sample within what holds it, at most."""
_CUT_BYTES: Final = 200
"""What it takes to say that some of a module were cut, at most."""


def metrics_frame(
    *,
    figures: Iterable[HostMetric],
    families: Iterable[tuple[str, str, Family]],
    dropped: Mapping[tuple[str, str], int],
    limit: int = FRAME_BYTES,
) -> ModuleMetrics:
    """The host's figures are always in it; of the rest each module has its share of what is left, and what
    does not fit is counted as dropped."""
    told = [*_figures(figures), *_lost(dropped)]
    recorded: dict[str, list[ModuleMetricFamily]] = {}
    for module, name, family in families:
        recorded.setdefault(module, []).append(_family(module, name, family))
    left = limit - sum(family.ByteSize() + _OVERHEAD for family in told)
    kept, cut = _shared(recorded, left)
    return ModuleMetrics(families=[*told, *kept, *cut])


def _figures(figures: Iterable[HostMetric]) -> Iterator[ModuleMetricFamily]:
    for name, help, counts, values in figures:
        for module, value in values:
            yield _one(module, name, "counter" if counts else "gauge", help, {}, value)


def _lost(dropped: Mapping[tuple[str, str], int]) -> Iterator[ModuleMetricFamily]:
    for (module, why), count in sorted(dropped.items()):
        yield _one(module, DROPPED, "counter", _DROPPED_HELP, {"why": why}, count)


def _one(
    module: str, name: str, kind: str, help: str, labels: dict[str, str], value: float
) -> ModuleMetricFamily:
    sample = ModuleMetricSample(labels=labels, value=value)
    return ModuleMetricFamily(module_id=module, name=name, kind=kind, help=help, samples=[sample])


def _family(module: str, name: str, family: Family) -> ModuleMetricFamily:
    numbers = [
        ModuleMetricSample(labels=dict(labels), value=value) for labels, value in family.numbers.items()
    ]
    histograms = [
        ModuleMetricSample(labels=dict(labels), value=histogram.total, buckets=histogram.counts)
        for labels, histogram in family.histograms.items()
    ]
    return ModuleMetricFamily(
        module_id=module, name=name, kind=family.kind, help=family.help, samples=[*numbers, *histograms]
    )


def _shared(
    recorded: Mapping[str, list[ModuleMetricFamily]], left: int
) -> tuple[list[ModuleMetricFamily], list[ModuleMetricFamily]]:
    """What is sent, and how many samples of whom are not. The small ones first: what they leave of their
    share is there for the large ones."""
    sizes = {module: sum(f.ByteSize() + _OVERHEAD for f in own) for module, own in recorded.items()}
    if sum(sizes.values()) > left:
        left -= len(sizes) * _CUT_BYTES
    kept: list[ModuleMetricFamily] = []
    lost: collections.Counter[str] = collections.Counter()
    for number, module in enumerate(sorted(sizes, key=lambda module: (sizes[module], module))):
        share = left // (len(sizes) - number)
        for family in recorded[module]:
            cut = _trim(family, share)
            size = family.ByteSize() + _OVERHEAD if family.samples else 0
            share -= size
            left -= size
            if cut:
                lost[module] += cut
            if family.samples:
                kept.append(family)
    return kept, list(_lost({(module, CUT): count for module, count in lost.items()}))


def _trim(family: ModuleMetricFamily, room: int) -> int:
    """Take away the last samples until the family fits; how many that were."""
    if family.ByteSize() + _OVERHEAD <= room:
        return 0
    samples = list(family.samples)
    del family.samples[:]
    room -= family.ByteSize() + _OVERHEAD
    fit = 0
    for sample in samples:
        room -= sample.ByteSize() + _OVERHEAD
        if room < 0:
            break
        fit += 1
    family.samples.extend(samples[:fit])
    return len(samples) - fit
