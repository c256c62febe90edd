"""Dispatch of the messages of one node's stream, by kind, to the components that receive them.

The table of frames defines the path of each kind: what must not be lost goes through the intake, everything
else is passed on at once. Nothing here blocks: it runs in the reader of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from corral.controller.sessions.frame_receivers import FrameReceivers
from corral.controller.sessions.heartbeat import Heartbeat
from corral.controller.sessions.node_links import ModuleLink
from corral.controller.sessions.spool_intake import Intake
from corral.domain.ids import SessionId
from corral.errors import Bug, Code, CorralError, Rejected
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.logger import LogQuota
from corral.wire.frame_table import FrameDelivery, NodeFrame
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import CertificateIssued, NodeStatus, ShutdownNodeAck

Renew = Callable[[bytes], Awaitable[CertificateIssued]]


class Reply(Protocol):
    """The way back to the requesting node."""

    def send(self, message: ControllerMessage) -> bool: ...

    def report(self, error: CorralError, *, context: str) -> None: ...


class CertificateRenewal:
    """Certificate renewal of one session, one at a time: a repeated request waits for the same answer."""

    def __init__(self, session_id: SessionId, *, renew: Renew, reply: Reply, tasks: Tasks) -> None:
        """`tasks` end with the session."""
        self._session_id = session_id
        self._renew = renew
        self._reply = reply
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None

    def requested(self, csr_pem: bytes) -> None:
        if self._task is None or self._task.done():
            name = f"session/renew/{self._session_id}"
            self._task = self._tasks.spawn(self._answer(csr_pem), name=name)

    async def _answer(self, csr_pem: bytes) -> None:
        try:
            issued = await self._renew(csr_pem)
        except CorralError as error:
            self._reply.report(error, context="certificate renewal")
            return
        self._reply.send(ControllerMessage(certificate_issued=issued))


_log = structlog.get_logger("corral.controller.sessions")


class NodeStream(ModuleLink, Protocol):
    """The session that the messages come from."""

    def status_reported(self, status: NodeStatus) -> None:
        """The node's load, as of now."""

    def answer_ping(self, sequence: int) -> None: ...

    def shutdown_answered(self, answer: ShutdownNodeAck) -> None:
        """The answer to an order of the node's drain."""


