"""What becomes of the messages that a node sends: each goes to whoever understands it.

What must not be lost goes through the intake; everything else is said on at once, and nothing here blocks:
it runs in the reader of the node's stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from corral.controller.modules_on_nodes.ports import ModuleLink
from corral.controller.modules_on_nodes.states import is_progress
from corral.controller.sessions.heartbeat import Heartbeat
from corral.controller.sessions.intake import Intake
from corral.controller.sessions.live import (
    MODULE_FRAMES,
    MODULE_REPORTS,
    ConsoleSink,
    FileTraffic,
    ModuleTraffic,
)
from corral.controller.sessions.renewal import Renewal
from corral.controller.sessions.reporting import REPORTS, NodeReports, missing_field, passing
from corral.errors import Bug, Code, CorralError, Rejected
from corral.system.clock import Clock
from corral.system.log_quota import LogQuota
from corral.wire.v1.instance_pb2 import ConsoleAck, ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import NodeStatus

_TAKEN_IN: Final = REPORTS | MODULE_REPORTS | {"daemon_log_record", "error_report"}
_log = structlog.get_logger("corral.controller.session")


class Listeners(msgspec.Struct, frozen=True, kw_only=True):
    """Those of a term who hear what nodes say."""

    reports: NodeReports
    consoles: ConsoleSink
    files: FileTraffic
    modules: ModuleTraffic


class Stream(ModuleLink, Protocol):
    """The session that the messages come from."""

    def status_told(self, status: NodeStatus) -> None:
        """The node's load, as of now."""


