"""What is settled about a session before it begins."""

from __future__ import annotations

import msgspec

from corral.domain.ids import Epoch, NodeId, SessionId


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which daemon process, of which boot of which machine, holds a session."""

    machine_id: str
    boot_id: str
    run_id: str


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was settled by the handshake."""

    id: SessionId
    node_id: NodeId
    serial: str
    host: HostIdentity
    spool_id: str
    epoch: Epoch
    features: frozenset[str]
