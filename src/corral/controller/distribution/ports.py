"""The interfaces of templates and uploads that distribution uses."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Protocol

from corral.controller.sessions.incoming_streams import IncomingStream
from corral.controller.sessions.node_links import offline as offline
from corral.domain.ids import NodeId
from corral.domain.templates import TemplateManifest, TemplateVersion


class Versions(Protocol):
    """The files of template versions."""

    async def tree_of(self, version: TemplateVersion, /) -> TemplateManifest: ...

    def archive(self, version: TemplateVersion, /) -> AsyncIterator[bytes]:
        """The version's tar.gz, byte for byte what its hash was computed over."""


class FileUploads(Protocol):
    def expect_file(
        self, transfer_id: str, *, node_id: NodeId, max_bytes: int
    ) -> asyncio.Future[pathlib.Path]:
        """Allow this node one upload; the future holds the file, and its owner removes it."""

    def expect_stream(
        self, transfer_id: str, *, node_id: NodeId, max_bytes: int
    ) -> contextlib.AbstractContextManager[IncomingStream]:
        """Allow this node one upload, which is read as it comes, as long as this lasts."""
