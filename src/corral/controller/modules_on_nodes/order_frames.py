"""Order frames: records encoded as install frames.

`BlobCache` reads small archives and sidecars from the store once for all sessions that need them.
"""

from __future__ import annotations

import collections
from typing import Final

import msgspec

from corral.domain.modules.convergence import ControlOrder, InstallOrder
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import PackageRecord
from corral.modules.manifest.settings import settings_json
from corral.store.port import BlobEngine
from corral.system.aio.keyed_locks import KeyedLocks
from corral.wire.handshake_lists import INTENT_NUMBERS
from corral.wire.v1 import module_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import DataOffer

INLINE: Final = 64 * 1024
"""Archives up to this size are sent in the frame; larger ones are fetched over the data channel."""
WHOLE: Final = 7 * 512 * 1024
"""Largest archive for daemons that take archives in frames only."""


class PackageContent(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a package that are read before it is sent. Without `archive` the archive is offered."""

    archive: bytes | None = None
    signature: bytes = b""


def install_frame(
    record: PackageRecord,
    order: InstallOrder,
    content: PackageContent,
    *,
    recover_ms: int = 0,
    plain: bool = False,
) -> ControllerMessage:
    """The install frame of a package. `plain`: for daemons that know the published fields only: no offers, no
    intents."""
    frame = wire.ModuleInstall(
        module_id=record.id,
        version=record.version,
        sha256=record.sha256,
        jar_bytes=content.archive or b"",
        signature_bytes=content.signature,
        signature_kind=record.signature.kind if record.signature and content.signature else "",
        manifest_yaml=msgspec.json.encode(record.manifest).decode(),
        is_upgrade=bool(order.previous_version),
        previous_version=order.previous_version,
    )
    if not plain:
        frame.intent = INTENT_NUMBERS[record.intent]
        frame.settings_json = settings_json(record.settings)
        frame.again = order.again
        frame.paused_reason = _paused(record)
        frame.reload_ms = record.reload_asked_ms
        frame.recover_ms = recover_ms
        if content.archive is None:
            offer = DataOffer(digest=record.sha256, size_bytes=record.size, kind="blob")
            frame.offer.CopyFrom(offer)
    return ControllerMessage(module_install=frame)


def control_frame(record: PackageRecord, order: ControlOrder, *, recover_ms: int = 0) -> ControllerMessage:
    frame = wire.ModuleControl(
        module_id=record.id,
        intent=INTENT_NUMBERS[record.intent],
        reason=_paused(record),
        recover=order.recover,
        reload=order.reload,
        settings_json=settings_json(record.settings) if order.settings else b"",
        reload_ms=record.reload_asked_ms,
        recover_ms=recover_ms,
    )
    return ControllerMessage(module_control=frame)


def uninstall_frame(id: str) -> ControllerMessage:
    return ControllerMessage(module_uninstall=wire.ModuleUninstall(module_id=id))


def _paused(record: PackageRecord) -> str:
    return record.paused_reason if record.intent is ModuleIntent.PAUSED else ""


_HELD_BYTES: Final = 8 * 1024 * 1024


class BlobCache:
    """Cache of blobs: different ones are read concurrently, the same one once; the least recently used are
    evicted above a bound."""

    def __init__(self, blobs: BlobEngine) -> None:
        self._blobs = blobs
        self._held: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        self._bytes = 0
        self._turns = KeyedLocks[str]()

    async def content(self, record: PackageRecord, *, inline: int) -> PackageContent:
        """The signature, and the archive when it has at most `inline` bytes. NOT_FOUND, STORE_UNAVAILABLE."""
        sidecar = record.signature.blob if record.signature else ""
        return PackageContent(
            archive=await self._content(record.sha256) if record.size <= inline else None,
            signature=await self._content(sidecar) if sidecar else b"",
        )

    async def _content(self, digest: str) -> bytes:
        async with self._turns.hold(digest):
            held = self._held.get(digest)
            if held is None:
                held = b"".join([block async for block in self._blobs.read_blob(digest)])
                self._hold(digest, held)
            else:
                self._held.move_to_end(digest)
            return held

    def _hold(self, digest: str, content: bytes) -> None:
        self._held[digest] = content
        self._bytes += len(content)
        while self._bytes > _HELD_BYTES and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= len(dropped)
