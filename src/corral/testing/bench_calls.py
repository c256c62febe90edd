"""How a module on the bench is asked and told: which route is meant, whom an event concerns, what it answered
and what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from corral.modules.services.event_names import EVENTS_MISSED
from corral.sdk.messages import CAPABILITY, FORGOTTEN, MetricSample, RouteDeclaration, Subscribe
from corral.sdk.runner.connection import Connection

T = TypeVar("T")


class BenchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a route answered; a streamed body is whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self, kind: type[T]) -> T:
        return msgspec.json.decode(self.body, type=kind)


class ConsumerLink:
    """The link of another module: its calls go to the one on the bench."""

    def __init__(self, link: Connection) -> None:
        self._link = link

    async def call(self, _method: str, body: object, answer: type[T], *, deadline: float = 30.0) -> T:
        return await self._link.call(CAPABILITY, body, answer, deadline=deadline)

    def notify(self, method: str, body: object) -> None:
        """A consumer says nothing by itself."""


def find_route(
    routes: Iterable[RouteDeclaration], method: str, path: str
) -> tuple[RouteDeclaration, dict[str, str]]:
    """The route and what stands for the names in its path; LookupError when there is none."""
    for route in routes:
        found = re.fullmatch(_pattern(route.path), path)
        if found is not None and route.method == method:
            return route, found.groupdict()
    known = ", ".join(f"{route.method} {route.path}" for route in routes)
    raise LookupError(f"no route {method} {path}; there are: {known or 'none'}")


def _pattern(path: str) -> str:
    return re.sub(
        r"\\\{([a-z0-9_]+)(:path)?\\\}",
        lambda found: f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})",
        re.escape(path),
    )


def is_wanted(subscription: Subscribe, *, type: str, subject: str) -> bool:
    """That events were missed concerns everybody."""
    if type == EVENTS_MISSED:
        return True
    return (not subscription.types or type in subscription.types) and (
        not subscription.subjects or subject in subscription.subjects
    )


def shown_values(samples: Iterable[MetricSample]) -> dict[str, float]:
    """By name: counters of all labels added up, of the others the last."""
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    counters = set()
    for sample in samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        before = series.pop(key, 0.0)
        if sample.kind == "counter":
            counters.add(sample.name)
        if sample.kind != FORGOTTEN:
            series[key] = before + sample.value if sample.kind == "counter" else sample.value
    shown: dict[str, float] = {}
    for (name, _), value in series.items():
        shown[name] = shown.get(name, 0.0) + value if name in counters else value
    return shown
