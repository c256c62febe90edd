"""Module sync: brings the modules of one session's node to the desired set: compare, send the difference,
take in the reports.

The observed set comes from the node's handshake, and afterwards from the orders that were sent and the
reports of their outcome. An order is made from what is desired at the moment it is sent: however long its
archive took to read, no older order follows a newer one.

`SyncProgress` holds in memory, for as long as a session lasts, how far a module is on its way to a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from corral.controller.modules_on_nodes.order_frames import (
    INLINE,
    WHOLE,
    BlobCache,
    control_frame,
    install_frame,
    uninstall_frame,
)
from corral.controller.sessions.node_links import ModuleLink
from corral.domain.ids import NodeId
from corral.domain.modules.convergence import (
    ControlOrder,
    DesiredModule,
    InstallOrder,
    ModuleOrder,
    ObservedModule,
    UninstallOrder,
    applied,
    difference,
    reported,
)
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import NodeModuleState, PackageRecord
from corral.errors import CorralError
from corral.system import log_context
from corral.system.aio.tasks import set_within
from corral.wire.channels import CONTROL_LIMIT
from corral.wire.v1.link_pb2 import ControllerMessage

TOO_LARGE: Final = "too large for this daemon"
"""Progress text of an archive that the daemon can never take: it takes archives in frames only, and this one
fits into none."""
_MEGABYTE: Final = 1000 * 1000


class ModuleProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one module. `text` is shown until the node reports how much it has fetched."""

    text: str
    fetched: int = 0
    size: int = 0

    def __str__(self) -> str:
        if not self.size:
            return self.text
        return f"fetching {_amount(self.fetched)} of {_amount(self.size)} MB"


class SyncProgress:
    """Progress by node and module. An entry is removed when the node reports the module's state."""

    def __init__(self) -> None:
        self._ways: dict[NodeId, dict[str, ModuleProgress]] = {}

    def begun(self, node_id: NodeId, module: str, *, offered: bool) -> None:
        self.set_text(node_id, module, "offered" if offered else "ordered")

    def set_text(self, node_id: NodeId, module: str, word: str) -> None:
        self._ways.setdefault(node_id, {})[module] = ModuleProgress(text=word)

    def fetched(self, node_id: NodeId, module: str, *, fetched: int, size: int) -> None:
        """Record a node's report of fetched bytes; ignored for a module that is not on its way to the
        node."""
        way = self._ways.get(node_id, {}).get(module)
        if way is not None and size > 0:
            known = msgspec.structs.replace(way, fetched=max(0, min(fetched, size)), size=size)
            self._ways[node_id][module] = known

    def arrived(self, node_id: NodeId, module: str) -> None:
        ways = self._ways.get(node_id)
        if ways is not None:
            ways.pop(module, None)

    def left(self, node_id: NodeId) -> None:
        self._ways.pop(node_id, None)

    def text(self, node_id: NodeId, module: str) -> str:
        """Text of the progress; empty when nothing is on its way."""
        way = self._ways.get(node_id, {}).get(module)
        return str(way) if way is not None else ""


def _amount(size: int) -> str:
    """Megabytes; below ten with one digit behind the point."""
    megabytes = size / _MEGABYTE
    return f"{megabytes:.0f}" if megabytes >= 10 else f"{megabytes:.1f}"


