"""One live stream of one daemon: a reader, one writer, a heartbeat, an intake and the expiry of its
certificate.

The five tasks end together. The first to end gives the reason; the registry derives the node's state from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from corral.controller.sessions.console_acks import ConsoleAcks
from corral.controller.sessions.frame_receivers import FrameReceivers
from corral.controller.sessions.heartbeat import Heartbeat
from corral.controller.sessions.live_nodes import LiveNode, SessionFacts, drain_ack, loaded
from corral.controller.sessions.node_frames import CertificateRenewal, NodeFrames, Renew
from corral.controller.sessions.published_node import NodeOutbox, PublishedNode
from corral.controller.sessions.spool_intake import Intake
from corral.domain.causes import cause_of, request_of
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system import log_context
from corral.system.aio.tasks import Tasks, failure_of, first_of
from corral.system.clock import Clock
from corral.wire.frame_table import messages_of, node_frame
from corral.wire.frames import read_frame
from corral.wire.outbox import FRAME_MESSAGES, Outbox
from corral.wire.v1.instance_pb2 import ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, NodeStatus, Pong, SetLogLevel, ShutdownNodeAck, SpoolAck

_CERTIFICATE_CHECK_SECONDS: Final = 30.0
"""Short, because a wall clock may step."""
_MOST_STRAYS: Final = 1000


class Session:
    """A node's stream. `send` never blocks; `run` lives as long as the stream does."""

    def __init__(
        self,
        *,
        facts: SessionFacts,
        clock: Clock,
        intake_of: Callable[[Callable[[int], None], Callable[[ControllerMessage], bool]], Intake],
        receivers: FrameReceivers,
        renew: Renew,
        heartbeat_seconds: float,
        missed_pongs: int,
        on_round_trip: Callable[[float], None],
    ) -> None:
        self.facts = facts
        self.live = LiveNode(session_id=facts.id, connected_at=clock.now(), last_seen=clock.now())
        self._clock = clock
        self._peer = PublishedNode(facts.supports, answer=self._receive)
        self.outbox: Outbox[ControllerMessage] = NodeOutbox(self._peer)
        self._console_acks = ConsoleAcks(self.outbox)
        self.heartbeat = Heartbeat(
            facts,
            send=self.send,
            seconds=heartbeat_seconds,
            missed_pongs=missed_pongs,
            clock=clock,
            on_round_trip=on_round_trip,
        )
        self._intake = intake_of(self._confirm, self.send)
        self._tasks = Tasks()
        self._renewal = CertificateRenewal(facts.id, renew=renew, reply=self, tasks=self._tasks)
        self._frames = NodeFrames(
            self,
            receivers,
            intake=self._intake,
            heartbeat=self.heartbeat,
            renewal=self._renewal,
            clock=clock,
        )
        self._strays: set[tuple[str, int]] = set()
        self.left_alone: set[str] = set()
        """Ids of runs on the node that nothing proves to be the cluster's: these ids are not given out while
        the session lasts."""
        self.over = asyncio.Event()
        self._ended: asyncio.Future[CorralError] = asyncio.get_running_loop().create_future()

    # --- to the node ----------------------------------------------------------------------------
    def send(self, message: ControllerMessage) -> bool:
        """Queue a frame for the node; False when its stream is over. The frame carries the id of the request
        that is being served, unless it is an event: event frames are shared by sessions."""
        if not message.cause and not message.HasField("module_event"):
            message.cause = cause_of(log_context.bound_request())
        accepted = self.outbox.send(message)
        self._close_if_peer_too_slow()
        return accepted

    def first_stop_of(self, id: str, incarnation: int) -> bool:
        """True for the first stop order of this stray in this session. The number is limited, because a node
        may list any number of strays."""
        if (id, incarnation) in self._strays or len(self._strays) >= _MOST_STRAYS:
            return False
        self._strays.add((id, incarnation))
        return True

    def set_log_level(self, level: str) -> None:
        self.outbox.replace("log-level", ControllerMessage(set_log_level=SetLogLevel(level=level)))

    def report(self, error: CorralError, *, context: str) -> None:
        """Send the daemon an error that does not end the stream."""
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

    def confirm_consoles(self, positions: Sequence[ConsolePosition]) -> None:
        self._console_acks.add(positions)
        self._close_if_peer_too_slow()

    def _close_if_peer_too_slow(self) -> None:
        if self.outbox.overflowed:
            self.close(Retryable(Code.PEER_TOO_SLOW, f"node '{self.facts.node_id}' does not read its stream"))

    def _confirm(self, sequence: int) -> None:
        self.outbox.replace("spool", ControllerMessage(spool_ack=SpoolAck(sequence=sequence)))

    # --- from the node --------------------------------------------------------------------------
    def status_reported(self, status: NodeStatus) -> None:
        self.live = loaded(self.live, status)

    def shutdown_answered(self, answer: ShutdownNodeAck) -> None:
        self.live = msgspec.structs.replace(self.live, drain_ack=drain_ack(answer))

    def answer_ping(self, sequence: int) -> None:
        """Only the latest answer waits to be sent, however many pings arrive."""
        self.outbox.replace("pong", ControllerMessage(pong=Pong(sequence=sequence)))

    async def answers(self, *, within: float) -> bool:
        """Does the node respond? Sends a ping and waits for any answer."""
        return await self.heartbeat.answers(within=within, over=self.over)

    # --- from beginning to end ------------------------------------------------------------------
    @property
    def closing(self) -> bool:
        """The session has been ended, possibly before it began: the node has a newer one, or the term is
        over."""
        return self._ended.done()

    def close(self, reason: CorralError) -> None:
        """End the stream; the first reason counts."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def run(self, context: Any) -> CorralError | None:
        """Serve the stream until either side ends it. None: the daemon announced its disconnect."""
        with log_context.only({"node": self.facts.node_id}):
            return await self._run(context)

    async def _run(self, context: Any) -> CorralError | None:
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "read": self._read(context),
            "write": self._write(context),
            "heartbeat": self.heartbeat.run(),
            "intake": self._intake.run(),
            "certificate": self._expire(),
        }
        async with self._tasks as tasks:
            running = [
                tasks.spawn(work, name=f"session/{part}/{self.facts.id}", awaited=True)
                for part, work in parts.items()
            ]
            try:
                await first_of(*running, self._ended)
            finally:
                self.over.set()
                self.outbox.close()
        if self._ended.done():
            return self._ended.result()
        failures = [error for task in running if (error := failure_of(task)) is not None]
        for failure in failures:
            if not isinstance(failure, CorralError):
                raise failure
        return failures[0] if failures else None  # type: ignore[return-value]  # all are CorralErrors

    async def _expire(self) -> None:
        """End the session when its certificate expires; a daemon that renewed it has a newer session by then."""
        while (left := (self.facts.certificate_expires_at - self._clock.now()).total_seconds()) > 0:
            await asyncio.sleep(min(left, _CERTIFICATE_CHECK_SECONDS))
        raise Rejected(
            Code.CERTIFICATE_REFUSED,
            f"the certificate of node '{self.facts.node_id}' has expired",
            hint="enrol it again with a join token",
        )

    async def _write(self, context: Any) -> None:
        while (frame := await self.outbox.next_frame()) is not None:
            frame.epoch = self.facts.epoch
            await context.write(frame)

    async def _read(self, context: Any) -> None:
        while isinstance(frame := await read_frame(context), DaemonMessage):
            if not self._peer.keeps_to_window:
                await self._intake.room()
            self.live = msgspec.structs.replace(self.live, last_seen=self._clock.now())
            messages = messages_of(frame)
            if len(messages) > FRAME_MESSAGES:
                raise Rejected(Code.BAD_REQUEST, f"a batch holds at most {FRAME_MESSAGES} messages")
            for message in messages:
                if self._receive(message) == "console_batch":
                    await asyncio.sleep(0)  # thousands of blocks: let other tasks run

    def _receive(self, message: DaemonMessage) -> str:
        """Handle one message of the node, or one generated in its place; returns its kind. A cause in the
        message is only a text for log records."""
        frame = node_frame(message)
        self._peer.complete(frame)
        if message.cause and (request := request_of(message.cause)):
            with log_context.bound(request=request):
                self._frames.receive(frame)
        else:
            self._frames.receive(frame)
        return frame.kind
