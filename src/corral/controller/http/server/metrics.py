"""Metrics of the API, and the registry that the other parts of the controller add their metrics to."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from corral.controller.events.hub import EventHub
from corral.controller.http.server.open_connections import Cut, OpenConnections

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Players = tuple[str, str, int]
"""Group, instance, how many."""

_STATUSES: Final = frozenset(status.value for status in http.HTTPStatus) | {499}

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()


class HttpMetrics:
    """Metrics of the API. Every name in `registry` begins with `corral_`."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry(auto_describe=True)
        self._requests = Counter(
            "corral_http_requests", "Answers given.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "corral_http_request_seconds",
            "Time to answer, streams excluded.",
            ["method", "route"],
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._streams = Gauge(
            "corral_sse_clients", "Open event and log streams.", ["route"], registry=self.registry
        )
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._timers: dict[tuple[str, str], Histogram] = {}
        self._looks: list[Callable[[], Awaitable[None]]] = []

    def answered(self, *, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count an answer; `seconds` is None for a stream, whose duration is chosen by the caller. A status
        that no standard knows is counted with its hundred: modules may answer with any."""
        status = status if status in _STATUSES else status - status % 100
        counter = self._counters.get((method, route, status))
        if counter is None:  # resolving labels costs more than counting
            counter = self._requests.labels(method, route, str(status))
            self._counters[method, route, status] = counter
        counter.inc()
        if seconds is None:
            return
        timer = self._timers.get((method, route))
        if timer is None:
            timer = self._timers[method, route] = self._seconds.labels(method, route)
        timer.observe(seconds)

    def streams(self, route: str) -> Gauge:
        return self._streams.labels(route)

    def watch_hub(self, hub: Callable[[], EventHub | None]) -> None:
        """Show what the present term's hub has published."""
        self.registry.register(_HubCollector(hub))

    def watch_connections(self, connections: OpenConnections) -> None:
        """Show how many there are, and how many were cut and why."""
        self.registry.register(_ConnectionsCollector(connections))

    def watch_players(self, players: Callable[[], Iterable[Players]]) -> None:
        """Show the number of players of the instances of the present term that have reported it."""
        self.registry.register(_PlayersCollector(players))

    def watch_lag(self, lag: Callable[[], float]) -> None:
        shown = Gauge("corral_loop_lag_seconds", "Longest delay of the loop.", registry=self.registry)
        shown.set_function(lag)

    def before(self, look: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call `look` before metrics are shown; returns a function that undoes this."""
        self._looks.append(look)
        return lambda: self._looks.remove(look)

    async def exposition(self) -> bytes:
        """Collected here, where nothing changes meanwhile; made into text by a thread: of a large fleet there
        are a hundred thousand lines."""
        for look in list(self._looks):
            await look()
        return await asyncio.to_thread(generate_latest, _Collected(list(self.registry.collect())))


class _Collected(Collector):
    """The samples of a registry, to be rendered."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class _PlayersCollector(Collector):
    def __init__(self, players: Callable[[], Iterable[Players]]) -> None:
        self._players = players

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = self._family()
        for group, instance, count in self._players():
            family.add_metric([group, instance], count)
        return [family]

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "corral_instance_players",
            "Players of an instance that reports them.",
            labels=["group", "instance"],
        )


class _ConnectionsCollector(Collector):
    def __init__(self, connections: OpenConnections) -> None:
        self._connections = connections

    def collect(self) -> Iterable[Metric]:
        there = GaugeMetricFamily("corral_http_connections", "Open connections to the API.")
        there.add_metric([], len(self._connections))
        gone = CounterMetricFamily(
            "corral_http_connections_cut", "Connections that were cut, and why.", labels=["reason"]
        )
        for reason in Cut:
            gone.add_metric([reason.value], self._connections.cut[reason])
        return [there, gone]


class _HubCollector(Collector):
    def __init__(self, hub: Callable[[], EventHub | None]) -> None:
        self._hub = hub

    def describe(self) -> Iterable[CounterMetricFamily]:
        return self._families()

    def collect(self) -> Iterable[CounterMetricFamily]:
        published, skipped = families = self._families()
        hub = self._hub()
        if hub is not None:
            for type, count in sorted(hub.published.items()):
                published.add_metric([type.value], count)
            skipped.add_metric([], hub.skipped)
        return families

    @staticmethod
    def _families() -> tuple[CounterMetricFamily, CounterMetricFamily]:
        return (
            CounterMetricFamily(
                "corral_events_published", "Events published by this leader.", labels=["type"]
            ),
            CounterMetricFamily(
                "corral_events_skipped", "Times that a reader was not given events that cannot be read."
            ),
        )
