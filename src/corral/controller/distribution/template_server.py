"""Requests of nodes for templates, answered outside the readers of their streams.

A node gets one answer at a time, in the order of its requests, so that many requests of one node delay no
other node. The same request from several of its starts is answered once. A large version is offered: the list
of its files, or how it differs from the version that the node has. Many nodes request the same version after
a change, so an offer is computed once for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Final

import structlog

from corral.controller.distribution.node_needs import NodeAccess
from corral.controller.distribution.ports import Versions
from corral.controller.sessions.node_links import NodeLink, NodeLinks
from corral.controller.state.indexed_mirrors import TemplateMirror
from corral.domain.ids import NodeId
from corral.domain.template_diff import delta_between
from corral.domain.templates import INLINE, TemplateManifest, TemplateVersion, encode_manifest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.tasks import Tasks
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import (
    DataOffer,
    TemplateData,
    TemplateRequest,
    TemplateUnavailable,
    TemplateUpToDate,
)

MAX_DELTA: Final = 256 * 1024
"""A longer one is better fetched as a manifest, over the data channel."""
_REMEMBERED: Final = 64

Difference = tuple[int, bytes]
"""The size of a manifest, and the delta that leads to it; empty when none is worth sending."""


class TemplateOffers:
    """Offers of versions, to nodes that have another one or none."""

    def __init__(self, library: Versions) -> None:
        self._library = library
        self._known: OrderedDict[tuple[str, str], Difference] = OrderedDict()
        self._working = asyncio.Lock()

    async def offer(
        self, name: str, version: TemplateVersion, *, known: TemplateVersion | None
    ) -> TemplateData:
        """The manifest, to be fetched; where the node has an earlier one that is known here too, only the
        delta from that. Raises what reading the manifest raises."""
        size, delta = await self._difference(version, known)
        return TemplateData(
            template_name=name,
            hash=version.hash,
            offer=DataOffer(digest=version.manifest, size_bytes=size, kind="manifest"),
            delta=delta,
        )

    async def _difference(self, version: TemplateVersion, known: TemplateVersion | None) -> Difference:
        key = (version.manifest, known.manifest if known else "")
        async with self._working:  # one at a time: a waiting request finds it done
            found = self._known.get(key)
            if found is None:
                new = await self._library.tree_of(version)
                found = await asyncio.to_thread(_measured, new, await self._tree(known))
                self._known[key] = found
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return found

    async def _tree(self, version: TemplateVersion | None) -> TemplateManifest | None:
        if version is None:
            return None
        with contextlib.suppress(CorralError):  # then the node gets the whole manifest
            return await self._library.tree_of(version)
        return None


def _measured(new: TemplateManifest, old: TemplateManifest | None) -> Difference:
    size = len(encode_manifest(new))
    delta = delta_between(old, new) if old is not None else b""
    return size, delta if len(delta) < min(size, MAX_DELTA) else b""


MAX_WAITING: Final = 256
"""The most waiting requests of one node; more are refused, to be sent again."""
WHOLE: Final = 4 * 1024 * 1024 - 64 * 1024
"""The largest archive that fits into one frame, for daemons without the data channel."""
_QUEUED: Final = 512 * 1024
"""While more than this is queued for a node, no template is added."""
_LONGEST: Final = 256
"""The longest name or hash of a waiting request."""
_LOOK_SECONDS: Final = 0.02
_LOGGED_PER_MINUTE: Final = 30
"""Of one node, so that endless requests do not fill the log."""
_TEXT: Final = 500
_log = structlog.get_logger("corral.controller.distribution")

Key = tuple[str, str, str]


class TemplateServer:
    """`ask` returns at once; the answer follows. `close` at the end of the term."""

    def __init__(
        self,
        *,
        templates: TemplateMirror,
        library: Versions,
        links: NodeLinks,
        access: NodeAccess,
        clock: Clock,
    ) -> None:
        self._templates = templates
        self._access = access
        self._library = library
        self._offers = TemplateOffers(library)
        self._links = links
        self._tasks = Tasks()
        self._log_buckets = TokenBuckets[NodeId](
            burst=_LOGGED_PER_MINUTE, per_second=_LOGGED_PER_MINUTE / 60, monotonic=clock.monotonic
        )
        self._waiting: dict[NodeId, dict[Key, TemplateRequest]] = {}
        self._serving: dict[NodeId, asyncio.Task[None]] = {}

    def ask(self, node_id: NodeId, request: TemplateRequest) -> None:
        """Queue a request. Never blocks, never fails."""
        key = (request.template_name, request.known_hash, request.wanted_hash)
        if max(map(len, key)) > _LONGEST:
            self._refuse(node_id, request, Rejected(Code.TEMPLATE_NOT_FOUND, "nothing has such a name"))
            return
        waiting = self._waiting.setdefault(node_id, {})
        if key not in waiting and len(waiting) >= MAX_WAITING:
            self._refuse(
                node_id, request, Retryable(Code.TEMPLATE_UNAVAILABLE, "too many requests wait; ask again")
            )
            return
        waiting.setdefault(key, request)
        if node_id not in self._serving:
            self._serving[node_id] = self._tasks.spawn(
                self._serve(node_id), name=f"distribution/templates/{node_id}"
            )

    async def close(self) -> None:
        await self._tasks.close()

    async def _serve(self, node_id: NodeId) -> None:
        """Answer until no request waits. A request stays in the table until it is answered, so that a
        repetition in the meantime is recognised."""
        waiting = self._waiting[node_id]
        try:
            while waiting and (link := self._links.find(node_id)) is not None:
                key, request = next(iter(waiting.items()))
                try:
                    await self._answer(node_id, link, request)
                finally:
                    waiting.pop(key, None)
        finally:
            del self._serving[node_id], self._waiting[node_id]

    async def _answer(self, node_id: NodeId, link: NodeLink, request: TemplateRequest) -> None:
        _log.debug("template.requested", node=node_id, template=request.template_name[:_TEXT])
        try:
            message = await self._message(node_id, link, request)
        except CorralError as error:
            self._refuse(node_id, request, error)
            return
        except Exception:
            _log.exception("template.failed", node=node_id, template=request.template_name[:_TEXT])
            self._refuse(node_id, request, Retryable(Code.TEMPLATE_UNAVAILABLE, "the controller failed"))
            return
        # To the present session: a request repeated in a new one is still one request.
        present = self._links.find(node_id)
        if present is not None:
            await _room(present)
            present.send(message)

    async def _message(self, node_id: NodeId, link: NodeLink, request: TemplateRequest) -> ControllerMessage:
        name = request.template_name
        version = self._version(node_id, name, request.wanted_hash)
        if request.known_hash == version.hash:
            return ControllerMessage(
                template_up_to_date=TemplateUpToDate(template_name=name, hash=version.hash)
            )
        knows_offers = link.facts.supports.templates
        if version.archive_size <= (INLINE if knows_offers else WHOLE):
            archive = await self._whole(version)
            return ControllerMessage(
                template_data=TemplateData(template_name=name, hash=version.hash, tar_gz=archive)
            )
        if not knows_offers:
            raise Rejected(
                Code.ARCHIVE_TOO_LARGE,
                f"template '{name}' has {version.archive_size} bytes; this daemon takes at most {WHOLE}",
                hint="update the daemon",
            )
        known = self._templates.version_of(name, request.known_hash)
        return ControllerMessage(template_data=await self._offers.offer(name, version, known=known))

    def _version(self, node_id: NodeId, name: str, digest: str) -> TemplateVersion:
        """The requested version. A daemon that cannot name one gets the current version or, where the node
        may not have that, the one that its plans name. A template that the node does not need does not exist
        for it."""
        found, allowed = self._templates.find(name), self._access.versions(node_id, name)
        if found is None or not allowed:
            raise Rejected(Code.TEMPLATE_NOT_FOUND, f"template '{name[:127]}' does not exist")
        if not digest:
            current = found.record.version().hash
            named = [version.hash for version in found.record.versions if version.hash in allowed]
            digest = current if current in allowed or not named else named[-1]
        version = found.record.by_hash(digest) if digest in allowed else None
        if version is None:
            raise Rejected(
                Code.TEMPLATE_NOT_FOUND, f"template '{name}' has no version {digest[:64]} any more"
            )
        return version

    async def _whole(self, version: TemplateVersion) -> bytes:
        held = bytearray()
        async for block in self._library.archive(version):
            held += block
        return bytes(held)

    def _refuse(self, node_id: NodeId, request: TemplateRequest, error: CorralError) -> None:
        """Send the reason of the refusal: starts on the node wait for it."""
        link = self._links.find(node_id)
        if link is None:
            return
        final = error.code in (Code.TEMPLATE_NOT_FOUND, Code.ARCHIVE_TOO_LARGE)
        code = error.code.name if final else Code.TEMPLATE_UNAVAILABLE.name
        if self._log_buckets.take(node_id):
            _log.warning(
                "template.refused",
                node=node_id,
                template=request.template_name[:_TEXT],
                reason=str(error)[:_TEXT],
            )
        answer = TemplateUnavailable(
            template_name=request.template_name[:_LONGEST],
            hash=request.wanted_hash[:_LONGEST],
            error_code=code,
            error_message=str(error)[:_TEXT],
        )
        link.send(ControllerMessage(template_unavailable=answer))


async def _room(link: NodeLink) -> None:
    """Wait until little is queued for a node: its commands and pings go first, and templates must not pile up
    for a slow node. An outbox does not signal this, so it is polled."""
    while link.outbox.waiting_bytes > _QUEUED and not link.over.is_set():
        await asyncio.sleep(_LOOK_SECONDS)
