"""Brings the node of one session to what it shall have, one order at a time.

What was told is remembered with the session, so nothing is said twice. An order is made from what holds when
it is sent: however long its archive took to read, nothing older follows something newer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
import structlog

from corral.controller.modules_on_nodes.comparison import (
    Control,
    Had,
    Install,
    Order,
    Uninstall,
    Wanted,
    compare_one,
    told,
)
from corral.controller.modules_on_nodes.frames import (
    INLINE,
    WHOLE,
    control_frame,
    install_frame,
    uninstall_frame,
)
from corral.controller.modules_on_nodes.parcels import Parcels
from corral.controller.modules_on_nodes.ports import ModuleLink
from corral.controller.modules_on_nodes.progress import TOO_LARGE, Progress
from corral.domain.module_nodes import NodeModuleState
from corral.domain.module_phases import ModuleIntent
from corral.domain.module_records import PackageRecord
from corral.errors import CorralError
from corral.wire import features
from corral.wire.channels import CONTROL_LIMIT
from corral.wire.v1.link_pb2 import ControllerMessage

_QUEUED: Final = 512 * 1024
"""While more than this waits to be sent to a node, nothing is added to it."""
_FRAME_MAX: Final = CONTROL_LIMIT - 64 * 1024
"""Signature and manifest included."""
_LOOK_SECONDS: Final = 0.02
_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A record, and what of it concerns nodes."""

    record: PackageRecord
    wanted: Wanted


Find = Callable[[str], Package | None]
"""The package as it is now; None when nodes shall not have it."""


