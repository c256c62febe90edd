"""The node's side of the bridge: with modules and a session that the test plays, or with real ones."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import pathlib
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import DaemonLink
from corral.daemon.link.spool import Spool
from corral.daemon.modules.controller_capabilities import ControllerCapabilities
from corral.daemon.modules.metrics_sender import MetricsSender
from corral.daemon.modules.node_events import NodeEvents
from corral.daemon.modules.subscriptions import NodeEventRing
from corral.daemon.node.known_controllers import KnownControllers
from corral.domain.events import EventType
from corral.domain.field_classes.event_data import NEVER_ON_NODES
from corral.domain.modules.manifest import (
    Backends,
    CapabilitiesPart,
    EventsPart,
    HostBackend,
    Manifest,
    ModuleHost,
    Requirement,
    Source,
)
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.restart_backoff import RestartBackoff
from corral.modules.process import ProcessPool
from corral.modules.process.call_failures import CallOverrun
from corral.modules.process.circuit_breaker import Breaker, CallCounts
from corral.modules.scope import Scope
from corral.modules.services.event_rules import MAX_NODE_TYPES
from corral.modules.services.host_operations import OperationTable
from corral.modules.services.module_metrics import ModuleMetrics
from corral.sdk.protocol.messages import (
    DELIVER,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    EventBody,
    Nothing,
    Publish,
    Subscribe,
    Unsubscribe,
)
from corral.system.clock import SystemClock
from corral.system.controller_config import ModulesSection
from corral.system.entropy import SystemEntropy
from corral.testing.cluster import daemon_config
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire import features
from corral.wire.features import support_of
from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import EventCursor, ModuleEvent
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck, NodeStatus, SpoolAck

Answering = Callable[[str, Any], Awaitable[object]]


# --- modules that the test plays --------------------------------------------------------------------------
class PlayedProcess:
    """Answers what it is told to."""

    def __init__(self, module_id: str) -> None:
        self.module_id = module_id
        self.pid = 0
        self.calls: list[Any] = []
        self.answering: Answering | None = None

    async def call(self, method: str, body: Any, *, answer: type[Any], deadline: float) -> Any:
        assert method == DELIVER
        self.calls.append(body)
        if self.answering is None:
            return Nothing()
        try:
            async with asyncio.timeout(deadline):
                return await self.answering(method, body)
        except TimeoutError:
            raise CallOverrun(self.module_id, method, deadline) from None

    @property
    def events(self) -> list[EventBody]:
        return [event for body in self.calls for event in body.events]

    @property
    def subjects(self) -> list[str]:
        return [event.subject for event in self.events]


def played(
    module_id: str = "played", *, serving: bool = True, events: EventsPart | None = None
) -> tuple[Scope, PlayedProcess]:
    scope = Scope(
        module_id=module_id,
        version="1.0.0",
        manifest=node_manifest(module_id, events=events),
        host=ModuleHost.DAEMON,
        generation=1,
        config={},
        clock=SystemClock(),
        breaker=Breaker(lambda what: None),
        counts=CallCounts(),
    )
    process = PlayedProcess(module_id)
    scope.attach(process)  # type: ignore[arg-type]  # it only calls
    if serving:
        scope.serve()
    return scope, process


LISTED: Final = (
    *sorted(type.value for type in EventType if type not in NEVER_ON_NODES),
    *("shop/SOLD", "speaker/SCORE", "speaker/OTHER", "echo/ASKED"),
    *(f"speaker/T{number}" for number in range(MAX_NODE_TYPES + 1)),
)


def _declaring(events: EventsPart) -> EventsPart:
    """All that the tests subscribe to, unless something is listed."""
    return events if events.subscribes else msgspec.structs.replace(events, subscribes=LISTED)


def node_manifest(
    id: str, *, events: EventsPart | None = None, requires: str = "", version_range: str = ">=1.0"
) -> Manifest:
    needed = Requirement(id=requires, version_range=version_range, from_=Source.CONTROLLER)
    return Manifest(
        manifest_version=1,
        id=id,
        version="1.0.0",
        hosts=(ModuleHost.DAEMON,),
        backend=Backends(daemon=HostBackend(entrypoint="demo:Demo", hook_deadline_ms=2000)),
        events=_declaring(events or EventsPart()),
        capabilities=CapabilitiesPart(requires=(needed,) if requires else ()),
    )


# --- a session that the test plays ------------------------------------------------------------------------
class PlayedSession:
    """What a listener sees of a connection."""

    def __init__(self, *known: str, head: int | None = None) -> None:
        self.supports = support_of(known)
        self.ack = HandshakeAck(event_head=None if head is None else cursor(head))
        self.outbox: Outbox[DaemonMessage] = Outbox(bundle=None)


class EventBench:
    """`NodeEvents` over a real spool. `sent` is what went to the controller."""

    def __init__(self, spool: Spool, ring: NodeEventRing | None = None) -> None:
        self.sent: list[DaemonMessage] = []
        self.spool = spool
        self.events = NodeEvents(node_id="n1", spool=spool, send=self._take, clock=SystemClock(), ring=ring)
        self._table = OperationTable(self.events.operations())

    def _take(self, message: DaemonMessage) -> bool:
        self.sent.append(message)
        return True

    def connect(self, *known: str, head: int | None = None) -> None:
        """To a controller with these features, all of them when none is named, whose log ends at `head`."""
        session = PlayedSession(*(known or features.FEATURES), head=head)
        self.events.on_connected(cast("LinkConnection", session))

    def disconnect(self) -> None:
        self.events.on_disconnected()

    def receive(self, frame: ModuleEvent) -> None:
        self.events.handlers["module_event"](self._take, ControllerMessage(module_event=frame))

    def tell(self, *numbers: int, type: str = "GROUP_CREATED", epoch: int = 1) -> None:
        """One event each; its subject is its number."""
        for number in numbers:
            self.receive(event_frame(number, type=type, epoch=epoch))

    async def subscribe(self, scope: Scope, *types: str, number: int = 1, **more: Any) -> None:
        await self._call(scope, SUBSCRIBE, Subscribe(subscription=number, types=types, **more))

    async def unsubscribe(self, scope: Scope, number: int = 1) -> None:
        await self._call(scope, UNSUBSCRIBE, Unsubscribe(subscription=number))

    async def publish(self, scope: Scope, type: str, data: Any = None, *, subject: str = "") -> object:
        return await self._call(scope, PUBLISH, Publish(type=type, subject=subject, data=data or {}))

    async def _call(self, scope: Scope, method: str, body: object) -> object:
        return await self._table.serve(scope, method, msgspec.Raw(msgspec.msgpack.encode(body)))

    def told(self) -> list[tuple[str, list[str], int | None]]:
        """What the controller heard, and forget it: kind, types, and the number after which."""
        heard, self.sent[:] = list(self.sent), []
        return [wish(message) for message in heard]


def wish(message: DaemonMessage) -> tuple[str, list[str], int | None]:
    kind = str(message.WhichOneof("payload")).removeprefix("event_")
    body = getattr(message, f"event_{kind}")
    after = body.after.sequence if kind == "subscribe" and body.HasField("after") else None
    return kind, list(body.event_types), after


def event_frame(
    number: int, *, type: str = "GROUP_CREATED", epoch: int = 1, subject: str = "", data: Any = None
) -> ModuleEvent:
    told = EventBody(
        type=type,
        subject=subject or str(number),
        at=dt.datetime.now(dt.UTC),
        cursor=f"{epoch}-{number}",
        data=data or {},
    )
    return ModuleEvent(
        event_type=type, payload_json=msgspec.json.encode(told), cursor=cursor(number, epoch=epoch)
    )


def cursor(number: int, *, epoch: int = 1) -> EventCursor:
    return EventCursor(epoch=epoch, sequence=number)


@contextlib.asynccontextmanager
async def event_bench(
    directory: pathlib.Path, *, ring: NodeEventRing | None = None, max_bytes: int = 10**7
) -> AsyncIterator[EventBench]:
    spool = Spool.open(directory / "spool", entropy=SystemEntropy(), log_bytes=10**6, max_bytes=max_bytes)
    bench = EventBench(spool, ring)
    try:
        yield bench
    finally:
        await bench.events.close()
        await spool.close()


# --- a real link and real modules -------------------------------------------------------------------------
class BridgeController:
    """A scripted controller that keeps what it hears. `say` goes to the stream of now; `drop` ends it. With
    `acknowledges` off it confirms nothing of the spool."""

    def __init__(self) -> None:
        self.heard: list[DaemonMessage] = []
        self.acknowledges = True
        self.confirmed = 0
        self.contexts: list[Any] = []
        self._dropped = asyncio.Event()
        self._writing = asyncio.Lock()  # gRPC takes one message at a time
        self.peer = ScriptedController(self._script)

    async def _script(self, context: Any) -> None:
        await context.read()
        ack = HandshakeAck(
            session_id=f"s{self.peer.streams}",
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            epoch=1,
            features=[features.BATCH, features.SPOOL, features.DATA, features.MODULES],
            spool_confirmed=self.confirmed,
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        self._dropped = asyncio.Event()
        self.contexts.append(context)
        reading = asyncio.create_task(self._read(context), name="bridge/read")
        ended = asyncio.create_task(self._dropped.wait(), name="bridge/drop")
        try:
            await asyncio.wait([reading, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, ended):
                task.cancel()
            await asyncio.gather(reading, ended, return_exceptions=True)

    async def _read(self, context: Any) -> None:
        while isinstance(frame := await context.read(), DaemonMessage):
            batched = frame.WhichOneof("payload") == "batch"
            for message in frame.batch.messages if batched else [frame]:
                self.heard.append(message)
                if message.spool_sequence and self.acknowledges:
                    self.confirmed = message.spool_sequence
                    ack = SpoolAck(sequence=message.spool_sequence)
                    await self._write(context, spool_ack=ack)

    async def say(self, **payload: Any) -> None:
        await self._write(self.contexts[-1], **payload)

    async def _write(self, context: Any, **payload: Any) -> None:
        async with self._writing:
            await context.write(ControllerMessage(**payload, epoch=1))

    def drop(self) -> None:
        self._dropped.set()

    def of(self, kind: str) -> list[Any]:
        """Everything heard of this kind, in order."""
        return [getattr(m, kind) for m in list(self.heard) if m.WhichOneof("payload") == kind]


class _Facts:
    def handshake(self) -> Handshake:
        return Handshake(version=VERSION, protocol_version=PROTOCOL_VERSION, features=features.FEATURES)

    def status(self) -> NodeStatus:
        return NodeStatus()

    def set_log_level(self, level: str) -> None: ...


class _DirectorySupply:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    async def unpacked(self, sha256: str) -> pathlib.Path:
        return self.root / sha256


class LinkedNode:
    """DaemonLink, spool, engine with module processes, and the bridge between them. `async with`."""

    def __init__(
        self, data: pathlib.Path, controller: BridgeController, *, metrics_every: float = 60
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self._archives = data / "archives"
        clock, entropy = SystemClock(), SystemEntropy()
        self.spool = Spool.open(data / "spool", entropy=entropy, log_bytes=10**6, max_bytes=10**7)
        self.events = NodeEvents(node_id="n1", spool=self.spool, send=self._send, clock=clock)
        self.remote = ControllerCapabilities(
            path=data / "modules" / "offers.json", send=self._send, entropy=entropy
        )
        self.metrics = ModuleMetrics()
        self.house = ProcessPool(directory=data / "house")
        self.book = MemoryPackageStore()
        self.engine = ModuleEngine(
            host=ModuleHost.DAEMON,
            store=self.book,
            spawner=self.house,
            supply=_DirectorySupply(self._archives),
            operations=self.events.operations(),
            notices=self.metrics.notices(),
            config=ModulesSection(leak_grace_seconds=2),
            clock=clock,
            pace=RestartBackoff(restarts=(0.01, 0.02), retry=0.01),
            node_id="n1",
            remote=self.remote,
        )
        shipping = MetricsSender(metrics=self.metrics, engine=self.engine, every=metrics_every)
        self.link = DaemonLink(
            data=data,
            identity=controller.peer.enrol(data, "n1"),
            memory=KnownControllers(data, [controller.peer.address]),
            spool=self.spool,
            host=_Facts(),
            settings=msgspec.structs.replace(daemon_config(data).link, reconnect_max_seconds=0.05),
            clock=clock,
            entropy=entropy,
            orders={**self.events.handlers, **self.remote.handlers},
            listeners=[self.events, self.remote, shipping],
        )
        self._shipping = shipping
        self._running: asyncio.Task[None] | None = None

    def _send(self, message: DaemonMessage) -> bool:
        return self._running is not None and self.link.send(message)

    async def __aenter__(self) -> LinkedNode:
        await self.house.__aenter__()
        return self

    def dial(self) -> None:
        self._running = asyncio.create_task(self.link.run(), name="bridge/link")

    async def connected(self) -> None:
        if self._running is None:
            self.dial()
        await eventually(lambda: self.link.connected.is_set())

    async def hang_up(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()
        await self._shipping.close()
        await self.engine.close(budget=10)
        await self.events.close()
        await self.remote.close()
        await self.house.__aexit__(None, None, None)
        await self.spool.close()

    def written(self, declared: Manifest, code: str) -> PackageRecord:
        """The package of a module with this code; its class is `Demo`."""
        now = dt.datetime.now(dt.UTC)
        record = PackageRecord(
            id=declared.id,
            version=declared.version,
            sha256=f"{declared.id}-{declared.version}",
            size=1,
            manifest=declared,
            installed_at=now,
            updated_at=now,
        )
        directory = self._archives / record.sha256
        directory.mkdir(parents=True)
        (directory / "demo.py").write_text("from corral.sdk import *\n" + textwrap.dedent(code))
        return record

    async def install(self, declared: Manifest, code: str) -> PackageRecord:
        return await self.engine.install(self.written(declared, code))

    def phase(self, id: str) -> ModulePhase:
        record = self.book.find(id)
        assert record is not None
        return record.phase

    async def until(self, id: str, phase: ModulePhase) -> None:
        await eventually(lambda: self.phase(id) is phase, state=lambda: self.book.find(id))


@contextlib.asynccontextmanager
async def bridge(
    directory: pathlib.Path, **options: Any
) -> AsyncIterator[tuple[LinkedNode, BridgeController]]:
    controller = BridgeController()
    async with controller.peer, LinkedNode(directory / "n1", controller, **options) as node:
        yield node, controller
