"""What daemons that lack parts of our protocol are sent instead, and what is answered in their place."""

from __future__ import annotations

import asyncio

import pytest

from corral.controller.sessions.published_node import NodeOutbox, PublishedNode, complete_handshake
from corral.wire import features
from corral.wire.features import support_of
from corral.wire.frame_table import kind_of, messages_of, node_frame
from corral.wire.v1.instance_pb2 import (
    AskRunEnds,
    CrashReport,
    ExitStatus,
    RunName,
    SendCommand,
    StartInstance,
)
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import CapabilityOffers
from corral.wire.v1.node_pb2 import Handshake, Ping, SetLogLevel
from corral.wire.v1.plan_pb2 import (
    CacheStatus,
    CompositionPlan,
    PreWarmCache,
    PreWarmEntry,
    RequestCacheStatus,
    TemplateRef,
    TemplateUnavailable,
)

ALL = frozenset(features.FEATURES)
LEVEL = ControllerMessage(set_log_level=SetLogLevel(level="DEBUG"))
OFFERS = ControllerMessage(capability_offers=CapabilityOffers())
ENDS = ControllerMessage(ask_run_ends=AskRunEnds(runs=[RunName(instance_id="one")]))
REFUSAL = ControllerMessage(
    template_unavailable=TemplateUnavailable(
        template_name="base", error_code="TEMPLATE_NOT_FOUND", error_message="gone"
    )
)
PING = ControllerMessage(ping=Ping(sequence=1))


class Edge:
    """One session: what is written to the stream, and what is said in the daemon's place."""

    def __init__(self, *known: str) -> None:
        self.answers: list[DaemonMessage] = []
        self.node = PublishedNode(support_of(known), answer=self.answers.append)
        self.outbox = NodeOutbox(self.node)

    async def write(self) -> list[ControllerMessage]:
        frame = await self.outbox.next_frame()
        return list(messages_of(frame)) if frame is not None else []

    def command(self, request_id: str) -> bool:
        line = SendCommand(instance_id="one", command="stop", incarnation=7, request_id=request_id)
        return self.outbox.send(ControllerMessage(send_command=line))


def cached(edge: Edge, **fields: object) -> str:
    frame = node_frame(DaemonMessage(cache_status=CacheStatus(**fields)))
    edge.node.complete(frame)
    return frame.message.cache_status.request_id


@pytest.mark.parametrize("message", [LEVEL, OFFERS, ENDS, REFUSAL, PING], ids=kind_of)
async def test_a_daemon_that_knows_everything_is_sent_everything_as_it_is(message):
    edge = Edge(*ALL)
    assert edge.outbox.send(message)
    assert await edge.write() == [message]
    assert edge.outbox.replace("key", message)
    assert await edge.write() == [message]
    assert edge.answers == []


@pytest.mark.parametrize(
    ("feature", "message"), [(features.LOG_LEVEL, LEVEL), (features.MODULES, OFFERS)], ids=["level", "offers"]
)
async def test_what_a_daemon_has_no_use_for_is_not_sent(feature, message):
    edge = Edge(*ALL - {feature})
    assert edge.outbox.replace("key", message), "the session is there"
    edge.outbox.send(PING)
    assert await edge.write() == [PING]
    edge.outbox.close()
    assert not edge.outbox.replace("key", message)


async def test_what_is_assembled_for_a_frame_is_translated_when_it_is_made():
    edge = Edge()
    edge.outbox.assemble("level", lambda: LEVEL)
    edge.outbox.assemble("refusal", lambda: REFUSAL)
    edge.outbox.send(PING)
    assert [kind_of(message) for message in await edge.write()] == ["error_report"]
    assert await edge.write() == [PING]
    assert len(edge.outbox) == 0


async def test_an_assembled_message_that_becomes_several_is_sent_as_all_of_them():
    edge = Edge()
    order = PreWarmCache(request_id="r-1", entries=[PreWarmEntry(download_url="https://a.example/x.jar")])
    edge.outbox.assemble("warm", lambda: ControllerMessage(pre_warm_cache=order))
    sent = [kind_of(message) for _ in range(2) for message in await edge.write()]
    assert sent == ["pre_warm_cache", "request_cache_status"]
    assert len(edge.outbox) == 0


async def test_an_assembled_message_that_a_daemon_has_no_use_for_makes_no_frame():
    edge = Edge()
    edge.outbox.assemble("level", lambda: LEVEL)
    writing = asyncio.create_task(edge.write(), name="test/write")
    await asyncio.sleep(0)
    edge.outbox.send(PING)
    assert await writing == [PING]


@pytest.mark.parametrize("known", [(), (features.BATCH,)])
async def test_replaced_state_that_becomes_several_messages_is_sent_as_all_of_them(known):
    edge = Edge(*known)
    for request_id in ("r-1", "r-2"):
        download = PreWarmEntry(download_url="https://a.example/x.jar")
        order = PreWarmCache(request_id=request_id, entries=[download])
        edge.outbox.replace("warm", ControllerMessage(pre_warm_cache=order))
    edge.outbox.send(PING)
    sent: list[ControllerMessage] = []
    while PING not in sent:
        sent += await edge.write()
    assert [kind_of(message) for message in sent] == ["pre_warm_cache", "request_cache_status", "ping"]
    assert sent[0].pre_warm_cache.request_id == sent[1].request_cache_status.request_id == "r-2"
    assert cached(edge) == "r-2"
    assert cached(edge) == "", "what was replaced was never asked"


