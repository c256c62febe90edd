"""Offers of large template versions: the list of files, and how it differs from one that a node has.

Many nodes ask for the same when a template has changed, so an offer is worked out once for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Final

from corral.controller.distribution.ports import Versions
from corral.domain.template_diff import delta_between
from corral.domain.templates import Manifest, TemplateVersion, encode_manifest
from corral.errors import CorralError
from corral.wire.v1.plan_pb2 import DataOffer, TemplateData

MAX_DELTA: Final = 256 * 1024
"""A longer one is better fetched as a manifest, over the other channel."""
_REMEMBERED: Final = 64

Difference = tuple[int, bytes]
"""The size of a manifest, and the change that leads to it; empty when there is none worth sending."""


class Offers:
    """What is offered for a version, to those who have another one or none."""

    def __init__(self, library: Versions) -> None:
        self._library = library
        self._known: OrderedDict[tuple[str, str], Difference] = OrderedDict()
        self._working = asyncio.Lock()

    async def offer(
        self, name: str, version: TemplateVersion, *, known: TemplateVersion | None
    ) -> TemplateData:
        """The manifest, to be fetched; where the node has an earlier one that we know too, only how it
        differs from that. Raises what reading the manifest raises."""
        size, delta = await self._difference(version, known)
        return TemplateData(
            template_name=name,
            hash=version.hash,
            offer=DataOffer(digest=version.manifest, size_bytes=size, kind="manifest"),
            delta=delta,
        )

    async def _difference(self, version: TemplateVersion, known: TemplateVersion | None) -> Difference:
        key = (version.manifest, known.manifest if known else "")
        async with self._working:  # one at a time: who waited finds it done
            found = self._known.get(key)
            if found is None:
                new = await self._library.tree_of(version)
                found = await asyncio.to_thread(_measured, new, await self._tree(known))
                self._known[key] = found
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return found

    async def _tree(self, version: TemplateVersion | None) -> Manifest | None:
        if version is None:
            return None
        with contextlib.suppress(CorralError):  # then the node gets the whole manifest
            return await self._library.tree_of(version)
        return None


def _measured(new: Manifest, old: Manifest | None) -> Difference:
    size = len(encode_manifest(new))
    delta = delta_between(old, new) if old is not None else b""
    return size, delta if len(delta) < min(size, MAX_DELTA) else b""