class NodeFrames:
    """The messages of one stream, in the order of arrival."""

    def __init__(
        self,
        stream: NodeStream,
        receivers: FrameReceivers,
        *,
        intake: Intake,
        heartbeat: Heartbeat,
        renewal: CertificateRenewal,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._node_id = stream.facts.node_id
        self._reports = receivers.reports
        self._consoles = receivers.consoles
        self._files = receivers.files
        self._modules = receivers.modules
        self._intake = intake
        self._heartbeat = heartbeat
        self._renewal = renewal
        self._ignored: set[str] = set()
        self._quota = LogQuota(clock=clock)

    def receive(self, frame: NodeFrame) -> None:
        """A CorralError ends the stream: the node violated the protocol. Any other failure concerns this
        message alone."""
        rule = frame.rule
        if rule.delivery is FrameDelivery.STREAM:
            HANDLERS[frame.kind](self, frame)
            return
        if frame.at_once or rule.stored:
            self._guarded(frame)
        if frame.kept:
            self._intake.offer(frame)
        elif rule.delivery is FrameDelivery.IGNORED and frame.kind not in self._ignored:
            # Additive by design: an unknown or unused kind is no reason to disconnect.
            self._ignored.add(frame.kind)
            _log.info("session_frames.skipped", node=self._node_id, kind=frame.kind or "unknown")

    def _guarded(self, frame: NodeFrame) -> None:
        """Handle one message; a failure is reported to the node and the message skipped. The intake still stores
        what must not be lost."""
        try:
            self._hand_on(frame)
        except Exception as error:
            kind = frame.kind
            if (unsaid := self._quota.admit(kind)) is None:
                return
            _log.exception("session_frame.failed", node=self._node_id, kind=kind, unsaid=unsaid)
            report = error if isinstance(error, CorralError) else Bug(f"{kind} could not be dealt with")
            self._stream.report(report, context=f"frame:{kind}")

    def _hand_on(self, frame: NodeFrame) -> None:
        """Pass a frame to its receiver, or return an error to the node when a required field is missing."""
        complaint = frame.complaint()
        if complaint is not None:
            self._stream.report(complaint, context=frame.rule.owner)
        elif frame.at_once:
            HANDLERS[frame.kind](self, frame)

    # --- the stream itself ----------------------------------------------------------------------
    def _handshake_again(self, _: NodeFrame) -> None:
        raise Rejected(Code.BAD_REQUEST, "a stream has one Handshake")

    def _portion(self, frame: NodeFrame) -> None:
        self._intake.list_more(frame.message.handshake_portion)

    def _run_ends(self, frame: NodeFrame) -> None:
        self._intake.exits_reported(frame.message.run_ends)

    def _nested_batch(self, _: NodeFrame) -> None:
        raise Rejected(Code.BAD_REQUEST, "a batch must not hold a batch")

    def _pong(self, frame: NodeFrame) -> None:
        self._heartbeat.pong(frame.message.pong.sequence)

    def _ping(self, frame: NodeFrame) -> None:
        self._stream.answer_ping(frame.message.ping.sequence)

    def _node_status(self, frame: NodeFrame) -> None:
        self._stream.status_reported(frame.message.node_status)

    def _shutdown_answered(self, frame: NodeFrame) -> None:
        self._stream.shutdown_answered(frame.message.shutdown_node_ack)
        self._reports.drain_answered(self._node_id, frame.message.shutdown_node_ack)

    def _certificate_request(self, frame: NodeFrame) -> None:
        self._renewal.requested(frame.message.certificate_request.csr_pem)

    # --- instances and their consoles -----------------------------------------------------------
    def _instance_status(self, frame: NodeFrame) -> None:
        spooled = frame.message.spool_sequence > 0
        self._reports.transient(self._node_id, frame.message.instance_status, spooled=spooled)

    def _start_answered(self, frame: NodeFrame) -> None:
        ack = frame.message.start_instance_ack
        self._reports.order_answered(self._node_id, ack.instance_id, ack.incarnation)

    def _stop_answered(self, frame: NodeFrame) -> None:
        ack = frame.message.stop_instance_ack
        self._reports.order_answered(self._node_id, ack.instance_id, ack.incarnation)

    def _command_answered(self, frame: NodeFrame) -> None:
        self._reports.command_answered(self._node_id, frame.message.send_command_ack)

    def _node_command_answered(self, frame: NodeFrame) -> None:
        self._reports.node_command_answered(self._node_id, frame.message.node_command_result)

    def _console_batch(self, frame: NodeFrame) -> None:
        self._consoles.receive(self._node_id, self._stream.confirm_consoles, frame.message.console_batch)

    def _console_output(self, frame: NodeFrame) -> None:
        self._consoles.receive_line(self._node_id, frame.message.console_output)

    def _console_query_failed(self, frame: NodeFrame) -> None:
        self._consoles.query_failed(self._node_id, frame.message.console_query_failed)

    # --- templates, caches and files ------------------------------------------------------------
    def _template_request(self, frame: NodeFrame) -> None:
        self._files.template_requested(self._node_id, frame.message.template_request)

    def _cache_status(self, frame: NodeFrame) -> None:
        self._files.cache_reported(self._node_id, frame.message.cache_status)

    def _save_files_failed(self, frame: NodeFrame) -> None:
        self._files.save_failed(self._node_id, frame.message.save_files_failed)

    def _file_tree(self, frame: NodeFrame) -> None:
        self._files.files_reported(self._node_id, frame.message.instance_file_tree)

    def _file_content(self, frame: NodeFrame) -> None:
        self._files.files_reported(self._node_id, frame.message.instance_file_content)

    def _files_answer(self, frame: NodeFrame) -> None:
        self._files.files_reported(self._node_id, frame.message.instance_files_answer)

    # --- modules --------------------------------------------------------------------------------
    def _module_state(self, frame: NodeFrame) -> None:
        update = frame.message.module_state_update
        self._modules.state_reported(self._stream, update, on_its_way=frame.momentary)

    def _event_subscribe(self, frame: NodeFrame) -> None:
        self._modules.subscribed(self._stream, frame.message.event_subscribe)

    def _event_unsubscribe(self, frame: NodeFrame) -> None:
        self._modules.unsubscribed(self._stream, frame.message.event_unsubscribe)

    def _capability_call(self, frame: NodeFrame) -> None:
        self._modules.called(self._stream, frame.message.capability_call)

    def _module_metrics(self, frame: NodeFrame) -> None:
        self._modules.metrics_reported(self._stream, frame.message.module_metrics)


HANDLERS: Final[Mapping[str, Callable[[NodeFrames, NodeFrame], None]]] = {
    "handshake": NodeFrames._handshake_again,
    "handshake_portion": NodeFrames._portion,
    "batch": NodeFrames._nested_batch,
    "run_ends": NodeFrames._run_ends,
    "pong": NodeFrames._pong,
    "ping": NodeFrames._ping,
    "node_status": NodeFrames._node_status,
    "shutdown_node_ack": NodeFrames._shutdown_answered,
    "certificate_request": NodeFrames._certificate_request,
    "instance_status": NodeFrames._instance_status,
    "start_instance_ack": NodeFrames._start_answered,
    "stop_instance_ack": NodeFrames._stop_answered,
    "send_command_ack": NodeFrames._command_answered,
    "node_command_result": NodeFrames._node_command_answered,
    "console_batch": NodeFrames._console_batch,
    "console_output": NodeFrames._console_output,
    "console_query_failed": NodeFrames._console_query_failed,
    "template_request": NodeFrames._template_request,
    "cache_status": NodeFrames._cache_status,
    "save_files_failed": NodeFrames._save_files_failed,
    "instance_file_tree": NodeFrames._file_tree,
    "instance_file_content": NodeFrames._file_content,
    "instance_files_answer": NodeFrames._files_answer,
    "module_state_update": NodeFrames._module_state,
    "event_subscribe": NodeFrames._event_subscribe,
    "event_unsubscribe": NodeFrames._event_unsubscribe,
    "capability_call": NodeFrames._capability_call,
    "module_metrics": NodeFrames._module_metrics,
}
"""The handlers of all kinds that are passed on at once or concern the stream itself."""
