"""What a host measures about the modules it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from corral.modules.lifecycle.engine import LiveModule

HostMetric = tuple[str, str, bool, list[tuple[str, float]]]
"""Name, what it says, whether it only grows, and the value of each module."""


def leak_metric(leaked: Mapping[str, int]) -> HostMetric:
    """How many processes of each module did not end when they were told to."""
    told = "Processes of a module that lingered or had to be killed."
    return "leaked", told, False, [(id, float(count)) for id, count in sorted(leaked.items())]


def host_metrics(live: Mapping[str, LiveModule]) -> Iterator[HostMetric]:
    """Modules without a process are left out."""
    shown = list(live.items())
    samples = [(id, module.sample) for id, module in shown if module.sample is not None]
    yield "cpu_seconds", "Processor time of a module.", True, [(m, s.cpu_seconds) for m, s in samples]
    yield "memory_bytes", "Memory of a module.", False, [(m, float(s.memory_bytes)) for m, s in samples]
    yield "threads", "Threads of a module.", False, [(m, float(s.threads)) for m, s in samples]
    yield "processes", "Processes of a module.", False, [(m, float(s.processes)) for m, s in samples]
    yield "calls", "Calls into a module.", True, [(m, float(c.calls)) for m, c in shown]
    yield "call_failures", "Calls that failed.", True, [(m, float(c.failures)) for m, c in shown]
    yield "call_seconds", "Time spent in calls.", True, [(m, c.seconds) for m, c in shown]
