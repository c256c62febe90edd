"""Capability server: runs calls from modules on nodes against the controller's capabilities.

Calls wait for a slot (`CallSlots`), since a whole fleet may call at once and one node must not take all
slots. `OfferSender` sends every node the list of the controller's capabilities: on connect, and after each
change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from corral.controller.modules_on_nodes.outbox_room import has_room, room
from corral.controller.sessions.node_links import ModuleLink
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import Manifest, ModuleHost, Source
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.capabilities.capability_calls import unavailable
from corral.modules.capabilities.capability_registry import MOST_UNDER_WAY, CapabilityRegistry
from corral.sdk.protocol.frame_limits import CAPABILITY_BYTES
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.module_pb2 import CapabilityCall, CapabilityOffer, CapabilityOffers, CapabilityResult

MOST_OUTSTANDING: Final = 64
VALUE_BYTES: Final = CAPABILITY_BYTES
DEFAULT_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 60.0
_CALL_ID_MAX: Final = 200
_GRACE: Final = 0.1
"""Extra seconds after the deadline, which the registry enforces: for what comes after the call."""
_TEXT: Final = 4000
_NAME: Final = 80
_NO_ARGUMENTS: Final = msgspec.msgpack.encode({})
_ARGUMENTS: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class NodeConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A module on a node, as the consumer of a capability."""

    node_id: NodeId
    manifest: Manifest

    @property
    def name(self) -> str:
        return f"{self.manifest.id}@{self.node_id}"


