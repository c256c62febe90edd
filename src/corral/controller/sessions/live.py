"""What only the present session of a node knows; never stored."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

import msgspec

from corral.domain.ids import NodeId, SessionId


class LiveNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node's load as of its last status, and when it was last heard."""

    session_id: SessionId
    connected_at: dt.datetime
    last_seen: dt.datetime
    cpu_usage: float = 0.0
    memory_mb: int = 0
    used_memory_mb: int = 0
    free_disk_mb: int = 0
    total_disk_mb: int = 0
    instance_count: int = 0
    used_ports: tuple[int, ...] = ()


class LiveNodes(Protocol):
    """Who is connected right now."""

    def live(self, node_id: NodeId) -> LiveNode | None: ...

    def set_log_level(self, node_id: NodeId, level: str) -> None:
        """Tell the node, if it is connected; one that is not learns it in its next handshake."""
