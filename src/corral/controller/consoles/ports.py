"""What consoles need of those who take uploads."""

from __future__ import annotations

import asyncio
from typing import Protocol

from corral.domain.ids import NodeId


class BytesUploads(Protocol):
    """Bulk data that a node was asked for."""

    def expect_bytes(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[bytes]:
        """Allow this node one upload. The future holds it when it is whole; cancelling forgets it."""
