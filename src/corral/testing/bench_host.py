"""The host of a module on the bench, in memory: it answers the module's calls and records its messages; with
the module's manifest, the route of a request and the subscribers of an event."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from corral.domain.cron import parse_cron
from corral.domain.events import present_name
from corral.domain.field_classes.event_data import EVENT_PERMISSIONS, OPEN_TO_NODES
from corral.domain.modules.manifest import ANY_EVENT, EventsPart, Manifest
from corral.errors import Code, CorralError, Rejected
from corral.modules.manifest.manifest_reader import read_manifest
from corral.modules.services.event_rules import EVENTS_MISSED
from corral.sdk.capabilities import CapabilityBinding
from corral.sdk.contracts import read_contract
from corral.sdk.protocol import messages as m
from corral.sdk.protocol.messages import CAPABILITY, FORGOTTEN, MetricSample, RouteDeclaration, Subscribe
from corral.sdk.runner.connection import Connection
from corral.sdk.runner.failures import CallRefused
from corral.sdk.runner.module_server import Registered
from corral.testing.bench_node import BenchNode
from corral.testing.bench_storage import BenchStorage


class BenchClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self._now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def now(self) -> dt.datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def boottime(self) -> float:
        return self._now.timestamp()

    def move_to(self, moment: dt.datetime) -> None:
        self._now = max(self._now, moment)


class BenchTask:
    """A task of the module, and its next due time."""

    def __init__(self, schedule: m.Schedule, now: dt.datetime) -> None:
        self.schedule = schedule
        self.due = now
        self.runs = 0
        self._advance(now, first=True)

    @property
    def name(self) -> str:
        return self.schedule.name

    def ran(self, now: dt.datetime) -> bool:
        """False: it was to run once."""
        self.runs += 1
        if self.schedule.delay_ms is not None:
            return False
        self._advance(now, first=False)
        return True

    def _advance(self, now: dt.datetime, *, first: bool) -> None:
        if self.schedule.cron:
            following = parse_cron(self.schedule.cron).next_after(now)
            self.due = following or dt.datetime.max.replace(tzinfo=dt.UTC)
            return
        period = self.schedule.every_ms or 0
        wait = (self.schedule.delay_ms or self.schedule.initial_delay_ms) if first else period
        self.due = now + dt.timedelta(milliseconds=wait)


class BenchHost:
    """`serve` and `on_notice` are the host's end of the connection."""

    def __init__(
        self, manifest: Manifest, clock: BenchClock, capabilities: Iterable[CapabilityBinding[Any]]
    ) -> None:
        self._manifest = manifest
        self._clock = clock
        self.storage: BenchStorage | None = None
        self.node: BenchNode | None = None
        """Of a daemon module."""
        self.published: list[m.Publish] = []
        self.logs: list[m.LogLine] = []
        self.samples: list[m.MetricSample] = []
        self.subscriptions: dict[int, m.Subscribe] = {}
        self.tasks: dict[int, BenchTask] = {}
        self.cursor = 0
        self.provided = Registered()
        self.states: dict[str, m.CapabilityState] = {
            required.id: m.CapabilityState(id=required.id, available=False)
            for required in manifest.capabilities.requires
        }
        for binding in capabilities:
            self.provided.bind(binding.id, read_contract(binding.contract), binding.factory())
            self.states[binding.id] = m.CapabilityState(
                id=binding.id, available=True, version="1.0.0", provider="bench"
            )

    async def serve(self, method: str, raw: msgspec.Raw) -> object:
        try:
            if method.startswith((m.DOCUMENTS_PREFIX, m.KEY_VALUE_PREFIX)):
                return await self._store(method, raw)
            if method.startswith(("files.", "processes.")) and self.node is not None:
                return await self.node.serve(method, raw)
            known: dict[str, tuple[type, Callable[[Any], Awaitable[object]]]] = {
                m.SUBSCRIBE: (m.Subscribe, self._subscribe),
                m.UNSUBSCRIBE: (m.Unsubscribe, self._unsubscribe),
                m.PUBLISH: (m.Publish, self._publish),
                m.SCHEDULE: (m.Schedule, self._schedule),
                m.CANCEL_TASK: (m.CancelTask, self._cancel_task),
                m.CALL_CAPABILITY: (m.CapabilityRequest, self._call_capability),
            }
            if method not in known:
                raise Rejected(Code.NOT_FOUND, f"the bench does not know '{method}'")
            body, answer = known[method]
            return await answer(msgspec.msgpack.decode(raw, type=body))
        except CorralError as error:
            raise CallRefused(error.code.name, error.message, error.hint or "") from error

    def on_notice(self, method: str, raw: msgspec.Raw) -> None:
        if method == m.LOG:
            self.logs.append(msgspec.msgpack.decode(raw, type=m.LogLine))
        elif method == m.METRIC:
            self.samples += msgspec.msgpack.decode(raw, type=m.MetricSamples).samples

    def next_cursor(self) -> str:
        self.cursor += 1
        return str(self.cursor)

    def due_by(self, moment: dt.datetime) -> tuple[int, BenchTask] | None:
        """The task that is due first, until then."""
        due = [(number, task) for number, task in self.tasks.items() if task.due <= moment]
        return min(due, key=lambda pair: (pair[1].due, pair[0]), default=None)

    async def _store(self, method: str, raw: msgspec.Raw) -> object:
        if self.storage is None:
            raise Rejected(Code.STORAGE_UNAVAILABLE, "the manifest asks for no storage")
        return await self.storage.serve(method, raw)

    async def _subscribe(self, body: m.Subscribe) -> m.Nothing:
        if self.node is not None and body.durable:
            raise Rejected(Code.NOT_SUPPORTED, "a subscription on a node cannot be durable")
        allowed = self._manifest.events.subscribes
        unlisted = self.node is not None and not allowed
        if unlisted and not (body.types and OPEN_TO_NODES.issuperset(map(present_name, body.types))):
            raise Rejected(Code.FORBIDDEN, "events.subscribes of the manifest lists none of these types")
        for type in body.types:
            if allowed and type not in allowed and ANY_EVENT not in allowed:
                raise Rejected(Code.FORBIDDEN, f"'{type}' is not in events.subscribes of the manifest")
        self.subscriptions[body.subscription] = body
        return m.Nothing()

    async def _unsubscribe(self, body: m.Unsubscribe) -> m.Nothing:
        self.subscriptions.pop(body.subscription, None)
        return m.Nothing()

    async def _publish(self, body: m.Publish) -> m.Published:
        if body.type not in self._manifest.events.publishes:
            raise Rejected(Code.FORBIDDEN, f"'{body.type}' is not in events.publishes of the manifest")
        self.published.append(body)
        return m.Published(cursor="" if self.node is not None else self.next_cursor())

    async def _schedule(self, body: m.Schedule) -> m.Nothing:
        self.tasks[body.task] = BenchTask(body, self._clock.now())
        return m.Nothing()

    async def _cancel_task(self, body: m.CancelTask) -> m.Nothing:
        self.tasks.pop(body.task, None)
        return m.Nothing()

    async def _call_capability(self, body: m.CapabilityRequest) -> m.CapabilityAnswer:
        if body.capability not in self.states or not self.states[body.capability].available:
            raise Rejected(Code.CAPABILITY_UNAVAILABLE, f"nobody provides '{body.capability}'")
        return await self.provided.call(body, _invoke)


