"""The figures as metrics, with the labels `instance` and `group`."""

from __future__ import annotations

from corral.sdk import InstanceHandle, Metrics
from process_observer.contract import ProcessUsage
from process_observer.proc import Usage

_COUNTED = {
    "cpu_seconds": "CPU seconds an instance has used",
    "read_bytes": "Bytes an instance has read from disks",
    "written_bytes": "Bytes an instance has written to disks",
}
_GAUGED = {
    "cpu_percent": "Load of an instance in percent of one core",
    "resident_bytes": "Memory an instance has in use",
    "threads": "Threads of an instance",
    "processes": "Processes of an instance",
}


class Measures:
    """Counters and gauges named `instance_…`; those of an instance go when it ends."""

    def __init__(self, metrics: Metrics) -> None:
        self._counters = {
            field: metrics.counter(f"instance_{field}", help) for field, help in _COUNTED.items()
        }
        self._gauges = {field: metrics.gauge(f"instance_{field}", help) for field, help in _GAUGED.items()}

    def record(self, handle: InstanceHandle, usage: ProcessUsage, before: Usage | None) -> None:
        """What is not known is not shown. Counters grow by what was added since the look before, if any."""
        labels = {"instance": handle.instance_id, "group": handle.group}
        for field, gauge in self._gauges.items():
            value = getattr(usage, field)
            if value is not None:
                gauge.set(value, **labels)
        for field, counter in self._counters.items():
            value, earlier = getattr(usage, field), getattr(before, field, None) or 0
            if value is not None:
                counter.increase(max(0, value - earlier), **labels)

    def forget(self, handle: InstanceHandle) -> None:
        labels = {"instance": handle.instance_id, "group": handle.group}
        for metric in (*self._gauges.values(), *self._counters.values()):
            metric.forget(**labels)