async def test_frames_go_one_by_one_to_a_daemon_without_batches():
    for known, sizes in ((ALL, [2]), (ALL - {features.BATCH}, [1, 1])):
        edge = Edge(*known)
        edge.outbox.send(PING)
        edge.outbox.send(PING)
        assert [len(await edge.write()) for _ in sizes] == sizes


async def test_a_daemon_that_knows_no_tickets_gets_none():
    plan = CompositionPlan(canonical_json=b"{}")
    start = StartInstance(instance_id="one", ticket="proof", composition_plan=plan)
    order = ControllerMessage(start_instance=start)
    for known, ticket in ((ALL, "proof"), (ALL - {features.TICKETS}, "")):
        edge = Edge(*known)
        edge.outbox.send(order)
        (told,) = await edge.write()
        assert (told.start_instance.instance_id, told.start_instance.ticket) == ("one", ticket)


async def test_ends_that_a_daemon_does_not_tell_are_none():
    edge = Edge(*ALL - {features.RUN_ENDS})
    assert edge.outbox.send(ENDS)
    assert [kind_of(answer) for answer in edge.answers] == ["run_ends"]
    assert not edge.answers[0].run_ends.runs


async def test_a_template_is_refused_by_an_error_report():
    edge = Edge(*ALL - {features.TEMPLATES})
    edge.outbox.send(REFUSAL)
    (told,) = await edge.write()
    report = told.error_report
    assert (report.error_code, report.error_message, report.context) == (
        "TEMPLATE_NOT_FOUND",
        "gone",
        "template/base",
    )


async def test_a_line_is_accepted_when_it_is_on_the_stream_and_not_before():
    edge = Edge()
    assert edge.command("first")
    assert edge.command("second")
    assert len(await edge.write()) == 1
    assert edge.answers == []
    await edge.write()
    acks = [answer.send_command_ack for answer in edge.answers]
    assert [(ack.request_id, ack.accepted, ack.incarnation) for ack in acks] == [("first", True, 7)]


async def test_a_line_that_was_not_written_before_the_session_ended_may_have_arrived():
    edge = Edge()
    edge.command("first")
    await edge.write()
    edge.outbox.close()
    (ack,) = [answer.send_command_ack for answer in edge.answers]
    assert (ack.accepted, ack.error_code) == (False, "NODE_OFFLINE")
    assert "may have arrived" in ack.error_message
    assert not edge.command("later")
    assert len(edge.answers) == 1


async def test_a_daemon_is_given_what_it_can_download_and_then_asked_what_it_has():
    entries = [PreWarmEntry(jar_file="a.jar", download_url="https://a"), PreWarmEntry(jar_file="b.jar")]
    order = PreWarmCache(entries=entries, templates=[TemplateRef(name="base")], request_id="warm")
    edge = Edge(features.BATCH)
    edge.outbox.send(ControllerMessage(pre_warm_cache=order))
    warm, asking = await edge.write()
    assert [entry.jar_file for entry in warm.pre_warm_cache.entries] == ["a.jar"]
    assert not warm.pre_warm_cache.templates
    assert asking.request_cache_status.request_id == "warm"
    assert len(order.entries) == 2, "the order itself is left as it was"
    assert cached(edge) == "warm"
    assert cached(edge) == "", "nobody asked"
    nothing = PreWarmCache(templates=[TemplateRef(name="base")], request_id="again")
    edge.outbox.send(ControllerMessage(pre_warm_cache=nothing))
    assert [kind_of(message) for message in await edge.write()] == ["request_cache_status"]


async def test_a_question_that_is_never_answered_keeps_no_later_one_from_its_answer():
    edge = Edge()
    for request_id in ("lost", "asked"):
        question = RequestCacheStatus(request_id=request_id)
        edge.outbox.send(ControllerMessage(request_cache_status=question))
    assert cached(edge) == "asked"


def test_a_daemon_that_names_the_request_is_believed():
    edge = Edge(*ALL)
    assert cached(edge, request_id="own") == "own"
    assert cached(edge) == ""


@pytest.mark.parametrize(
    ("told", "code", "signal", "summary"),
    [
        (1, 1, 0, "exited with code 1"),
        (137, 0, 9, "was ended by SIGKILL"),
        (143, 0, 15, "was ended by SIGTERM"),
        (128, 128, 0, "exited with code 128"),
        (255, 255, 0, "exited with code 255"),
        (-1, -1, 0, "exited with code -1"),
    ],
)
def test_the_code_of_a_published_daemon_is_a_code_or_a_signal(told, code, signal, summary):
    frame = node_frame(DaemonMessage(crash_report=CrashReport(instance_id="one", exit_code=told)))
    Edge().node.complete(frame)
    exit = frame.message.crash_report.exit
    assert (exit.known, exit.code, exit.signal, exit.summary) == (True, code, signal, summary)
    assert exit.outcome == "crashed"


def test_a_crash_with_a_status_keeps_it():
    status = ExitStatus(outcome="oom", summary="out of memory")
    report = CrashReport(instance_id="one", exit_code=137, exit=status)
    frame = node_frame(DaemonMessage(crash_report=report))
    Edge().node.complete(frame)
    assert frame.message.crash_report.exit == status


def test_a_daemon_that_says_nothing_of_runtimes_starts_processes_unless_it_is_ours():
    for known, runtimes in (([], ["process"]), (["batch"], [])):
        handshake = Handshake(features=known, portions_follow=True)
        complete_handshake(handshake)
        assert list(handshake.runtimes) == runtimes
        assert not handshake.portions_follow, "nothing follows of a daemon that does not know how"
