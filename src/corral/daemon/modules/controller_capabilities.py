"""Capabilities of the controller, for modules of this node (`from: controller`).

The last list of offers is kept on the node's disk (`OfferFile`): modules that need a capability start without
a connection to the controller, too.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply
from corral.daemon.node.durable_files import store
from corral.domain.modules.capability_graph import Provided
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.capabilities.capability_calls import LONGEST_CALL, seconds_of, unavailable
from corral.modules.scope import Scope
from corral.sdk.protocol.frame_limits import CAPABILITY_BYTES
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy, new_id
from corral.system.files import make_directory, read_versioned
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import CapabilityCall, CapabilityResult

MOST_CALLS: Final = 64
"""Most calls of all modules of this node that the controller has not answered."""
ARGUMENT_BYTES: Final = CAPABILITY_BYTES
_PATIENCE: Final = LONGEST_CALL + 1.0
"""Seconds for a call whose deadline the controller chooses: its answer comes before this timeout."""
_LATER: Final = frozenset({429, 503, 504})
_log = structlog.get_logger("corral.daemon.modules")

_Answer = asyncio.Future[CapabilityResult]


class ControllerCapabilities:
    """`RemoteCapabilities` over the link. Offers outlive the connection and the daemon; calls do not."""

    def __init__(
        self,
        *,
        path: pathlib.Path,
        send: Callable[[DaemonMessage], bool],
        entropy: Entropy,
    ) -> None:
        self._memory = OfferFile(path)
        self._send = send
        self._entropy = entropy
        self._reachable = False
        self._changed: Callable[[set[str]], None] = lambda _: None
        self._calls: dict[str, _Answer] = {}
        self.handlers: dict[str, Order] = {
            "capability_offers": self._offered,
            "capability_result": self._answered,
        }

    async def close(self) -> None:
        """Fail the waiting calls and write the last offers to disk."""
        self.on_disconnected()
        await self._memory.close()

    # --- offers ---------------------------------------------------------------------------------
    def offers(self) -> Mapping[str, Provided]:
        return {id: Provided(offer.version, offer.provider) for id, offer in self._memory.offers.items()}

    def deprecated(self, id: str) -> bool:
        offer = self._memory.offers.get(id)
        return offer is not None and offer.deprecated

    @property
    def reachable(self) -> bool:
        return self._reachable

    def on_change(self, changed: Callable[[set[str]], None]) -> None:
        self._changed = changed

    def _offered(self, _: Reply, message: ControllerMessage) -> None:
        if not self._reachable:
            return  # from a connection that is over
        before = self._memory.offers
        now = {
            offer.capability_id: Offer(
                version=offer.version, provider=offer.provider, deprecated=offer.deprecated
            )
            for offer in message.capability_offers.offers
        }
        changed = {id for id in before.keys() | now.keys() if before.get(id) != now.get(id)}
        if changed:
            self._memory.replace(now)
            self._changed(changed)

    # --- the link -------------------------------------------------------------------------------
    def on_connected(self, connection: LinkConnection) -> None:
        self._reach(connection.supports.modules)

    def on_disconnected(self) -> None:
        """Fail the calls under way: their answers would have come over the old stream. Idempotent."""
        self._reach(False)
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(_ConnectionLost())

    def _reach(self, reachable: bool) -> None:
        if reachable is not self._reachable:
            self._reachable = reachable
            if self._memory.offers:
                self._changed(set(self._memory.offers))

    # --- calls ----------------------------------------------------------------------------------
    async def call(self, consumer: Scope, request: CapabilityRequest) -> CapabilityAnswer:
        """MODULE_BUSY with too many under way, BODY_TOO_LARGE for arguments that are too large for a
        frame."""
        self._check(request)
        patience = seconds_of(request.deadline_ms, default=0) or _PATIENCE
        call_id = new_id("call", self._entropy)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        try:
            if not self._send(DaemonMessage(capability_call=_frame(call_id, consumer, request))):
                raise unavailable(request.capability, "the controller is away")
            async with asyncio.timeout(patience):
                result = await answer
        except TimeoutError:
            raise Retryable(
                Code.MODULE_TIMEOUT,
                f"'{request.capability}.{request.method}' took longer than {patience:g} s",
            ) from None
        except _ConnectionLost:
            raise unavailable(request.capability, "the controller went away during the call") from None
        finally:
            self._calls.pop(call_id, None)
        return _value(request.capability, result)

    def _check(self, request: CapabilityRequest) -> None:
        if request.capability not in self._memory.offers:
            raise unavailable(request.capability, "no active module of the controller provides it")
        if not self._reachable:
            raise unavailable(request.capability, "the controller is away")
        size = len(bytes(request.arguments))
        if size > ARGUMENT_BYTES:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"the arguments of '{request.capability}.{request.method}' have {size} bytes,"
                f" at most {ARGUMENT_BYTES} are taken",
                hint="ask in smaller pieces",
            )
        if len(self._calls) >= MOST_CALLS:
            raise Retryable(
                Code.MODULE_BUSY,
                f"the modules of this node wait for {len(self._calls)} answers of the controller already",
                hint="try again in a moment",
                retry_after=1.0,
            )

    def _answered(self, _: Reply, message: ControllerMessage) -> None:
        result = message.capability_result
        answer = self._calls.pop(result.call_id, None)
        if answer is None or answer.done():
            _log.debug("capability_result.skipped", call=result.call_id)
            return
        answer.set_result(result)


class _ConnectionLost(Exception):
    """Placed as the result of a call whose connection was lost."""


def _frame(call_id: str, consumer: Scope, request: CapabilityRequest) -> CapabilityCall:
    return CapabilityCall(
        call_id=call_id,
        capability_id=request.capability,
        method=request.method,
        arguments_msgpack=bytes(request.arguments),
        deadline_ms=round(seconds_of(request.deadline_ms, default=0) * 1000),
        module_id=consumer.module_id,
    )


def _value(capability: str, result: CapabilityResult) -> CapabilityAnswer:
    if result.error_code:
        raise _error(capability, result)
    return CapabilityAnswer(value=msgspec.Raw(result.result_msgpack or b"\xc0"))


def _error(capability: str, result: CapabilityResult) -> CorralError:
    """The error as the controller's registry raised it."""
    code = Code.__members__.get(result.error_code)
    if code is None:  # a newer controller may send other codes
        return Rejected(Code.MODULE_FAILED, f"'{capability}': {result.error_code}: {result.error_message}")
    kind = Retryable if code.status in _LATER else Rejected
    return kind(code, result.error_message)


