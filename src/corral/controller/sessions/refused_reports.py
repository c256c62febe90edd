"""Counting what nodes said about things that are not theirs: a figure for each, and a line a minute."""

from __future__ import annotations

import collections
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from corral.domain.ids import NodeId
from corral.system.clock import Clock

_SECONDS: Final = 60.0
_SHOWN: Final = 80
_log = structlog.get_logger("corral.controller.reports")


class RefusedReports:
    """Of one term."""

    def __init__(self, *, metrics: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._counter = Counter(
            "corral_node_reports_refused",
            "Reports of nodes about instances that are not theirs.",
            ["node", "kind"],
            registry=metrics,
        )
        self._untold: dict[NodeId, collections.Counter[str]] = {}
        self._told_at: dict[NodeId, float] = {}

    def forget_metrics(self, metrics: CollectorRegistry) -> None:
        """A term's figures end with the term."""
        metrics.unregister(self._counter)

    def count(self, node_id: NodeId, kind: str, *, subject: str = "", number: int = 1) -> None:
        """So many of a kind; `subject` is one that they were about, where that is known."""
        self._counter.labels(node=node_id, kind=kind).inc(number)
        untold = self._untold.setdefault(node_id, collections.Counter())
        untold[kind] += number
        now = self._clock.monotonic()
        if now - self._told_at.get(node_id, -_SECONDS) >= _SECONDS:
            self._told_at[node_id] = now
            del self._untold[node_id]
            _log.warning("reports.refused", node=node_id, subject=subject[:_SHOWN], **untold)