class Courier:
    """`changed` returns at once; `run` lives as long as the session."""

    def __init__(
        self,
        link: ModuleLink,
        *,
        had: Mapping[str, Had],
        find: Find,
        parcels: Parcels,
        progress: Progress,
    ) -> None:
        self._link = link
        self._plain = features.MODULES not in link.facts.features
        self._had = dict(had)
        self._spoken = set(had)
        self._find = find
        self._parcels = parcels
        self._progress = progress
        self._due: dict[str, None] = {}
        self._failed: set[str] = set()
        self._wake = asyncio.Event()

    def changed(self, ids: Iterable[str]) -> None:
        """Look at these again."""
        self._due.update(dict.fromkeys(ids))
        if self._due:
            self._wake.set()

    def changed_all(self, ids: Iterable[str]) -> None:
        """Look at all there are again, and at all that were ever spoken of here."""
        self.changed([*ids, *self._spoken])

    def knows(self, id: str) -> bool:
        """Was this module ever spoken of here?"""
        return id in self._spoken

    def heard(self, state: NodeModuleState) -> None:
        """The node says where a module stands. Only what concerns the archive told last is news: older
        reports may still be on their way."""
        had = self._had.get(state.module)
        if had is None:
            return
        if state.refused_sha256 and state.refused_sha256 == had.sha256:
            self._had[state.module] = msgspec.structs.replace(
                had,
                sha256=state.sha256,
                version=state.version,
                refused_sha256=state.refused_sha256,
                signature_sha256=None,
                refused_signature_sha256=_refused_signature(had),
                reload_ms=had.reload_ms if state.reload_done_ms is None else state.reload_done_ms,
            )
            self.changed([state.module])  # a reload that went with the archive is still to come
        elif state.sha256 and state.sha256 == had.refused_sha256 != state.refused_sha256:
            self._had[state.module] = msgspec.structs.replace(
                had,
                sha256=state.sha256,
                version=state.version,
                refused_sha256="",
                signature_sha256=had.refused_signature_sha256,
                refused_signature_sha256=None,
            )

    async def run(self) -> None:
        while not self._link.over.is_set():
            id = await self._next()
            try:
                await self._bring(id)
            except CorralError as error:
                _log.warning("module.not_sent", node=self._node, module=id, reason=str(error))
                self._fail(id)
            except Exception:
                _log.exception("module.not_sent", node=self._node, module=id)
                self._fail(id)

    def _fail(self, id: str) -> None:
        self._due.pop(id, None)
        self._failed.add(id)

    async def _next(self) -> str:
        """The module to speak of; what could not be sent comes again after a while."""
        while not self._due:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if self._failed else None):
                    await self._wake.wait()
            self._due.update(dict.fromkeys(self._failed))
            self._failed.clear()
        return next(iter(self._due))

    @property
    def _node(self) -> str:
        return self._link.facts.node_id

    async def _bring(self, id: str) -> None:
        """One order about this module, or none. It stays due when it changed meanwhile."""
        package = self._find(id)
        order = self._order(id, package)
        if order is None:
            self._due.pop(id, None)
            return
        frame = await self._frame(order, package)
        while self._link.outbox.waiting_bytes > _QUEUED and not self._link.over.is_set():
            await asyncio.sleep(_LOOK_SECONDS)  # an outbox has no bell
        present = self._find(id)
        if _wanted(present) != _wanted(package):
            return
        if frame is not None and not self._link.send(frame):
            await self._link.over.wait()  # nobody hears anything more in this session
            return
        self._told(id, order, package)
        if frame is None and package is not None:
            self._passed_over(package.record)

    def _order(self, id: str, package: Package | None) -> Order | None:
        had = self._had.get(id)
        if self._plain and package is not None and package.record.intent is not ModuleIntent.ACTIVE:
            package = None  # it knows no intents: it has what shall run
        if package is None:
            return Uninstall(id=id) if had is not None else None
        order = compare_one(package.wanted, had)
        if self._plain and isinstance(order, Control):
            return Install(id=id) if order.recover else None
        return order

    async def _frame(self, order: Order, package: Package | None) -> ControllerMessage | None:
        """None: the daemon cannot take it."""
        if isinstance(order, Uninstall) or package is None:
            return uninstall_frame(order.id)
        if isinstance(order, Control):
            return control_frame(package.record, order, recover_ms=package.wanted.recover_ms)
        if self._plain and package.record.size > WHOLE:
            return None
        parcel = await self._parcels.parcel(package.record, inline=WHOLE if self._plain else INLINE)
        frame = install_frame(
            package.record, order, parcel, recover_ms=package.wanted.recover_ms, plain=self._plain
        )
        return frame if frame.ByteSize() <= _FRAME_MAX else None

    def _told(self, id: str, order: Order, package: Package | None) -> None:
        self._due.pop(id, None)
        self._spoken.add(id)
        if isinstance(order, Uninstall) or package is None:
            del self._had[id]
            self._progress.arrived(self._link.facts.node_id, id)
            return
        before = self._had.get(id)
        self._had[id] = told(package.wanted, before, order)
        if isinstance(order, Control):
            self.changed([id])  # it may be signed anew as well
        elif not _in_place(package.wanted, before):
            offered = not self._plain and package.record.size > INLINE
            self._progress.begun(self._link.facts.node_id, id, offered=offered)
        _log.info("module.told", node=self._node, module=id, order=type(order).__name__.lower())

    def _passed_over(self, record: PackageRecord) -> None:
        node_id = self._link.facts.node_id
        _log.warning("module.too_large", node=node_id, module=record.id, size=record.size)
        self._progress.told(node_id, record.id, TOO_LARGE)


def _refused_signature(had: Had) -> str | None:
    """That of the archive that was told last; said again, it is still that one."""
    return had.refused_signature_sha256 if had.refused_sha256 == had.sha256 else had.signature_sha256


def _in_place(wanted: Wanted, had: Had | None) -> bool:
    """The node has this archive: with another signature of it nothing is on its way."""
    return had is not None and had.sha256 == wanted.sha256 != had.refused_sha256


def _wanted(package: Package | None) -> Wanted | None:
    return package.wanted if package is not None else None
