"""The handshake, the first frame of a stream: identity, protocol version, and admission of the peer."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.accounts.principals import Principals
from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.sessions.live_nodes import HostIdentity
from corral.controller.sessions.published_node import complete_handshake
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.events import Draft, EventType
from corral.domain.ids import MAX_COUNTER, CallerId, NodeId, SessionId, instance_id
from corral.domain.node_claims import (
    NodeClaims,
    check_labels,
    checked_claims,
    differences,
    reported_reconnect_max,
)
from corral.domain.node_states import NODE_LIFECYCLE, NodeState, NodeTrigger
from corral.domain.permissions import Permission
from corral.domain.records import NodeRecord, with_claims
from corral.errors import Code, Rejected
from corral.pki.names import Peer, PeerKind
from corral.system.addresses import parse_host
from corral.version import PROTOCOL_VERSION
from corral.wire.frame_table import node_frame
from corral.wire.handshake_lists import MOST_RUNNING
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakePortion

_MAX_NAMES: Final = 64
_MAX_NAME: Final = 64
_MOST_CAPABILITIES: Final = 64
_MAX_TEXT: Final = 256
_MOST_WORLDS: Final = 256
_MAX_PATH: Final = 1024
MOST_RUNNING_OF_A_NODE: Final = 100_000
MOST_LISTED_BYTES: Final = 64 * 1024 * 1024
_MOST_MODULES: Final = 1000

RESTARTED: Final = "the controller restarted"
"""Why nodes are out of reach at the start of a term."""


def expect_handshake(frame: DaemonMessage) -> Handshake:
    """The handshake in a stream's first frame, its required fields present."""
    first = node_frame(frame)
    if first.kind != "handshake":
        raise Rejected(
            Code.HANDSHAKE_EXPECTED, f"the first frame must be a Handshake, got '{first.kind or 'nothing'}'"
        )
    complaint = first.complaint()
    if complaint is not None:
        raise complaint
    handshake = frame.handshake
    check_labels(handshake.labels)
    _check_sizes(handshake)
    if handshake.advertise_address:
        parse_host(handshake.advertise_address, field="advertise_address")
    complete_handshake(handshake)
    return handshake


def _check_sizes(handshake: Handshake) -> None:
    """Refuse oversized fields: all of them are stored, some with every change."""
    for field in ("version", "advertise_address", "machine_id", "boot_id", "spool_id", "run_id"):
        if len(getattr(handshake, field)) > _MAX_TEXT:
            raise Rejected(
                Code.INVALID_FIELD, f"Handshake.{field} is longer than {_MAX_TEXT} characters", field=field
            )
    for field in ("runtimes", "capabilities"):
        names = getattr(handshake, field)
        if len(names) > _MAX_NAMES or any(len(name) > _MAX_NAME for name in names):
            raise Rejected(Code.INVALID_FIELD, f"Handshake.{field} is too large", field=field)
    check_running(handshake, before=0)
    if len(handshake.modules) > _MOST_MODULES:
        raise Rejected(
            Code.INVALID_FIELD, f"Handshake.modules lists more than {_MOST_MODULES}", field="modules"
        )


def check_running(frame: Handshake | HandshakePortion, *, before: int, before_bytes: int = 0) -> None:
    """Check the list of one frame, and the bounds of the whole list in number and in bytes."""
    listed = len(frame.running_instances)
    name = type(frame).__name__
    if listed > MOST_RUNNING:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{name}.running_instances lists {listed}, a frame holds at most {MOST_RUNNING}",
            hint="send the others in HandshakePortions; daemons of this version do",
            field="running_instances",
        )
    if before + listed > MOST_RUNNING_OF_A_NODE or before_bytes + frame.ByteSize() > MOST_LISTED_BYTES:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{name}.running_instances: a node lists at most {MOST_RUNNING_OF_A_NODE}, and {MOST_LISTED_BYTES} bytes",
            field="running_instances",
        )


def host_of(handshake: Handshake) -> HostIdentity:
    return HostIdentity(machine_id=handshake.machine_id, boot_id=handshake.boot_id, run_id=handshake.run_id)


def compatible(handshake: Handshake) -> bool:
    return handshake.protocol_version == PROTOCOL_VERSION


def authorise(state: ClusterState, peer: Peer, *, kind: PeerKind, now: dt.datetime) -> None:
    """Check that the certificate is of this cluster, of this kind, and, for a node, one of its newest two."""
    if peer.cluster != state.identity.id or peer.kind is not kind:
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"a certificate of {peer.kind} '{peer.name}' in cluster '{peer.cluster}' does not open this door",
        )
    if kind is PeerKind.ADMIN:
        _authorise_admin(state, peer, now=now)
        return
    stored = state.nodes.find(peer.name)
    if stored is None:
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"node '{peer.name}' was removed from this cluster",
            hint="enrol it again with a join token",
        )
    if stored.record.state is NodeState.REVOKED:
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"node '{peer.name}' is revoked: {stored.record.reason}",
            hint="enrol it again with a join token",
        )
    if peer.serial not in stored.record.serials:
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"this certificate of node '{peer.name}' was superseded",
            hint="only the newest two certificates of a node are accepted; enrol it again",
        )


