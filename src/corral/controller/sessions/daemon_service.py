"""`DaemonService.Connect`: admit a daemon, serve its stream, and end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from corral.controller.sessions import handshake as greeting
from corral.controller.sessions.frame_receivers import FrameReceivers
from corral.controller.sessions.grpc_service import LeaderLookup, LinkTerm, authenticated, translated
from corral.controller.sessions.live_nodes import SessionFacts
from corral.controller.sessions.session import Session
from corral.controller.sessions.spool_intake import Intake
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.ledger import Step
from corral.domain.ids import RESTARTS_PER_START, NodeId, SessionId
from corral.domain.node_claims import TRUSTED
from corral.domain.records import NodeRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.pki.names import Peer, PeerKind
from corral.system.clock import Clock
from corral.system.controller_config import LinkSection
from corral.system.entropy import Entropy, new_id
from corral.version import PROTOCOL_VERSION
from corral.wire import features
from corral.wire.features import support_of
from corral.wire.frames import read_frame
from corral.wire.v1.instance_pb2 import RunName
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.link_pb2_grpc import DaemonServiceServicer
from corral.wire.v1.node_pb2 import CertificateIssued, Handshake, HandshakeAck

_log = structlog.get_logger("corral.controller.sessions")


class DaemonService(DaemonServiceServicer):
    """One `Connect` call is one session."""

    def __init__(
        self, *, lookup: LeaderLookup, settings: LinkSection, clock: Clock, entropy: Entropy
    ) -> None:
        self._lookup = lookup
        self._settings = settings
        self._clock = clock
        self._entropy = entropy

    async def Connect(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        async with translated(context, "Connect"):
            peer = authenticated(context)
            if (leading := self._lookup.leading()) is not None:  # refused before its frames are read
                greeting.authorise(leading.state, peer, kind=PeerKind.NODE, now=self._clock.now())
            hello = greeting.expect_handshake(await self._first_frame(context))
            if not greeting.compatible(hello):
                await self._part(context, hello)
                return
            leading = self._lookup.leading()
            if leading is None:
                await self._redirect(context)
                return
            reason = await self._serve(context, leading, peer, hello)
            if reason is not None:
                raise reason

    async def _first_frame(self, context: Any) -> DaemonMessage:
        try:
            async with asyncio.timeout(self._settings.handshake_timeout_seconds):
                frame = await read_frame(context)
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"no Handshake within {self._settings.handshake_timeout_seconds:g} s",
            ) from None
        if not isinstance(frame, DaemonMessage):
            raise Rejected(Code.HANDSHAKE_EXPECTED, "the stream ended before its Handshake")
        return frame

    async def _part(self, context: Any, hello: Handshake) -> None:
        """Refuse an incompatible protocol version with messages that every version understands, then end the
        stream."""
        _log.warning(
            "link_protocol.refused",
            node=hello.node_id[:80],
            theirs=hello.protocol_version,
            ours=PROTOCOL_VERSION,
        )
        ack = HandshakeAck(protocol_version=PROTOCOL_VERSION, protocol_compatible=False)
        await context.write(ControllerMessage(handshake_ack=ack))

    async def _redirect(self, context: Any) -> None:
        """Redirect to the leader. A standby never opens a session and never stops anything."""
        ack = HandshakeAck(
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            leader_grpc_addr=self._lookup.leader_address(),
            controller_grpc_addrs=self._lookup.controller_addresses(),
        )
        await context.write(ControllerMessage(handshake_ack=ack))

    async def _serve(
        self, context: Any, leading: LinkTerm, peer: Peer, hello: Handshake
    ) -> CorralError | None:
        greeting.authorise(leading.state, peer, kind=PeerKind.NODE, now=self._clock.now())
        node_id = greeting.check_node_name(hello, peer)
        if hello.known_epoch > leading.epoch:
            raise Rejected(
                Code.STALE_EPOCH,
                f"node '{node_id}' obeyed epoch {hello.known_epoch}, this controller leads under {leading.epoch}",
                hint="if this store was restored from a backup, run 'corral cluster raise-epoch'",
            )
        await leading.sessions.refuse_clone(node_id, hello)
        session = self._session(leading, peer, hello, node_id)
        leading.sessions.enter(session)
        reason: CorralError | None = None
        try:
            await self._open(leading, session, hello)
            await context.write(self._welcome(leading, session))
            if not session.closing:
                self._report_refused_labels(session, hello)
                leading.modules.joined(session, hello)
            reason = await session.run(context)
        except CorralError as error:
            reason = error
        finally:
            leading.modules.left(session)
            leading.sessions.leave(session, reason)
        return reason

    @staticmethod
    def _report_refused_labels(session: Session, hello: Handshake) -> None:
        _, refused = greeting.claims_of(hello)
        if refused:
            error = Rejected(
                Code.INVALID_FIELD,
                f"labels that begin with '{TRUSTED}' are set by operators alone; not taken: {', '.join(refused)}",
                hint=f"corral node label {session.facts.node_id} {refused[0]}=VALUE",
                field="labels",
            )
            _log.warning("session_labels.refused", node=session.facts.node_id, labels=refused)
            session.report(error, context="handshake")

    def _session(self, leading: LinkTerm, peer: Peer, hello: Handshake, node_id: NodeId) -> Session:
        facts = SessionFacts(
            id=SessionId(new_id("ses", self._entropy)),
            node_id=node_id,
            serial=peer.serial,
            certificate_expires_at=peer.expires_at,
            host=greeting.host_of(hello),
            spool_id=hello.spool_id,
            epoch=leading.epoch,
            supports=support_of(hello.features),
        )

        def intake_of(confirm: Callable[[int], None], ask: Callable[[ControllerMessage], bool]) -> Intake:
            return Intake(
                ledger=leading.ledger,
                clock=self._clock,
                node_id=node_id,
                session_id=facts.id,
                hello=hello,
                reports=leading.reports,
                modules=leading.modules,
                confirm=confirm,
                ask=ask,
            )

        async def renew(csr_pem: bytes) -> CertificateIssued:
            certificate = await leading.enrolment.renew(node_id, proven=peer.serial, csr_pem=csr_pem)
            return CertificateIssued(certificate_pem=certificate, trusted_ca_pem=leading.trusted_ca_pem)

        return Session(
            facts=facts,
            clock=self._clock,
            intake_of=intake_of,
            receivers=FrameReceivers(
                reports=leading.reports,
                consoles=leading.consoles,
                files=leading.files,
                modules=leading.modules,
            ),
            renew=renew,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            missed_pongs=self._settings.missed_pongs,
            on_round_trip=leading.sessions.round_trips.observe,
        )

    async def _open(self, leading: LinkTerm, session: Session, hello: Handshake) -> None:
        """Store that the node is online; the welcome is sent only after that."""

        def change(stored: StoredRecord[NodeRecord]) -> tuple[NodeRecord, list[Step]]:
            if leading.sessions.find(session.facts.node_id) is not session:
                raise Retryable(Code.CONFLICT, "a newer session of this node was opened meanwhile")
            record, events = greeting.opened(stored, hello, session=session.facts.id, now=self._clock.now())
            return record, [*events, *([lost] if lost else [])]

        known = session.facts.node_id in leading.sessions.ahead_of_store
        lost = None if known else greeting.lost_reports(leading.state, hello)
        await leading.ledger.revise(leading.state.nodes, session.facts.node_id, change)
        if lost is not None:
            _log.error("store_rollback.found", node=session.facts.node_id, **lost.data)
            leading.sessions.ahead_of_store.add(session.facts.node_id)
        _log.info(
            "session.opened", node=session.facts.node_id, session=session.facts.id, version=hello.version
        )

    def _welcome(self, leading: LinkTerm, session: Session) -> ControllerMessage:
        node = leading.state.nodes.require(session.facts.node_id).record
        position = leading.state.spools.find(session.facts.node_id)
        same_spool = position is not None and position.record.spool_id == session.facts.spool_id
        ack = HandshakeAck(
            session_id=session.facts.id,
            heartbeat_interval_ms=int(self._settings.heartbeat_seconds * 1000),
            controller_api_port=self._lookup.api_port(),
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            epoch=leading.epoch,
            controller_grpc_addrs=self._lookup.controller_addresses(),
            features=features.FEATURES,
            spool_confirmed=position.record.sequence if position and same_spool else 0,
            trusted_ca_pem=leading.trusted_ca_pem,
            log_level=node.log_level,
            consoles=leading.consoles.positions(session.facts.node_id),
            modules=leading.modules.desired(session.facts.node_id),
            event_head=leading.modules.event_head(),
            known_runs=[
                RunName(instance_id=stored.record.id, incarnation=stored.record.incarnation)
                for stored in leading.state.instances.of_node(session.facts.node_id)
                if stored.record.incarnation % RESTARTS_PER_START
            ],
        )
        return ControllerMessage(handshake_ack=ack, epoch=leading.epoch)
