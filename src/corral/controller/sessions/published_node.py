"""Daemons that lack optional parts of Corral's protocol, down to those that implement only the published one.

The rest of the controller uses one protocol. Here, at the edge of a session, messages that such a daemon does
not know are translated or dropped, and the answers that it cannot give are generated in its place.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from corral.controller.sessions.published_start import add_published_fields
from corral.errors import Code
from corral.system.signals import signal_name
from corral.wire import features
from corral.wire.features import PeerSupport
from corral.wire.frame_table import NodeFrame, kind_of, messages_of
from corral.wire.outbox import Outbox
from corral.wire.v1.instance_pb2 import ExitStatus, RunEnds, SendCommandAck
from corral.wire.v1.link_pb2 import ControllerBatch, ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, Handshake
from corral.wire.v1.plan_pb2 import RequestCacheStatus

_QUESTIONS: Final = 16
_SIGNALLED: Final = 128
_SIGNALS: Final = frozenset(signal.valid_signals()) & frozenset(signal.Signals)
_GONE: Final = "the session ended; the line may have arrived, look at the console"


def complete_handshake(handshake: Handshake) -> None:
    """Complete the handshake of a published daemon: it starts processes. Fields that do not apply to it are
    cleared."""
    if not handshake.runtimes and not handshake.features:
        handshake.runtimes.append("process")
    if features.PORTIONS not in handshake.features:
        handshake.portions_follow = False


def published_exit(exit_code: int) -> ExitStatus:
    """The exit status for a crash report of a published daemon: it has only an exit code as in a shell, 128
    plus the signal for a run that a signal ended."""
    number = exit_code - _SIGNALLED
    if number not in _SIGNALS:
        return ExitStatus(
            known=True, code=exit_code, outcome="crashed", summary=f"exited with code {exit_code}"
        )
    summary = f"was ended by {signal_name(number)}"
    return ExitStatus(known=True, signal=number, outcome="crashed", summary=summary)


class PublishedNode:
    """One session with such a daemon. `answer` receives the frames generated in the daemon's place."""

    def __init__(self, supports: PeerSupport, *, answer: Callable[[DaemonMessage], object]) -> None:
        self._answer = answer
        self.takes_batches: Final = supports.batches
        self.keeps_to_window: Final = supports.confirmations
        """Does the daemon wait for confirmations? Otherwise its stream is read more slowly instead."""
        self._outgoing = {
            kind: form
            for ability, forms in _OUTGOING.items()
            if not getattr(supports, ability)
            for kind, form in forms.items()
        }
        self._supports = supports
        self._commands: dict[str, SendCommandAck] = {}
        """The answers to commands that are queued for sending, by request."""
        self._questions: deque[str] = deque(maxlen=_QUESTIONS)
        """Requests about its cache. The latest is answered first: one that is never answered delays no other.
        """

    def translated(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """The messages sent in place of this one."""
        form = self._outgoing.get(kind_of(message))
        return (message,) if form is None else form(self, message)

    def written(self, frame: ControllerMessage) -> None:
        """The frame was written to the stream."""
        for message in messages_of(frame):
            ack = self._commands.pop(message.send_command.request_id, None)
            if ack is not None:
                self._answer(DaemonMessage(send_command_ack=ack))

    def ended(self) -> None:
        """The stream has ended; nothing more is sent."""
        commands, self._commands = self._commands, {}
        for ack in commands.values():
            ack.accepted, ack.error_code, ack.error_message = False, Code.NODE_OFFLINE.name, _GONE
            self._answer(DaemonMessage(send_command_ack=ack))

    def complete(self, frame: NodeFrame) -> None:
        """Add to a frame of the daemon the fields that it implies but does not set."""
        if frame.kind == "crash_report" and not frame.message.crash_report.HasField("exit"):
            report = frame.message.crash_report
            report.exit.CopyFrom(published_exit(report.exit_code))
        elif frame.kind == "cache_status" and not self._supports.templates and self._questions:
            frame.message.cache_status.request_id = self._questions.pop()

    # --- translations of messages that the daemon does not know ----------------------------------
    def _nothing(self, _: ControllerMessage) -> Iterable[ControllerMessage]:
        return ()

    def _start(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """A start for a daemon that may read the plan only from published fields, and may not store tickets."""
        order = ControllerMessage()
        order.CopyFrom(message)
        if not self._supports.templates:
            add_published_fields(order.start_instance)
        if not self._supports.tickets:
            order.start_instance.ClearField("ticket")
        return (order,)

    def _command(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """A command counts as accepted once it is written to the stream."""
        asked = message.send_command
        self._commands[asked.request_id] = SendCommandAck(
            request_id=asked.request_id,
            instance_id=asked.instance_id,
            incarnation=asked.incarnation,
            accepted=True,
        )
        return (message,)

    def _run_ends(self, _: ControllerMessage) -> Iterable[ControllerMessage]:
        """Answer with no exits: the daemon keeps none besides those that it reports."""
        self._answer(DaemonMessage(run_ends=RunEnds()))
        return ()

    def _refusal(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        refused = message.template_unavailable
        report = ErrorReport(
            error_code=refused.error_code,
            error_message=refused.error_message,
            context=f"template/{refused.template_name}",
        )
        return (ControllerMessage(error_report=report),)

    def _cache_question(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        self._questions.append(message.request_cache_status.request_id)
        return (message,)

    def _warming(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """Send what the daemon can download by itself. It does not answer this, so its cache is queried
        afterwards."""
        order = ControllerMessage()
        order.CopyFrom(message)
        warm = order.pre_warm_cache
        downloads = [entry for entry in message.pre_warm_cache.entries if entry.download_url]
        del warm.templates[:], warm.entries[:]
        warm.entries.extend(downloads)
        question = RequestCacheStatus(request_id=warm.request_id)
        self._questions.append(warm.request_id)
        query = ControllerMessage(request_cache_status=question)
        return (order, query) if downloads else (query,)


Form = Callable[[PublishedNode, ControllerMessage], Iterable[ControllerMessage]]
_OUTGOING: Final[Mapping[str, Mapping[str, Form]]] = {
    "log_levels": {"set_log_level": PublishedNode._nothing},
    "modules": {"capability_offers": PublishedNode._nothing},
    "tickets": {"start_instance": PublishedNode._start},
    "consoles": {"send_command": PublishedNode._command},
    "run_ends": {"ask_run_ends": PublishedNode._run_ends},
    "templates": {
        "start_instance": PublishedNode._start,
        "template_unavailable": PublishedNode._refusal,
        "request_cache_status": PublishedNode._cache_question,
        "pre_warm_cache": PublishedNode._warming,
    },
}
"""The translations of frames, by the feature that the daemon does not support."""


class NodeOutbox(Outbox[ControllerMessage]):
    """The send queue for such a daemon."""

    def __init__(self, node: PublishedNode) -> None:
        super().__init__(bundle=_bundle if node.takes_batches else None)
        self._node = node
        self._taken_frame: ControllerMessage | None = None

    def send(self, message: ControllerMessage) -> bool:
        if self.closed:
            return False
        for each in self._node.translated(message):
            super().send(each)
        return not self.closed

    def _forms_of(self, made: ControllerMessage) -> Iterable[ControllerMessage]:
        return self._node.translated(made)

    async def next_frame(self) -> ControllerMessage | None:
        if self._taken_frame is not None:
            self._node.written(self._taken_frame)
        self._taken_frame = await super().next_frame()
        return self._taken_frame

    def close(self) -> None:
        super().close()
        self._node.ended()


def _bundle(messages: list[ControllerMessage]) -> ControllerMessage:
    return ControllerMessage(batch=ControllerBatch(messages=messages))
