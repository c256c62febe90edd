"""Daemons that lack optional parts of our protocol, up to those that speak the published one alone.

The rest of the controller speaks one protocol. Here, at the edge of a session, what such a daemon does not know
becomes what it knows, or nothing, and what it would have answered is answered in its place.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from corral.controller.sessions.published_start import add_published_fields
from corral.errors import Code
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
    """Add what a published daemon does not say: it starts processes. What it cannot mean is left out."""
    if not handshake.runtimes and not handshake.features:
        handshake.runtimes.append("process")
    if features.PORTIONS not in handshake.features:
        handshake.portions_follow = False


def published_exit(exit_code: int) -> ExitStatus:
    """The status that a crash report of a published daemon means: it has a code alone, as a shell says it, with 128
    and the signal for a run that a signal ended."""
    number = exit_code - _SIGNALLED
    if number not in _SIGNALS:
        return ExitStatus(
            known=True, code=exit_code, outcome="crashed", summary=f"exited with code {exit_code}"
        )
    summary = f"was ended by {signal.Signals(number).name}"
    return ExitStatus(known=True, signal=number, outcome="crashed", summary=summary)


class PublishedNode:
    """One session with such a daemon. `answer` takes frames that the daemon would have sent."""

    def __init__(self, supports: PeerSupport, *, answer: Callable[[DaemonMessage], object]) -> None:
        self._answer = answer
        self.takes_batches: Final = supports.batches
        self.keeps_to_window: Final = supports.confirmations
        """Does it wait for confirmations? Else its stream is read more slowly instead."""
        self._outgoing = {
            kind: form
            for ability, forms in _OUTGOING.items()
            if not getattr(supports, ability)
            for kind, form in forms.items()
        }
        self._supports = supports
        self._commands: dict[str, SendCommandAck] = {}
        """What is answered to lines that are on their way, by request."""
        self._questions: deque[str] = deque(maxlen=_QUESTIONS)
        """Requests about its cache. The latest is answered first: one that is never answered holds up no other."""

    def translated(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """What is sent instead of this."""
        form = self._outgoing.get(kind_of(message))
        return (message,) if form is None else form(self, message)

    def written(self, frame: ControllerMessage) -> None:
        """The frame is on the stream."""
        for message in messages_of(frame):
            ack = self._commands.pop(message.send_command.request_id, None)
            if ack is not None:
                self._answer(DaemonMessage(send_command_ack=ack))

    def ended(self) -> None:
        """Nothing more is sent."""
        commands, self._commands = self._commands, {}
        for ack in commands.values():
            ack.accepted, ack.error_code, ack.error_message = False, Code.NODE_OFFLINE.name, _GONE
            self._answer(DaemonMessage(send_command_ack=ack))

    def complete(self, frame: NodeFrame) -> None:
        """Add to a frame of the daemon what it does not say, and means."""
        if frame.kind == "crash_report" and not frame.message.crash_report.HasField("exit"):
            report = frame.message.crash_report
            report.exit.CopyFrom(published_exit(report.exit_code))
        elif frame.kind == "cache_status" and not self._supports.templates and self._questions:
            frame.message.cache_status.request_id = self._questions.pop()

    # --- forms of what it does not know ---------------------------------------------------------
    def _nothing(self, _: ControllerMessage) -> Iterable[ControllerMessage]:
        return ()

    def _start(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """It may find the plan in its own fields only, and may keep a ticket for nobody."""
        order = ControllerMessage()
        order.CopyFrom(message)
        if not self._supports.templates:
            add_published_fields(order.start_instance)
        if not self._supports.tickets:
            order.start_instance.ClearField("ticket")
        return (order,)

    def _command(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """It has accepted what was written to its stream."""
        asked = message.send_command
        self._commands[asked.request_id] = SendCommandAck(
            request_id=asked.request_id,
            instance_id=asked.instance_id,
            incarnation=asked.incarnation,
            accepted=True,
        )
        return (message,)

    def _run_ends(self, _: ControllerMessage) -> Iterable[ControllerMessage]:
        """It knows no ends but those that it reports."""
        self._answer(DaemonMessage(run_ends=RunEnds()))
        return ()

    def _refusal(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        told = message.template_unavailable
        report = ErrorReport(
            error_code=told.error_code,
            error_message=told.error_message,
            context=f"template/{told.template_name}",
        )
        return (ControllerMessage(error_report=report),)

    def _cache_question(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        self._questions.append(message.request_cache_status.request_id)
        return (message,)

    def _warming(self, message: ControllerMessage) -> Iterable[ControllerMessage]:
        """It fetches what it can download by itself, and answers nothing: then it is asked what it has."""
        order = ControllerMessage()
        order.CopyFrom(message)
        warm = order.pre_warm_cache
        downloads = [entry for entry in message.pre_warm_cache.entries if entry.download_url]
        del warm.templates[:], warm.entries[:]
        warm.entries.extend(downloads)
        question = RequestCacheStatus(request_id=warm.request_id)
        self._questions.append(warm.request_id)
        asking = ControllerMessage(request_cache_status=question)
        return (order, asking) if downloads else (asking,)


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
"""By what the daemon does not support: what becomes of which frames."""


class NodeOutbox(Outbox[ControllerMessage]):
    """What waits to be sent to such a daemon."""

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

    def replace(self, key: str, message: ControllerMessage) -> bool:
        if self.closed:
            return False
        for each in self._node.translated(message):
            super().replace(key, each)
        return not self.closed

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
