"""What controllers that lack parts of our protocol are sent instead, and what is answered in their place."""

from __future__ import annotations

import pytest

from corral.daemon.link.published_controller import TEMPLATE_SECONDS, ControllerOutbox, PublishedController
from corral.wire import features
from corral.wire.features import support_of
from corral.wire.frame_table import kind_of, messages_of
from corral.wire.v1.instance_pb2 import CrashReport
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import EventSubscribe, EventUnsubscribe
from corral.wire.v1.node_pb2 import ErrorReport, Ping, Pong
from corral.wire.v1.plan_pb2 import TemplateData, TemplateRequest, TemplateUpToDate

ALL = frozenset(features.FEATURES)


class Edge:
    """One connection: what is written to the stream, and what is said in the controller's place."""

    def __init__(self, *known: str) -> None:
        self.answers: list[ControllerMessage] = []
        self.now = 100.0
        self.controller = PublishedController(
            support_of(known), answer=self.answers.append, monotonic=lambda: self.now
        )
        self.outbox = ControllerOutbox(self.controller)

    def record(self, number: int) -> bool:
        return self.outbox.send(DaemonMessage(crash_report=CrashReport(), spool_sequence=number))

    async def write(self) -> list[int]:
        frame = await self.outbox.next_frame()
        return [message.spool_sequence for message in messages_of(frame)] if frame is not None else []

    @property
    def confirmed(self) -> list[int]:
        return [answer.spool_ack.sequence for answer in self.answers]

    def ask(self, *names: str) -> None:
        for name in names:
            self.outbox.send(DaemonMessage(template_request=TemplateRequest(template_name=name)))

    def hear(self, *, code: str = "", context: str = "") -> list[str]:
        """The names of the templates that an error report refuses."""
        report = ErrorReport(error_code=code, error_message="why", context=context)
        first, *meant = self.controller.meant(ControllerMessage(error_report=report))
        assert first.error_report == report, "the report itself is heard in any case"
        assert all(each.template_unavailable.error_code == code for each in meant)
        return [each.template_unavailable.template_name for each in meant]


@pytest.mark.parametrize(
    ("known", "expected"),
    [(ALL, "CAPABILITY_CLEARED"), (ALL - {features.EVENT_NAMES}, "CAPABILITY_UNREGISTERED")],
)
async def test_a_controller_is_asked_for_events_by_the_names_that_it_knows(known, expected):
    edge = Edge(*known)
    names = ["CAPABILITY_CLEARED", "NODE_ONLINE", "shop/SOLD"]
    edge.outbox.send(DaemonMessage(event_subscribe=EventSubscribe(event_types=names)))
    edge.outbox.send(DaemonMessage(event_unsubscribe=EventUnsubscribe(event_types=names)))
    sent = messages_of(await edge.outbox.next_frame())
    assert list(sent[0].event_subscribe.event_types) == [expected, "NODE_ONLINE", "shop/SOLD"]
    assert list(sent[1].event_unsubscribe.event_types) == [expected, "NODE_ONLINE", "shop/SOLD"]


async def test_a_controller_that_confirms_gets_the_numbers_and_is_not_answered_for():
    edge = Edge(*ALL)
    edge.record(5)
    edge.record(6)
    assert await edge.write() == [5, 6]
    edge.record(7)
    assert await edge.write() == [7]
    assert edge.confirmed == []


@pytest.mark.parametrize("known", [(), (features.BATCH,)], ids=["plain", "batches"])
async def test_what_is_on_the_stream_of_a_controller_that_does_not_confirm_is_confirmed(known):
    edge = Edge(*known)
    for number in (5, 6):
        edge.record(number)
    edge.outbox.send(DaemonMessage(pong=Pong()))
    written = await edge.write()
    assert set(written) == {0}, "numbers are of no use to it"
    assert edge.confirmed == [], "it may not have been written yet"
    edge.record(9)
    while not edge.confirmed:
        written += await edge.write()
    assert edge.confirmed == ([6] if known else [5])
    edge.outbox.close()


async def test_what_was_not_written_when_the_connection_ended_is_not_confirmed():
    edge = Edge()
    edge.record(5)
    await edge.write()
    edge.record(6)
    edge.outbox.close()
    assert not edge.record(7)
    assert await edge.write() == []
    assert edge.confirmed == [5]


@pytest.mark.parametrize("context", ["base", "template/base", "template:base"])
def test_an_error_report_that_names_a_template_refuses_it(context):
    edge = Edge()
    edge.ask("base", "other")
    assert edge.hear(code="INTERNAL", context=context) == ["base"]
    assert edge.hear(code="INTERNAL", context=context) == [], "once is enough"


def test_an_error_report_about_templates_refuses_the_only_one_that_was_asked_for():
    edge = Edge()
    assert edge.hear(code="TEMPLATE_NOT_FOUND") == []
    edge.ask("base")
    assert edge.hear(code="INTERNAL") == []
    assert edge.hear(code="TEMPLATE_NOT_FOUND") == ["base"]
    edge.ask("base", "other")
    assert edge.hear(code="TEMPLATE_NOT_FOUND") == []


def test_a_template_that_was_asked_for_in_vain_does_not_hide_the_refusal_of_the_next():
    edge = Edge()
    edge.ask("base")
    edge.now += TEMPLATE_SECONDS
    edge.ask("other")
    assert edge.hear(code="TEMPLATE_NOT_FOUND") == ["other"]


@pytest.mark.parametrize(
    "answer",
    [
        ControllerMessage(template_data=TemplateData(template_name="base")),
        ControllerMessage(template_up_to_date=TemplateUpToDate(template_name="base")),
    ],
    ids=kind_of,
)
def test_what_was_answered_is_not_refused_any_more(answer):
    edge = Edge()
    edge.ask("base")
    assert list(edge.controller.meant(answer)) == [answer]
    assert edge.hear(code="TEMPLATE_NOT_FOUND", context="base") == []


def test_a_controller_that_can_refuse_templates_is_taken_by_its_word():
    edge = Edge(*ALL)
    edge.ask("base")
    assert edge.hear(code="TEMPLATE_NOT_FOUND", context="base") == []
    ping = ControllerMessage(ping=Ping())
    assert list(edge.controller.meant(ping)) == [ping]