class NodeFrames:
    """Of one stream, in the order in which they come."""

    def __init__(
        self,
        stream: Stream,
        listeners: Listeners,
        *,
        intake: Intake,
        heartbeat: Heartbeat,
        renewal: Renewal,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._node_id = stream.facts.node_id
        self._reports = listeners.reports
        self._consoles = listeners.consoles
        self._files = listeners.files
        self._modules = listeners.modules
        self._intake = intake
        self._heartbeat = heartbeat
        self._renewal = renewal
        self._ignored: set[str] = set()
        self._quota = LogQuota(clock=clock)

    def receive(self, message: DaemonMessage) -> None:
        """A CorralError ends the stream: the node breaks a rule of the protocol. Whatever else goes wrong is about
        this message alone."""
        kind = message.WhichOneof("payload")
        if kind in REPORTS:
            self._guarded(message, self._report_received)
            if passing(message):
                return
        if kind in MODULE_FRAMES:
            self._guarded(message, lambda one: self._modules.received(self._stream, one))
            if kind not in MODULE_REPORTS or _momentary(message):
                return
        if message.spool_sequence or kind in _TAKEN_IN:
            self._intake.offer(message)
            return
        handler = _HANDLERS.get(kind or "")
        if handler is None:
            # Additive by design: a kind we do not know, or do not use yet, is no reason to part.
            if kind not in self._ignored:
                self._ignored.add(kind or "")
                _log.info("session.frames_ignored", node=self._node_id, kind=kind or "unknown")
            return
        if kind in _STREAM_RULES:
            handler(self, message)
        else:
            self._guarded(message, lambda one: handler(self, one))

    def _guarded(self, message: DaemonMessage, handle: Callable[[DaemonMessage], None]) -> None:
        """One message that cannot be dealt with is told, and passed; what must not be lost of it is taken in."""
        try:
            handle(message)
        except Exception as error:
            kind = message.WhichOneof("payload") or "unknown"
            if (unsaid := self._quota.admit(kind)) is None:
                return
            _log.exception("session.frame_failed", node=self._node_id, kind=kind, unsaid=unsaid)
            told = error if isinstance(error, CorralError) else Bug(f"{kind} could not be dealt with")
            self._stream.report(told, context=f"frame:{kind}")

    def _report_received(self, message: DaemonMessage) -> None:
        """What can be said at once about a report; what it means is for the intake."""
        complaint = missing_field(message)
        if complaint is not None:
            self._stream.report(complaint, context="instances")
        elif message.WhichOneof("payload") == "instance_status":
            self._reports.heard(self._node_id, message.instance_status)
        self._reports.order_answered(self._node_id, message)

    # --- the stream itself ----------------------------------------------------------------------
    def _handshake_again(self, _: DaemonMessage) -> None:
        raise Rejected(Code.BAD_REQUEST, "a stream has one Handshake")

    def _portion(self, message: DaemonMessage) -> None:
        self._intake.list_more(message.handshake_portion)

    def _run_ends(self, message: DaemonMessage) -> None:
        self._intake.ends_told(message.run_ends)

    def _nested_batch(self, _: DaemonMessage) -> None:
        raise Rejected(Code.BAD_REQUEST, "a batch must not hold a batch")

    def _pong(self, message: DaemonMessage) -> None:
        self._heartbeat.pong(message.pong.sequence)

    def _node_status(self, message: DaemonMessage) -> None:
        self._stream.status_told(message.node_status)

    def _certificate_request(self, message: DaemonMessage) -> None:
        self._renewal.requested(message.certificate_request.csr_pem)

    # --- instances and their consoles -----------------------------------------------------------
    def _command_answered(self, message: DaemonMessage) -> None:
        self._reports.command_answered(self._node_id, message.send_command_ack)

    def _console_batch(self, message: DaemonMessage) -> None:
        self._consoles.receive(self._node_id, self._confirm_console, message.console_batch)

    def _console_output(self, message: DaemonMessage) -> None:
        self._consoles.receive_line(self._node_id, message.console_output)

    def _console_query_failed(self, message: DaemonMessage) -> None:
        self._consoles.query_failed(self._node_id, message.console_query_failed)

    def _confirm_console(self, position: ConsolePosition) -> None:
        key = f"console:{position.instance_id}:{position.incarnation}"
        self._stream.outbox.replace(key, ControllerMessage(console_ack=ConsoleAck(positions=[position])))

    # --- templates, caches and files ------------------------------------------------------------
    def _template_request(self, message: DaemonMessage) -> None:
        if not message.template_request.template_name:
            complaint = Rejected(
                Code.MISSING_FIELD, "template_request.template_name is empty", field="template_name"
            )
            self._stream.report(complaint, context="templates")
            return
        self._files.template_requested(self._node_id, message.template_request)

    def _cache_status(self, message: DaemonMessage) -> None:
        self._files.cache_told(self._node_id, message.cache_status)

    def _save_files_failed(self, message: DaemonMessage) -> None:
        self._files.save_failed(self._node_id, message.save_files_failed)

    def _file_tree(self, message: DaemonMessage) -> None:
        self._files.files_told(self._node_id, message.instance_file_tree)

    def _file_content(self, message: DaemonMessage) -> None:
        self._files.files_told(self._node_id, message.instance_file_content)


def _momentary(message: DaemonMessage) -> bool:
    return message.WhichOneof("payload") == "module_state_update" and is_progress(
        message.module_state_update, message.spool_sequence
    )


_STREAM_RULES: Final = frozenset({"handshake", "handshake_portion", "batch"})
"""Frames of the stream itself: one that is out of place ends it."""
_HANDLERS: Final[dict[str, Callable[[NodeFrames, DaemonMessage], None]]] = {
    "handshake": NodeFrames._handshake_again,
    "handshake_portion": NodeFrames._portion,
    "batch": NodeFrames._nested_batch,
    "run_ends": NodeFrames._run_ends,
    "pong": NodeFrames._pong,
    "node_status": NodeFrames._node_status,
    "certificate_request": NodeFrames._certificate_request,
    "send_command_ack": NodeFrames._command_answered,
    "console_batch": NodeFrames._console_batch,
    "console_output": NodeFrames._console_output,
    "console_query_failed": NodeFrames._console_query_failed,
    "template_request": NodeFrames._template_request,
    "cache_status": NodeFrames._cache_status,
    "save_files_failed": NodeFrames._save_files_failed,
    "instance_file_tree": NodeFrames._file_tree,
    "instance_file_content": NodeFrames._file_content,
}
