"""Metrics sender: sends the metrics of a node's modules to the controller, which shows them with the node's
name.

One frame holds all of them, bounded and shared fairly: no module crowds out the others.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import structlog

from corral.daemon.link.connection import LinkConnection
from corral.modules.lifecycle.engine import HostMetric, ModuleEngine, host_metrics, leak_metric
from corral.modules.services.module_metrics import Family, ModuleMetrics
from corral.system.aio.tasks import Tasks
from corral.wire.v1 import module_pb2 as pb
from corral.wire.v1.link_pb2 import DaemonMessage

EVERY_SECONDS: Final = 5.0
_log = structlog.get_logger("corral.daemon.modules")


class MetricsSender:
    """Sends all metrics every few seconds while there is a session. Only the latest frame counts: one that
    was not sent yet is replaced."""

    def __init__(
        self,
        *,
        metrics: ModuleMetrics,
        engine: ModuleEngine,
        leaked: Callable[[], Mapping[str, int]] = dict,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._metrics = metrics
        self._engine = engine
        self._leaked = leaked
        self._every = every
        self._tasks = Tasks()

    def on_connected(self, connection: LinkConnection) -> None:
        self.on_disconnected()
        if connection.supports.modules:
            self._tasks.spawn(self._ship(connection), name="modules/metrics")

    def on_disconnected(self) -> None:
        self._tasks.cancel()

    async def close(self) -> None:
        """Stop the task; nothing of it runs afterwards."""
        await self._tasks.close()

    async def _ship(self, connection: LinkConnection) -> None:
        sent_before = False
        while True:
            try:
                sent_before = self._send(connection, sent_before=sent_before)
            except Exception as error:  # an error in metrics must not stop the next frame
                _log.error("module_metrics.failed", exc_info=error)
            await asyncio.sleep(self._every)

    def _send(self, connection: LinkConnection, *, sent_before: bool) -> bool:
        """Send a frame; returns whether there was anything. Removed series are reported once, by a frame
        without them."""
        frame = metrics_frame(
            metrics=[*host_metrics(self._engine.all_live()), leak_metric(self._leaked())],
            families=self._metrics.families(),
            dropped=self._metrics.dropped,
        )
        if frame.families or sent_before:
            connection.outbox.replace("module_metrics", DaemonMessage(module_metrics=frame))
        return bool(frame.families)


FRAME_BYTES: Final = 512 * 1024
DROPPED: Final = "samples_dropped"
CUT: Final = "frame"
"""Reason of samples that were dropped because they did not fit into the frame."""
_DROPPED_HELP: Final = "Samples of modules that were refused."
_OVERHEAD: Final = 8
"""Tag and length of an embedded family or sample, at most."""
_CUT_BYTES: Final = 200
"""Bytes to report that samples of a module were dropped, at most."""


def metrics_frame(
    *,
    metrics: Iterable[HostMetric],
    families: Iterable[tuple[str, str, Family]],
    dropped: Mapping[tuple[str, str], int],
    limit: int = FRAME_BYTES,
) -> pb.ModuleMetrics:
    """The frame. The host's own metrics are always in it; each module has its share of the rest, and what
    does not fit is counted as dropped."""
    host_families = [*_host_families(metrics), *_lost(dropped)]
    recorded: dict[str, list[pb.ModuleMetricFamily]] = {}
    for module, name, family in families:
        recorded.setdefault(module, []).append(_family(module, name, family))
    left = limit - sum(family.ByteSize() + _OVERHEAD for family in host_families)
    kept, cut = _shared(recorded, left)
    return pb.ModuleMetrics(families=[*host_families, *kept, *cut])


def _host_families(metrics: Iterable[HostMetric]) -> Iterator[pb.ModuleMetricFamily]:
    for name, help, counts, values in metrics:
        for module, value in values:
            yield _one(module, name, "counter" if counts else "gauge", help, {}, value)


def _lost(dropped: Mapping[tuple[str, str], int]) -> Iterator[pb.ModuleMetricFamily]:
    for (module, why), count in sorted(dropped.items()):
        yield _one(module, DROPPED, "counter", _DROPPED_HELP, {"why": why}, count)


def _one(
    module: str, name: str, kind: str, help: str, labels: dict[str, str], value: float
) -> pb.ModuleMetricFamily:
    sample = pb.ModuleMetricSample(labels=labels, value=value)
    return pb.ModuleMetricFamily(module_id=module, name=name, kind=kind, help=help, samples=[sample])


def _family(module: str, name: str, family: Family) -> pb.ModuleMetricFamily:
    numbers = [
        pb.ModuleMetricSample(labels=dict(labels), value=value) for labels, value in family.numbers.items()
    ]
    histograms = [
        pb.ModuleMetricSample(labels=dict(labels), value=histogram.total, buckets=histogram.counts)
        for labels, histogram in family.histograms.items()
    ]
    return pb.ModuleMetricFamily(
        module_id=module, name=name, kind=family.kind, help=family.help, samples=[*numbers, *histograms]
    )


def _shared(
    recorded: Mapping[str, list[pb.ModuleMetricFamily]], left: int
) -> tuple[list[pb.ModuleMetricFamily], list[pb.ModuleMetricFamily]]:
    """The families to send, and how many samples of which module are left out. Small modules first: what they
    leave of their share is available to the large ones."""
    sizes = {module: sum(f.ByteSize() + _OVERHEAD for f in own) for module, own in recorded.items()}
    if sum(sizes.values()) > left:
        left -= len(sizes) * _CUT_BYTES
    kept: list[pb.ModuleMetricFamily] = []
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


def _trim(family: pb.ModuleMetricFamily, room: int) -> int:
    """Remove the last samples until the family fits; returns how many."""
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
