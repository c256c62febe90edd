"""Adapter for controllers that lack optional parts of our protocol, down to those that have the published one alone.

The rest of the daemon uses one protocol. This adapter, at the edge of a connection, translates messages that such a
controller does not know into messages it knows, and produces the answers that it cannot send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from corral.domain.events import former_name
from corral.errors import Code
from corral.wire.features import PeerSupport
from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, SpoolAck
from corral.wire.v1.plan_pb2 import TemplateUnavailable

TEMPLATE_SECONDS: Final = 30.0
"""How long the answer to a template request is awaited."""
_REFUSALS: Final = frozenset(
    {Code.TEMPLATE_NOT_FOUND.name, Code.TEMPLATE_UNAVAILABLE.name, Code.ARCHIVE_TOO_LARGE.name}
)


def _use_former_names(message: DaemonMessage) -> None:
    for kind in ("event_subscribe", "event_unsubscribe"):
        if message.HasField(kind):
            names = getattr(message, kind).event_types
            names[:] = [former_name(name) for name in names]


class PublishedController:
    """One connection to a controller with a given set of features. `answer` receives the frames produced in its
    place."""

    def __init__(
        self,
        supports: PeerSupport,
        *,
        answer: Callable[[ControllerMessage], None],
        monotonic: Callable[[], float],
    ) -> None:
        self.takes_batches: Final = supports.batches
        self._confirms = supports.confirmations
        self._refuses = supports.templates
        self._event_names = supports.event_names
        self._answer = answer
        self._monotonic = monotonic
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """Spool numbers that this controller will not confirm, each after its position on the stream."""
        self._asked: dict[str, float] = {}
        """Templates that were requested and not answered yet, each with the time of the request."""

    def translate(self, message: DaemonMessage) -> int:
        """Change the message into one that the controller knows; returns the spool number removed from it, else 0."""
        if message.HasField("template_request") and not self._refuses:
            self._asked[message.template_request.template_name] = self._monotonic()
        if not self._event_names:
            _use_former_names(message)
        number = 0 if self._confirms else message.spool_sequence
        if number:
            message.ClearField("spool_sequence")
        return number

    def sent(self, number: int, place: int) -> None:
        """The record with this number is on the stream once so many messages are."""
        self._unconfirmed.append((place, number))

    def written(self, count: int) -> None:
        """So many messages are on the stream. For a controller without confirmations, written counts as confirmed:
        records written in the second before a power cut may be sent twice, everything else is sent once."""
        confirmed = 0
        while self._unconfirmed and self._unconfirmed[0][0] <= count:
            _, confirmed = self._unconfirmed.popleft()
        if confirmed:
            self._answer(ControllerMessage(spool_ack=SpoolAck(sequence=confirmed)))

    def meant(self, message: ControllerMessage) -> Sequence[ControllerMessage]:
        """The controller's frame and, where the controller has no other way to refuse a template, the refusal it
        means: the component that waits for that template need not wait for its timeout."""
        if message.HasField("template_data"):
            self._asked.pop(message.template_data.template_name, None)
        elif message.HasField("template_up_to_date"):
            self._asked.pop(message.template_up_to_date.template_name, None)
        elif message.HasField("error_report") and (name := self._refused(message.error_report)) is not None:
            del self._asked[name]
            report = message.error_report
            refusal = TemplateUnavailable(
                template_name=name, error_code=report.error_code, error_message=report.error_message
            )
            return message, ControllerMessage(template_unavailable=refusal)
        return (message,)

    def _refused(self, report: ErrorReport) -> str | None:
        """The open request that this report answers: the one that its context names, or the only one there is when its
        code is about templates. A request that has timed out is not open."""
        since = self._monotonic() - TEMPLATE_SECONDS
        self._asked = {name: at for name, at in self._asked.items() if at > since}
        for name in self._asked:
            if report.context == name or report.context.endswith((f"/{name}", f":{name}")):
                return name
        return next(iter(self._asked)) if len(self._asked) == 1 and report.error_code in _REFUSALS else None


class ControllerOutbox(Outbox[DaemonMessage]):
    """Messages queued for a controller."""

    def __init__(self, controller: PublishedController) -> None:
        super().__init__(bundle=_bundle if controller.takes_batches else None)
        self._controller = controller

    def send(self, message: DaemonMessage) -> bool:
        number = self._controller.translate(message)
        accepted = super().send(message)
        if accepted and number:
            self._controller.sent(number, self.accepted)
        return accepted

    async def next_frame(self) -> DaemonMessage | None:
        self._controller.written(self.taken)
        return await super().next_frame()


def _bundle(messages: list[DaemonMessage]) -> DaemonMessage:
    return DaemonMessage(batch=DaemonBatch(messages=messages))