async def _invoke(label: str, function: Any, *arguments: object) -> Any:  # noqa: ARG001 - an `Invoke`
    value = function(*arguments)
    return await value if isinstance(value, Awaitable) else value


_BARE: Final[dict[str, Any]] = {"manifestVersion": 1, "id": "bench", "version": "1.0.0"}


def written_manifest(manifest: Mapping[str, Any] | Path | str | None) -> dict[str, Any]:
    """The manifest as an author writes it; a file is read as strictly as a host reads it."""
    if isinstance(manifest, Path | str):
        written: dict[str, Any] = msgspec.to_builtins(
            read_manifest(Path(manifest).read_text(), name=str(manifest))
        )
        return written
    return {**_BARE, **(manifest or {})}


T = TypeVar("T")


class BenchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a route; a streamed body is whole."""

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
        """No-op: a consumer sends no notices."""


def find_route(
    routes: Iterable[RouteDeclaration], method: str, path: str
) -> tuple[RouteDeclaration, dict[str, str]]:
    """The route and the values of the names in its path; LookupError when there is none."""
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


def matches_subscription(
    subscription: Subscribe, *, type: str, subject: str, manifest_events: EventsPart
) -> bool:
    """Whether the module gets the event by this subscription: a type that needs a permission only if its manifest lists
    it. Missed events concern every module."""
    if type == EVENTS_MISSED:
        return True
    if type in EVENT_PERMISSIONS and type not in manifest_events.subscribes:
        return False
    return (not subscription.types or type in subscription.types) and (
        not subscription.subjects or subject in subscription.subjects
    )


def shown_values(samples: Iterable[MetricSample]) -> dict[str, float]:
    """By name: counters summed over all labels, of the others the last value."""
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