def _authorise_admin(state: ClusterState, peer: Peer, *, now: dt.datetime) -> None:
    """An administrator's certificate is valid only as long as the token or session that requested it is, and may make join
    tokens, which is what the service does."""
    issued = state.admin_certificates.find(peer.serial)
    principals = Principals(state, UserSessions(state))
    principal = principals.find(CallerId(issued.record.token_id), now) if issued is not None else None
    if principal is None or not principal.access.allows_everywhere(Permission.NODES_ENROL):
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"the certificate of administrator '{peer.name}' is no longer valid",
            hint="whoever requested it is no longer allowed to, or its token has expired; make a new one with "
            "'corral cluster admin-certificate'",
        )


def check_node_name(handshake: Handshake, peer: Peer) -> NodeId:
    """Check that the handshake names the node of the certificate."""
    if handshake.node_id != peer.name:
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"the certificate is of node '{peer.name}', the handshake says '{handshake.node_id[:80]}'",
            hint="use the identity that belongs to this data directory",
        )
    return NodeId(peer.name)


def opened(
    stored: StoredRecord[NodeRecord], handshake: Handshake, *, session: SessionId, now: dt.datetime
) -> tuple[NodeRecord, list[Draft]]:
    """The record of a node whose session opens, and its events."""
    old = stored.record
    state = NODE_LIFECYCLE.step(f"node '{old.id}'", old.state, NodeTrigger.SESSION_OPENED)
    record = msgspec.structs.replace(
        old,
        state=state,
        state_since=now,
        reason="session opened",
        machine_id=handshake.machine_id,
        boot_id=handshake.boot_id,
        version=handshake.version,
        address=handshake.advertise_address,
        capabilities=tuple(
            sorted({name[:_MAX_TEXT] for name in handshake.capabilities[:_MOST_CAPABILITIES]})
        ),
        host_info=_host_info(handshake),
        worlds=tuple(sorted({id for id in handshake.worlds[:_MOST_WORLDS] if _is_instance(id)})),
        static_directory=_shown_path(handshake.static_directory),
        reconnect_max_seconds=reported_reconnect_max(handshake.reconnect_max_ms),
        last_seen=now,
        lost_at=None,
    )
    claims, _ = claims_of(handshake)
    record = with_claims(record, claims, old.settings)
    rebooted = bool(old.boot_id) and old.boot_id != handshake.boot_id
    event = Draft(
        type=EventType.NODE_ONLINE,
        subject=old.id,
        data={"session": session, "version": record.version, "from": old.state, "rebooted": rebooted},
    )
    changed = differences(old.claimed, claims) if old.version else {}
    if not changed:
        return record, [event]
    return record, [event, Draft(type=EventType.NODE_CLAIMS_CHANGED, subject=old.id, data=changed)]


def out_of_reach(
    record: NodeRecord, trigger: NodeTrigger, reason: str, *, now: dt.datetime
) -> tuple[NodeRecord, list[Draft]]:
    """The record of a node whose session is over, and its event."""
    state = NODE_LIFECYCLE.step(f"node '{record.id}'", record.state, trigger)
    event = Draft(
        type=EventType.NODE_UNREACHABLE if state is NodeState.UNREACHABLE else EventType.NODE_DISCONNECTED,
        subject=record.id,
        data={"reason": reason, "from": record.state},
    )
    changed = msgspec.structs.replace(
        record, state=state, state_since=now, lost_at=record.lost_at or now, reason=reason
    )
    return changed, [event]


def _is_instance(id: str) -> bool:
    try:
        return bool(instance_id(id))
    except Rejected:
        return False


def _shown_path(path: str) -> str:
    """The path, or empty where it is too long or not a single line of text."""
    return path if len(path) <= _MAX_PATH and path.isprintable() else ""


def lost_reports(state: ClusterState, handshake: Handshake) -> Draft | None:
    """The event of lost reports, for a node that has confirmations of reports which the store does not have:
    then the store is older than what it had confirmed, and has lost more than these reports."""
    stored = state.spools.find(handshake.node_id)
    if stored is None or stored.record.spool_id != handshake.spool_id:
        return None
    known = stored.record.sequence
    if handshake.spool_confirmed <= known:
        return None
    data = {"stored": known, "confirmed": min(handshake.spool_confirmed, MAX_COUNTER)}
    return Draft(type=EventType.STORE_OLDER_THAN_NODE, subject=handshake.node_id, data=data)


def claims_of(handshake: Handshake) -> tuple[NodeClaims, tuple[str, ...]]:
    """The node's claims about itself, and the labels that it may not claim."""
    return checked_claims(
        handshake.labels,
        memory_mb=handshake.total_memory_mb,
        cpus=handshake.available_cpus,
        runtimes=tuple(sorted(set(handshake.runtimes))),
    )


def _host_info(handshake: Handshake) -> dict[str, str | int]:
    return {
        field.name: value if isinstance(value, int) else str(value)[:_MAX_TEXT]
        for field, value in handshake.host_info.ListFields()
        if isinstance(value, str | int)
    }