class CapabilityServer:
    """Calls belong to the session they came by: they are cancelled with it, and a later result is dropped."""

    def __init__(
        self, *, registry: CapabilityRegistry, records: Callable[[str], PackageRecord | None], clock: Clock
    ) -> None:
        self._registry = registry
        self._records = records
        self._clock = clock
        self._slots = CallSlots()
        self._calls: dict[ModuleLink, dict[str, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def called(self, link: ModuleLink, call: CapabilityCall) -> None:
        """Answer the call with one `CapabilityResult`, unless the session is over. A call with the id of one
        that is under way is ignored."""
        if link.over.is_set() or not 0 < len(call.call_id) <= _CALL_ID_MAX:
            return
        id, calls = call.call_id, self._calls.setdefault(link, {})
        if id in calls:
            return
        try:
            if len(calls) >= MOST_OUTSTANDING:
                raise _too_many(link.facts.node_id)
            consumer = NodeConsumer(node_id=link.facts.node_id, manifest=self._manifest(call))
            request = _request(call)
        except CorralError as error:
            _send(link, _failure(id, error))
            return
        name = f"bridge/call/{link.facts.node_id}/{request.capability}"
        task = self._tasks.spawn(self._serve(link, id, consumer, request), name=name)
        calls[id] = task
        task.add_done_callback(lambda _: calls.pop(id, None))

    def _manifest(self, call: CapabilityCall) -> Manifest:
        """Manifest of the calling module. CAPABILITY_UNAVAILABLE unless it requires this capability from the
        controller."""
        record = self._records(call.module_id)
        capability = call.capability_id[:_NAME]
        if record is None or ModuleHost.DAEMON not in record.manifest.hosts:
            raise unavailable(capability, f"there is no module '{call.module_id[:_NAME]}' for nodes")
        needed = record.manifest.capabilities.requires
        if not any(each.id == call.capability_id and each.from_ is Source.CONTROLLER for each in needed):
            raise unavailable(capability, f"module '{record.id}' does not require it with 'from: controller'")
        return record.manifest

    async def _serve(
        self, link: ModuleLink, id: str, consumer: NodeConsumer, request: CapabilityRequest
    ) -> None:
        began = self._clock.monotonic()
        result = await self._result(link, id, consumer, request)
        if result.error_code:
            _log.debug(
                "bridge_call.failed",
                consumer=consumer.name,
                capability=request.capability,
                method=request.method[:_NAME],
                code=result.error_code,
                seconds=round(self._clock.monotonic() - began, 3),
            )
        _send(link, result)

    async def _result(
        self, link: ModuleLink, id: str, consumer: NodeConsumer, request: CapabilityRequest
    ) -> CapabilityResult:
        try:
            async with asyncio.timeout(request.deadline_ms / 1000 + _GRACE):
                answer = await self._answer(link, consumer, request)
                await room(link)
                return _success(id, answer)
        except TimeoutError:
            late = Retryable(Code.MODULE_TIMEOUT, f"'{request.capability}' was not answered in time")
            return _failure(id, late)
        except CorralError as error:
            return _failure(id, error)
        except Exception:
            _log.exception("bridge_call.lost", consumer=consumer.name, capability=request.capability)
            return _failure(id, Retryable(Code.INTERNAL, "the call failed", hint="see the controller's log"))

    async def _answer(
        self, link: ModuleLink, consumer: NodeConsumer, request: CapabilityRequest
    ) -> CapabilityAnswer:
        began = self._clock.monotonic()
        async with self._slots.turn(link, request.capability):
            waited = self._clock.monotonic() - began
            left = max(1, request.deadline_ms - round(waited * 1000))
            return await self._registry.call(consumer, msgspec.structs.replace(request, deadline_ms=left))

    def left(self, link: ModuleLink) -> None:
        """Drop the calls of this session, which is over. Idempotent."""
        for task in self._calls.pop(link, {}).values():
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls at the end of the term: none is under way when this returns. Idempotent."""
        self._calls.clear()
        await self._tasks.close()


def _request(call: CapabilityCall) -> CapabilityRequest:
    """CAPABILITY_TYPE for arguments that are not a map by name: passed on as they are, they would corrupt the
    frame that takes them to the provider."""
    arguments = call.arguments_msgpack or _NO_ARGUMENTS
    if len(arguments) > VALUE_BYTES:
        raise _too_large("the arguments have", len(arguments))
    try:
        _ARGUMENTS.decode(arguments)
    except (ValueError, RecursionError) as error:
        raise Rejected(
            Code.CAPABILITY_TYPE, f"the arguments of a call must be a msgpack map by name: {error}"
        ) from None
    seconds = call.deadline_ms / 1000 if call.deadline_ms > 0 else DEFAULT_SECONDS
    return CapabilityRequest(
        capability=call.capability_id,
        method=call.method,
        arguments=msgspec.Raw(arguments),
        deadline_ms=round(min(seconds, LONGEST_SECONDS) * 1000),
    )


def _success(id: str, answer: CapabilityAnswer) -> CapabilityResult:
    value = bytes(answer.value)
    if len(value) > VALUE_BYTES:
        return _failure(id, _too_large("the answer has", len(value)))
    return CapabilityResult(call_id=id, result_msgpack=value)


def _failure(id: str, error: CorralError) -> CapabilityResult:
    return CapabilityResult(call_id=id, error_code=error.code.name, error_message=str(error)[:_TEXT])


def _send(link: ModuleLink, result: CapabilityResult) -> None:
    """Send the result, but not to a node that does not read: it has given the call up, and an outbox that
    overflows ends its stream."""
    if has_room(link):
        link.send(ControllerMessage(capability_result=result))


def _too_large(what: str, size: int) -> CorralError:
    return Rejected(
        Code.BODY_TOO_LARGE,
        f"{what} {size} bytes, at most {VALUE_BYTES} travel between a node and the controller",
        hint="ask for it in parts",
    )


def _too_many(node_id: NodeId) -> CorralError:
    return Retryable(
        Code.MODULE_BUSY,
        f"node '{node_id}' has {MOST_OUTSTANDING} calls of capabilities under way",
        hint="try again in a moment",
        retry_after=1.0,
    )


OF_ALL_NODES: Final = MOST_UNDER_WAY // 2
"""Concurrent calls of one capability from all nodes; the other half of the slots is for modules on the
controller."""
OF_ONE_SESSION: Final = 8


class CallSlots:
    """Slots of concurrent calls: a call waits first for a slot of its own session, then for one of its
    capability."""

    def __init__(self) -> None:
        self._lines: dict[object, _Line] = {}

    @contextlib.asynccontextmanager
    async def turn(self, session: object, capability: str) -> AsyncIterator[None]:
        """Hold a slot for one call. The wait has no timeout of its own: the caller has a deadline."""
        async with (
            self._in_line((session, capability), OF_ONE_SESSION),
            self._in_line(capability, OF_ALL_NODES),
        ):
            yield

    @contextlib.asynccontextmanager
    async def _in_line(self, key: object, places: int) -> AsyncIterator[None]:
        line = self._lines.setdefault(key, _Line(places))
        line.users += 1
        try:
            async with line.places:
                yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[key]

    def __len__(self) -> int:
        return len(self._lines)


class _Line:
    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0


_KEY: Final = "capabilities"


class OfferSender:
    """Sends the list of capabilities to the nodes. Offers are valid on a node until the next list, so none
    are sent while the registry is not settled: a controller that starts or stops must not stop modules on the
    nodes."""

    def __init__(self, registry: CapabilityRegistry) -> None:
        self._registry = registry
        self._links: dict[ModuleLink, None] = {}
        self._offers: CapabilityOffers | None = None
        registry.on_change(self._changed)

    def joined(self, link: ModuleLink) -> None:
        self._links[link] = None
        if self._registry.settled:
            self._offers = self._offers or offers_of(self._registry)
            _send_offers(link, self._offers)

    def left(self, link: ModuleLink) -> None:
        self._links.pop(link, None)

    def _changed(self) -> None:
        if not self._registry.settled:
            return
        offers = offers_of(self._registry)
        if offers == self._offers:
            return
        self._offers = offers
        for link in self._links:
            _send_offers(link, offers)


def _send_offers(link: ModuleLink, offers: CapabilityOffers) -> None:
    link.outbox.replace(_KEY, ControllerMessage(capability_offers=offers))


def offers_of(registry: CapabilityRegistry) -> CapabilityOffers:
    """All offers, by id. A capability whose provider is being upgraded is still offered."""
    return CapabilityOffers(
        offers=[
            CapabilityOffer(
                capability_id=view.id,
                version=view.version,
                provider=view.provider,
                deprecated=view.deprecated,
            )
            for view in registry.all()
        ]
    )
