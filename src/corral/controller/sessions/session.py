"""One live stream of one daemon: a reader, one writer, a heartbeat and an intake.

The four end together. Whoever ends first says why; the registry turns that into the node's state.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from corral.controller.node_modules.states import is_progress
from corral.controller.sessions.intake import Intake
from corral.controller.sessions.live import (
    MODULE_FRAMES,
    MODULE_REPORTS,
    ConsoleSink,
    FileTraffic,
    LiveNode,
    ModuleTraffic,
)
from corral.controller.sessions.reporting import REPORTS, NodeReports, missing_field, passing
from corral.domain.ids import Epoch, NodeId, SessionId
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import Clock
from corral.wire import features
from corral.wire.outbox import FRAME_MESSAGES, Outbox
from corral.wire.v1.instance_pb2 import ConsoleAck, ConsolePosition
from corral.wire.v1.link_pb2 import ControllerBatch, ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import CertificateIssued, ErrorReport, Ping, SetLogLevel, SpoolAck

_MAX_PORT: Final = 65_535
_TAKEN_IN: Final = REPORTS | MODULE_REPORTS | {"daemon_log_record", "error_report"}
_log = structlog.get_logger("corral.controller.session")

Renew = Callable[[bytes], Awaitable[CertificateIssued]]


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


def bundle(messages: list[ControllerMessage]) -> ControllerMessage:
    return ControllerMessage(batch=ControllerBatch(messages=messages))


class Session:
    """A node's stream. `send` never blocks; `run` lives as long as the stream does."""

    def __init__(
        self,
        *,
        facts: SessionFacts,
        clock: Clock,
        intake_of: Callable[[Callable[[int], None]], Intake],
        reports: NodeReports,
        consoles: ConsoleSink,
        files: FileTraffic,
        modules: ModuleTraffic,
        renew: Renew,
        heartbeat_seconds: float,
        missed_pongs: int,
        on_round_trip: Callable[[float], None],
    ) -> None:
        self.facts = facts
        self.live = LiveNode(session_id=facts.id, connected_at=clock.now(), last_seen=clock.now())
        self._clock = clock
        self._reports = reports
        self._consoles = consoles
        self._files = files
        self._modules = modules
        self._renew = renew
        self._heartbeat_seconds = heartbeat_seconds
        self._missed_pongs = missed_pongs
        self._on_round_trip = on_round_trip
        batching = features.BATCH in facts.features
        self.outbox: Outbox[ControllerMessage] = Outbox(bundle=bundle if batching else None)
        self._intake = intake_of(self._confirm)
        self._pinged = 0
        self._ponged = 0
        self._pinged_at = 0.0
        self._answered = asyncio.Event()
        self.over = asyncio.Event()
        self._ignored: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[CorralError] = asyncio.get_running_loop().create_future()

    def send(self, message: ControllerMessage) -> bool:
        """Queue a frame for the node; False when its stream is over."""
        accepted = self.outbox.send(message)
        if self.outbox.overflowed:
            self.close(Retryable(Code.PEER_TOO_SLOW, f"node '{self.facts.node_id}' does not read its stream"))
        return accepted

    @property
    def closing(self) -> bool:
        """It was told to end, if only before it began: a newer one of the node is there, or the term is over."""
        return self._ended.done()

    def close(self, reason: CorralError) -> None:
        """End the stream; the first reason counts."""
        if not self._ended.done():
            self._ended.set_result(reason)

    def set_log_level(self, level: str) -> None:
        if features.LOG_LEVEL in self.facts.features:
            self.outbox.replace("log-level", ControllerMessage(set_log_level=SetLogLevel(level=level)))

    async def run(self, context: Any) -> CorralError | None:
        """Serve the stream until either side ends it. None: the daemon said goodbye."""
        tasks = [
            asyncio.create_task(self._read(context), name=f"session/read/{self.facts.id}"),
            asyncio.create_task(self._write(context), name=f"session/write/{self.facts.id}"),
            asyncio.create_task(self._heartbeat(), name=f"session/heartbeat/{self.facts.id}"),
            asyncio.create_task(self._intake.run(), name=f"session/intake/{self.facts.id}"),
        ]
        try:
            ends: list[asyncio.Future[Any]] = [*tasks, self._ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.over.set()
            self.outbox.close()
            if self._renewing is not None:
                tasks.append(self._renewing)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if self._ended.done():
            return self._ended.result()
        failures = [r for r in results if isinstance(r, Exception)]
        for failure in failures:
            if not isinstance(failure, CorralError):
                raise failure
        return failures[0] if failures else None  # type: ignore[return-value]  # all are CorralErrors

    async def _write(self, context: Any) -> None:
        while (frame := await self.outbox.next_frame()) is not None:
            frame.epoch = self.facts.epoch
            await context.write(frame)

    async def _heartbeat(self) -> None:
        while True:
            unanswered = self._pinged - self._ponged
            if unanswered >= self._missed_pongs:
                raise Retryable(
                    Code.UNREACHABLE, f"node '{self.facts.node_id}' left {unanswered} pings unanswered"
                )
            self._ping()
            await asyncio.sleep(self._heartbeat_seconds)

    def _ping(self) -> None:
        self._pinged += 1
        self._pinged_at = self._clock.monotonic()
        self.send(ControllerMessage(ping=Ping(sequence=self._pinged)))

    async def answers(self, *, within: float) -> bool:
        """Is somebody there? Asks, and waits for any answer."""
        self._answered.clear()
        self._ping()
        over = asyncio.create_task(self.over.wait(), name=f"session/over/{self.facts.id}")
        answer = asyncio.create_task(self._answered.wait(), name=f"session/answer/{self.facts.id}")
        try:
            await asyncio.wait([over, answer], timeout=within, return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and not over.done()
        finally:
            for task in (over, answer):
                task.cancel()
            await asyncio.gather(over, answer, return_exceptions=True)

    async def _read(self, context: Any) -> None:
        while isinstance(frame := await context.read(), DaemonMessage):
            self.live = msgspec.structs.replace(self.live, last_seen=self._clock.now())
            if frame.WhichOneof("payload") == "batch":
                if len(frame.batch.messages) > FRAME_MESSAGES:
                    raise Rejected(Code.BAD_REQUEST, f"a batch holds at most {FRAME_MESSAGES} messages")
                for message in frame.batch.messages:
                    self._receive(message)
            else:
                self._receive(frame)

    def _receive(self, message: DaemonMessage) -> None:
        kind = message.WhichOneof("payload")
        if kind in REPORTS:
            self._report_received(message)
            if passing(message):
                return
        if kind in MODULE_FRAMES:
            self._modules.received(self, message)
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
                _log.info("session.frames_ignored", node=self.facts.node_id, kind=kind or "unknown")
            return
        handler(self, message)

    def _report_received(self, message: DaemonMessage) -> None:
        """What can be said at once about a report; what it means is for the intake."""
        complaint = missing_field(message)
        if complaint is not None:
            self.report(complaint, context="instances")
        elif message.WhichOneof("payload") == "instance_status":
            self._reports.heard(self.facts.node_id, message.instance_status)
        self._reports.order_answered(message)

    def _command_answered(self, message: DaemonMessage) -> None:
        self._reports.command_answered(self.facts.node_id, message.send_command_ack)

    def _console_batch(self, message: DaemonMessage) -> None:
        self._consoles.receive(self.facts.node_id, self._confirm_console, message.console_batch)

    def _console_output(self, message: DaemonMessage) -> None:
        self._consoles.receive_line(self.facts.node_id, message.console_output)

    def _console_query_failed(self, message: DaemonMessage) -> None:
        self._consoles.query_failed(self.facts.node_id, message.console_query_failed)

    def _template_request(self, message: DaemonMessage) -> None:
        if not message.template_request.template_name:
            complaint = Rejected(
                Code.MISSING_FIELD, "template_request.template_name is empty", field="template_name"
            )
            self.report(complaint, context="templates")
            return
        self._files.template_requested(self.facts.node_id, message.template_request)

    def _cache_status(self, message: DaemonMessage) -> None:
        self._files.cache_told(self.facts.node_id, message.cache_status)

    def _save_files_failed(self, message: DaemonMessage) -> None:
        self._files.save_failed(self.facts.node_id, message.save_files_failed)

    def _file_tree(self, message: DaemonMessage) -> None:
        self._files.files_told(self.facts.node_id, message.instance_file_tree)

    def _file_content(self, message: DaemonMessage) -> None:
        self._files.files_told(self.facts.node_id, message.instance_file_content)

    def _confirm_console(self, position: ConsolePosition) -> None:
        key = f"console:{position.instance_id}:{position.incarnation}"
        self.outbox.replace(key, ControllerMessage(console_ack=ConsoleAck(positions=[position])))

    def _handshake_again(self, _: DaemonMessage) -> None:
        raise Rejected(Code.BAD_REQUEST, "a stream has one Handshake")

    def _nested_batch(self, _: DaemonMessage) -> None:
        raise Rejected(Code.BAD_REQUEST, "a batch must not hold a batch")

    def _pong(self, message: DaemonMessage) -> None:
        sequence = message.pong.sequence
        if not self._ponged < sequence <= self._pinged:
            return
        self._ponged = sequence
        self._answered.set()
        if sequence == self._pinged:
            self._on_round_trip(self._clock.monotonic() - self._pinged_at)

    def _node_status(self, message: DaemonMessage) -> None:
        status = message.node_status
        self.live = msgspec.structs.replace(
            self.live,
            cpu_usage=min(1.0, max(0.0, status.cpu_usage)) if math.isfinite(status.cpu_usage) else 0.0,
            memory_mb=max(0, status.total_memory_mb),
            used_memory_mb=max(0, status.used_memory_mb),
            free_disk_mb=max(0, status.free_disk_mb),
            total_disk_mb=max(0, status.total_disk_mb),
            instance_count=max(0, status.instance_count),
            used_ports=tuple(port for port in status.used_ports[:_MAX_PORT] if 0 < port <= _MAX_PORT),
        )

    def _certificate_request(self, message: DaemonMessage) -> None:
        if self._renewing is None or self._renewing.done():
            csr = message.certificate_request.csr_pem
            self._renewing = asyncio.create_task(
                self._answer_renewal(csr), name=f"session/renew/{self.facts.id}"
            )

    async def _answer_renewal(self, csr_pem: bytes) -> None:
        try:
            issued = await self._renew(csr_pem)
        except CorralError as error:
            self.report(error, context="certificate renewal")
            return
        self.send(ControllerMessage(certificate_issued=issued))

    def report(self, error: CorralError, *, context: str) -> None:
        """Tell the daemon of trouble that does not end the stream."""
        retry = int(error.retry_after or 0)
        self.send(
            ControllerMessage(
                error_report=ErrorReport(
                    error_code=error.code.name,
                    error_message=str(error),
                    context=context,
                    retry_after_seconds=retry,
                )
            )
        )

    def _confirm(self, sequence: int) -> None:
        self.outbox.replace("spool", ControllerMessage(spool_ack=SpoolAck(sequence=sequence)))


def _momentary(message: DaemonMessage) -> bool:
    return message.WhichOneof("payload") == "module_state_update" and is_progress(
        message.module_state_update, message.spool_sequence
    )


_HANDLERS: Final[dict[str, Callable[[Session, DaemonMessage], None]]] = {
    "handshake": Session._handshake_again,
    "batch": Session._nested_batch,
    "pong": Session._pong,
    "node_status": Session._node_status,
    "certificate_request": Session._certificate_request,
    "send_command_ack": Session._command_answered,
    "console_batch": Session._console_batch,
    "console_output": Session._console_output,
    "console_query_failed": Session._console_query_failed,
    "template_request": Session._template_request,
    "cache_status": Session._cache_status,
    "save_files_failed": Session._save_files_failed,
    "instance_file_tree": Session._file_tree,
    "instance_file_content": Session._file_content,
}
