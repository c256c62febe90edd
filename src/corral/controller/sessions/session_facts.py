"""What is settled about a session before it begins."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.domain.ids import Epoch, NodeId, SessionId
from corral.wire.peer_support import PeerSupport


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which daemon process, of which boot of which machine, holds a session."""

    machine_id: str
    boot_id: str
    run_id: str

    def is_process(self, other: HostIdentity) -> bool:
        """Is the other certainly the same process? Published daemons say nothing of themselves: of two of them
        nobody knows."""
        return self == other and any((self.machine_id, self.boot_id, self.run_id))


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was settled by the handshake."""

    id: SessionId
    node_id: NodeId
    serial: str
    certificate_expires_at: dt.datetime
    host: HostIdentity
    spool_id: str
    epoch: Epoch
    supports: PeerSupport