_FORMAT: Final = "corral-offers"
_VERSION: Final = 1


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    provider: str
    deprecated: bool = False


class _StoredOffers(msgspec.Struct, frozen=True, kw_only=True):
    offers: dict[str, Offer] = {}


class OfferFile:
    """`offers` is always the latest list; a task of its own writes the file. After a write error it is
    written with the next change: at worst a module waits for the controller at boot."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.offers: dict[str, Offer] = self._load()
        self._written = self.offers
        self._tasks = Tasks()

    def _load(self) -> dict[str, Offer]:
        try:
            found = read_versioned(self._path, _StoredOffers, name=_FORMAT, version=_VERSION)
        except (CorralError, OSError) as error:
            _log.warning("capability_offers.lost", path=str(self._path), reason=str(error))
            return {}
        return found.offers if found else {}

    def replace(self, offers: dict[str, Offer]) -> None:
        self.offers = offers
        if not self._tasks:
            self._tasks.spawn(self._write(), name="modules/offers")

    async def _write(self) -> None:
        while self._written is not self.offers:
            taken = self.offers
            try:
                await asyncio.to_thread(self._store, taken)
            except (CorralError, OSError) as error:
                _log.warning("capability_offers_write.failed", reason=str(error))
                return
            self._written = taken

    def _store(self, offers: dict[str, Offer]) -> None:
        make_directory(self._path.parent)
        store(self._path, _StoredOffers(offers=offers), name=_FORMAT, version=_VERSION)

    async def close(self) -> None:
        """Finish the write that is under way."""
        try:
            await self._tasks.wait()
        finally:
            await self._tasks.close()
