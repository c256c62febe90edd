"""Metrics of a module at the host's `/metrics`, as `corral_module_<name>{module="ID"}`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from corral.sdk.protocol.frame_limits import METRIC_SAMPLES, limit_of
from corral.sdk.protocol.frames import encode_body
from corral.sdk.protocol.messages import FORGOTTEN, METRIC, MetricSample, MetricSamples
from corral.sdk.runner_port import HostLink

_EVERY: Final = 0.2
"""Seconds between two messages: increments of the meantime are summed up."""
_MAX_PENDING: Final = 1000
_PORTION_BYTES: Final = limit_of(METRIC).size - 64
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class _Metric:
    def __init__(self, owner: Metrics, name: str, help: str) -> None:
        self._owner = owner
        self.name = name
        self._help = help

    def _record(self, kind: str, value: float, labels: dict[str, str]) -> None:
        named = {name: _text(value) for name, value in labels.items()}
        sample = MetricSample(name=self.name, kind=kind, value=float(value), labels=named, help=self._help)
        self._owner._record(sample)

    def forget(self, **labels: str) -> None:
        """Remove the series with exactly these labels: its subject is gone.

        ```python
        ctx.metrics.gauge("players").forget(map="desert")
        ```
        """
        self._record(FORGOTTEN, 0.0, labels)


class Counter(_Metric):
    """A value that only grows.

    ```python
    ctx.metrics.counter("rounds", "Rounds played").increase(map="desert")
    ```
    """

    def increase(self, by: float = 1, /, **labels: str) -> None:
        """Raises ValueError for a negative number."""
        if by < 0:
            raise ValueError(f"the counter '{self.name}' cannot go down by {-by}")
        self._record("counter", by, labels)


class Gauge(_Metric):
    """A value that is set.

    ```python
    ctx.metrics.gauge("players").set(12, map="desert")
    ```
    """

    def set(self, value: float, /, **labels: str) -> None:
        self._record("gauge", value, labels)


class Histogram(_Metric):
    """The distribution of observed values.

    ```python
    ctx.metrics.histogram("round_seconds").observe(312.5)
    ```
    """

    def observe(self, value: float, /, **labels: str) -> None:
        self._record("histogram", value, labels)


class Metrics:
    """`ctx.metrics`. Usable from any thread, and cheap: records of a short time are sent in one message.

    ```python
    rounds = ctx.metrics.counter("rounds", "Rounds played")
    rounds.increase()
    ```
    """

    def __init__(self, link: HostLink, later: Callable[[float, Callable[[], None]], None]) -> None:
        """`later` calls a function after so many seconds; it may be called from any thread."""
        self._link = link
        self._later = later
        self._lock = threading.RLock()
        self._totals: dict[_Key, MetricSample] = {}
        self._observed: list[MetricSample] = []
        self._awaited = False

    def counter(self, name: str, help: str = "") -> Counter:
        return Counter(self, name, help)

    def gauge(self, name: str, help: str = "") -> Gauge:
        return Gauge(self, name, help)

    def histogram(self, name: str, help: str = "") -> Histogram:
        return Histogram(self, name, help)

    def _record(self, sample: MetricSample) -> None:
        with self._lock:
            if sample.kind == "histogram":
                self._observed.append(sample)
            else:
                labels = tuple(sorted(sample.labels.items()))
                key = (sample.kind, sample.name, labels)
                if sample.kind == FORGOTTEN:
                    self._drop_pending(sample.name, labels)
                before = self._totals.get(key)
                if before is not None and sample.kind == "counter":
                    sample = MetricSample(
                        name=sample.name,
                        kind=sample.kind,
                        value=before.value + sample.value,
                        labels=sample.labels,
                        help=sample.help,
                    )
                self._totals[key] = sample
            full = len(self._totals) + len(self._observed) >= _MAX_PENDING
            due, self._awaited = not self._awaited, True
        if full:
            self._flush()
        elif due:
            self._later(_EVERY, self._flush)

    def _drop_pending(self, name: str, labels: tuple[tuple[str, str], ...]) -> None:
        """Drop pending records of a removed series, so that they are not sent after the removal."""
        for kind in ("counter", "gauge"):
            self._totals.pop((kind, name, labels), None)
        self._observed = [
            one for one in self._observed if (one.name, tuple(sorted(one.labels.items()))) != (name, labels)
        ]

    def _flush(self) -> None:
        """Send what is pending."""
        with self._lock:
            samples = (*self._totals.values(), *self._observed)
            self._totals.clear()
            self._observed.clear()
            self._awaited = False
        for portion in _portions(samples):
            self._link.notify(METRIC, MetricSamples(samples=portion))


def _portions(samples: Sequence[MetricSample]) -> Iterator[tuple[MetricSample, ...]]:
    """Portions of at most as many samples as the host accepts."""
    portion: list[MetricSample] = []
    size = 0
    for sample in samples:
        more = len(encode_body(sample))
        if portion and (size + more > _PORTION_BYTES or len(portion) == METRIC_SAMPLES):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(sample)
        size += more
    if portion:
        yield tuple(portion)


def _text(value: object) -> str:
    """A label's value as text. A number is a common mistake; a value that cannot be encoded would cost the
    whole message."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