_QUEUED: Final = 512 * 1024
"""Bytes waiting to be sent to a node above which nothing is added."""
_FRAME_MAX: Final = CONTROL_LIMIT - 64 * 1024
"""Largest frame, signature and manifest included."""
_LOOK_SECONDS: Final = 0.02
_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class DesiredPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package with a part for nodes, as it is desired on nodes."""

    record: PackageRecord
    desired: DesiredModule


Find = Callable[[str], DesiredPackage | None]
"""Returns the package as it is desired now; None when it shall not be on the node."""


class ModuleSync:
    """Sync of one session. `changed` and `report` return at once; `run` lives as long as the session."""

    def __init__(
        self,
        link: ModuleLink,
        *,
        observed: Mapping[str, ObservedModule],
        find: Find,
        blobs: BlobCache,
        progress: SyncProgress,
    ) -> None:
        self._link = link
        self._node = link.facts.node_id
        self._plain = not link.facts.supports.modules
        self._observed = dict(observed)
        self._named = set(observed)
        self._find = find
        self._blobs = blobs
        self._progress = progress
        self._due: dict[str, None] = {}
        self._failed: set[str] = set()
        self._wake = asyncio.Event()

    def changed(self, ids: Iterable[str]) -> None:
        """Compare these again."""
        self._due.update(dict.fromkeys(ids))
        if self._due:
            self._wake.set()

    def changed_all(self, ids: Iterable[str]) -> None:
        """Compare these again, and all that were ever named in this session."""
        self.changed([*ids, *self._named])

    def knows(self, id: str) -> bool:
        """Was this module ever named in this session?"""
        return id in self._named

    def report(self, state: NodeModuleState) -> None:
        """Take in a node's report of a module."""
        observed = self._observed.get(state.module)
        if observed is not None and (known := reported(observed, state)) != observed:
            self._observed[state.module] = known
            self.changed([state.module])  # a reload that came with a refused archive is still pending

    async def run(self) -> None:
        while not self._link.over.is_set():
            id = await self._next()
            try:
                with log_context.only(self._ids(id)):
                    await self._converge(id)
            except CorralError as error:
                _log.warning("module_send.failed", node=self._node, module=id, reason=str(error))
                self._fail(id)
            except Exception:
                _log.exception("module_send.failed", node=self._node, module=id)
                self._fail(id)

    def _ids(self, id: str) -> dict[str, str]:
        """Ids for log records here and on the node, among them that of the request that changed the module
        last."""
        part = self._find(id)
        return {"node": self._node, "module": id, "request": part.record.request if part else ""}

    def _fail(self, id: str) -> None:
        self._due.pop(id, None)
        self._failed.add(id)

    async def _next(self) -> str:
        """The next module to compare; one that could not be sent is retried after a while."""
        while not self._due:
            self._wake.clear()
            await set_within(self._wake, _RETRY_SECONDS if self._failed else None)
            self._due.update(dict.fromkeys(self._failed))
            self._failed.clear()
        return next(iter(self._due))

    async def _converge(self, id: str) -> None:
        """Send the difference, if there is any. The module stays due when something changed meanwhile."""
        part = self._find(id)
        orders = self._orders(id, part)
        frames = [await self._frame(order, part) for order in orders]
        while orders and self._link.outbox.waiting_bytes > _QUEUED and not self._link.over.is_set():
            await asyncio.sleep(_LOOK_SECONDS)  # an outbox has no event for having drained
        present = self._find(id)
        if _desired(present) != _desired(part) or self._orders(id, present) != orders:
            return
        for frame in frames:
            if frame is not None and not self._link.send(frame):
                await self._link.over.wait()  # nothing more can be sent in this session
                return
        self._due.pop(id, None)
        if orders:
            self._sent(id, orders, part)
        if None in frames and part is not None:
            self._skip(part.record)

    def _orders(self, id: str, part: DesiredPackage | None) -> tuple[ModuleOrder, ...]:
        desired, observed = _desired(part), self._observed.get(id)
        if not self._plain:
            return difference(desired, observed)
        if desired is not None and desired.intent is not ModuleIntent.ACTIVE:
            desired = None  # a daemon without intents has only what shall run
        return _published(difference(desired, observed))

    async def _frame(self, order: ModuleOrder, part: DesiredPackage | None) -> ControllerMessage | None:
        """The order's frame; None when the daemon cannot take it."""
        if isinstance(order, UninstallOrder) or part is None:
            return uninstall_frame(order.id)
        recover_ms = part.desired.recover_ms
        if isinstance(order, ControlOrder):
            return control_frame(part.record, order, recover_ms=recover_ms)
        if self._plain and part.record.size > WHOLE:
            return None
        content = await self._blobs.content(part.record, inline=WHOLE if self._plain else INLINE)
        frame = install_frame(part.record, order, content, recover_ms=recover_ms, plain=self._plain)
        return frame if frame.ByteSize() <= _FRAME_MAX else None

    def _sent(self, id: str, orders: Sequence[ModuleOrder], part: DesiredPackage | None) -> None:
        """Record the order as observed until the node reports otherwise."""
        before = self._observed.pop(id, None)
        after = applied(_desired(part), before, orders)
        self._named.add(id)
        if after is not None:
            self._observed[id] = after
        if after is None or part is None:
            self._progress.arrived(self._node, id)
        elif isinstance(orders[-1], InstallOrder) and not _in_place(part.desired, before):
            offered = not self._plain and part.record.size > INLINE
            self._progress.begun(self._node, id, offered=offered)
        _log.info("module.sent", orders=[type(order).__name__ for order in orders])

    def _skip(self, record: PackageRecord) -> None:
        _log.warning("module_send.refused", node=self._node, module=record.id, size=record.size)
        self._progress.set_text(self._node, record.id, TOO_LARGE)


def _published(orders: Iterable[ModuleOrder]) -> tuple[ModuleOrder, ...]:
    """The difference for a daemon without intents, settings and requests: another try is another install."""
    kept = [
        InstallOrder(id=order.id) if isinstance(order, ControlOrder) else order
        for order in orders
        if not isinstance(order, ControlOrder) or order.recover
    ]
    return tuple(kept[-1:])


def _in_place(desired: DesiredModule, observed: ObservedModule | None) -> bool:
    """The node has this archive already: an order that changes only its signature transfers nothing."""
    return observed is not None and observed.sha256 == desired.sha256 != observed.refused_sha256


def _desired(part: DesiredPackage | None) -> DesiredModule | None:
    return part.desired if part is not None else None
