"""Sessions of daemons: who gets one, who keeps it, and what ends it."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.errors import Code, CorralError
from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedController, ScriptedDaemon, enrolled_identity
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import (
    DaemonLogRecord,
    ErrorReport,
    Handshake,
    HandshakeAck,
    NodeStatus,
    Ping,
    Pong,
    SetLogLevel,
)


@pytest.fixture
async def controller(cluster):
    return await cluster.controller()


@pytest.fixture
async def identity(controller, scratch):
    return await enrolled_identity(scratch / "raw", token=await controller.join_token("raw"), node_id="raw")


def number(controller) -> int:
    return controller.app.role.term.state.number


def session_of(controller, node_id="raw"):
    return controller.app.role.term.sessions.find(NodeId(node_id))


async def refusal_of(coroutine) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await coroutine
    return caught.value


async def test_the_ack_is_the_first_frame_and_carries_the_epoch(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        first = await daemon.greet()
        assert first.WhichOneof("payload") == "handshake_ack"
        assert first.handshake_ack.epoch == first.epoch == 1
        assert first.handshake_ack.heartbeat_interval_ms == 1000
        assert list(first.handshake_ack.controller_grpc_addrs) == [controller.grpc_address]
        ping = await daemon.read_until("ping")
        assert ping.ping.sequence == 1


async def test_every_frame_of_the_controller_carries_the_epoch(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        session_of(controller).set_log_level("DEBUG")
        for _ in range(3):
            assert (await daemon.read()).epoch == 1


async def test_a_peer_that_knows_no_features_gets_plain_frames(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(features=[])
        for sequence in range(100, 103):
            session_of(controller).send(ControllerMessage(ping=Ping(sequence=sequence)))
        seen = [(await daemon.read()).WhichOneof("payload") for _ in range(4)]
        assert seen == ["ping"] * 4


async def test_frames_right_behind_the_handshake_are_handled_in_order(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.open(DaemonMessage(handshake=daemon.handshake()))
        await daemon.send(DaemonMessage(node_status=NodeStatus(used_memory_mb=1)))
        await daemon.send(DaemonMessage(node_status=NodeStatus(used_memory_mb=2)))
        await daemon.read()
        await eventually(lambda: session_of(controller).live.used_memory_mb == 2)


@pytest.mark.parametrize("field", ["node_id", "version", "protocol_version"])
async def test_an_empty_required_field_of_the_handshake_is_refused_by_name(controller, identity, field):
    before = number(controller)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet(**{field: 0 if field == "protocol_version" else ""}))
    assert error.code is Code.MISSING_FIELD
    assert field in error.message
    assert number(controller) == before


async def test_another_protocol_version_is_told_so_and_parted_from(controller, identity):
    before = number(controller)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        ack = (await daemon.greet(protocol_version=99)).handshake_ack
        assert not ack.protocol_compatible
        assert ack.protocol_version == PROTOCOL_VERSION
        with pytest.raises(ConnectionAbortedError):
            await daemon.read()
    assert number(controller) == before


async def test_a_first_frame_that_is_no_handshake_is_refused(controller, identity):
    before = number(controller)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.open(DaemonMessage(pong=Pong(sequence=1)))
        error = await refusal_of(daemon.read())
    assert error.code is Code.HANDSHAKE_EXPECTED
    assert number(controller) == before


async def test_a_second_handshake_and_a_nested_batch_end_the_stream(controller, identity):
    nested = DaemonMessage(batch=DaemonBatch(messages=[DaemonMessage(batch=DaemonBatch())]))
    again = DaemonMessage(handshake=Handshake(node_id="raw"))
    for bad in (nested, again):
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.greet()
            await daemon.send(bad)
            error = await refusal_of(daemon.read_until("handshake_ack"))
        assert error.code is Code.BAD_REQUEST


async def test_a_stream_that_never_introduces_itself_is_ended(cluster, scratch):
    controller = await cluster.controller(link__handshake_timeout_seconds=0.2)
    identity = await enrolled_identity(
        scratch / "raw", token=await controller.join_token("raw"), node_id="raw"
    )
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.open()
        error = await refusal_of(daemon.read())
    assert error.code is Code.TIMEOUT


async def test_a_node_speaks_for_itself_alone(controller, identity, cluster):
    other = await cluster.daemon("other", controller)
    before = number(controller)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet(node_id="other"))
    assert error.code is Code.CERTIFICATE_REFUSED
    assert number(controller) == before
    assert session_of(controller, "other").facts.id == other.app.link.session_id


@pytest.mark.parametrize("differs", ["machine_id", "boot_id", "run_id"])
async def test_a_clone_of_a_living_node_is_refused_and_the_original_stays(controller, cluster, differs):
    original = await cluster.daemon("n1", controller)
    host = session_of(controller, "n1").facts.host
    copied = {"machine_id": host.machine_id, "boot_id": host.boot_id, "run_id": host.run_id, differs: "other"}
    async with ScriptedDaemon(original.app.identity, controller.grpc_address) as clone:
        error = await refusal_of(clone.greet(**copied))
    assert error.code is Code.NODE_ID_IN_USE
    assert session_of(controller, "n1").facts.id == original.app.link.session_id


NAMELESS = {"machine_id": "", "boot_id": "", "run_id": "", "features": []}
"""Of a published daemon, which says nothing about itself."""


async def answer_pings(daemon: ScriptedDaemon) -> None:
    while True:
        ping = await daemon.read_until("ping")
        await daemon.send(DaemonMessage(pong=Pong(sequence=ping.ping.sequence)))


@pytest.mark.trap("T94")
@pytest.mark.parametrize("copied", [NAMELESS, {"machine_id": "machine-2"}], ids=["published", "ours"])
async def test_of_a_node_and_its_copies_the_living_one_stays(cluster, scratch, copied):
    controller = await cluster.controller(link__heartbeat_seconds=0.5)
    identity = await enrolled_identity(
        scratch / "raw", token=await controller.join_token("raw"), node_id="raw"
    )

    async def dial() -> Code:
        async with ScriptedDaemon(identity, controller.grpc_address) as copy:
            return (await refusal_of(copy.greet(**copied))).code

    async with ScriptedDaemon(identity, controller.grpc_address) as living:
        ack = await living.greet(**(NAMELESS if copied is NAMELESS else {}))
        answering = asyncio.create_task(answer_pings(living))
        for _ in range(5):
            refusals = await asyncio.gather(*(dial() for _ in range(6)))
            assert set(refusals) == {Code.NODE_ID_IN_USE}
        assert session_of(controller).facts.id == ack.handshake_ack.session_id
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def test_a_published_daemon_that_lost_its_stream_gets_its_place_back(controller, identity):
    async with (
        ScriptedDaemon(identity, controller.grpc_address) as before,
        ScriptedDaemon(identity, controller.grpc_address) as after,
    ):
        await before.greet(**NAMELESS)  # and answers no ping any more
        ack = (await after.greet(**NAMELESS)).handshake_ack
        assert session_of(controller).facts.id == ack.session_id


async def test_a_session_ends_when_its_certificate_does(cluster, scratch):
    clock = SteppedClock()
    controller = await cluster.controller(clock=clock, pki__node_certificate_days=1)
    identity = await enrolled_identity(
        scratch / "raw", token=await controller.join_token("raw"), node_id="raw"
    )
    clock.step(86_400 - 2)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        answering = asyncio.create_task(answer_pings(daemon))
        error = await refusal_of(answering)
    assert error.code is Code.CERTIFICATE_REFUSED
    assert "expired" in error.message


async def test_a_host_that_rebooted_takes_its_place_from_a_session_that_no_longer_answers(
    controller, identity
):
    async with (
        ScriptedDaemon(identity, controller.grpc_address) as before,
        ScriptedDaemon(identity, controller.grpc_address) as after,
    ):
        await before.greet()
        ack = (await after.greet(boot_id="boot-2", run_id="run-2")).handshake_ack
        assert session_of(controller).facts.id == ack.session_id


@pytest.mark.trap("T40")
async def test_the_late_end_of_an_old_stream_leaves_the_new_session_alone(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as new:
        async with ScriptedDaemon(identity, controller.grpc_address) as old:
            await old.greet()
            old_session = session_of(controller)
            session = (await new.greet()).handshake_ack.session_id
            error = await refusal_of(old.read_until("handshake_ack"))
            assert "newer session" in error.message
        controller.app.role.term.sessions.leave(old_session, None)  # and once more, late
        await new.read_until("ping")
        assert session_of(controller).facts.id == session
        assert controller.node_state("raw") is NodeState.ONLINE
        ended = await controller.call("GET", "/api/v1/events?types=NODE_DISCONNECTED")
        assert ended["items"] == []


async def test_many_connections_at_once_all_get_through(controller, identity):
    """Each TLS handshake asks for the server's certificate. (Answering anew each time broke neighbours,
    but only under more load than one process makes: benchmark P9 is what shows it.)"""

    async def connect() -> None:
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.open(DaemonMessage(pong=Pong()))
            assert (await refusal_of(daemon.read())).code is Code.HANDSHAKE_EXPECTED

    await asyncio.gather(*(connect() for _ in range(60)))


async def test_a_stream_that_ends_is_noticed_at_once(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
    await controller.wait_for_node("raw", NodeState.DISCONNECTED)


async def test_a_silent_node_is_unreachable_after_three_pings_and_its_stream_is_closed(cluster, scratch):
    controller = await cluster.controller(link__heartbeat_seconds=0.1, link__missed_pongs=3)
    identity = await enrolled_identity(
        scratch / "raw", token=await controller.join_token("raw"), node_id="raw"
    )
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        error = await refusal_of(daemon.read_until("handshake_ack"))
        assert error.code is Code.UNREACHABLE
    await controller.wait_for_node("raw", NodeState.UNREACHABLE)


async def test_a_half_dead_connection_is_unreachable_and_comes_back_when_it_heals(cluster):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(link__heartbeat_seconds=0.2, link__missed_pongs=3, via=proxy)
        daemon = await cluster.daemon("n1", controller)
        proxy.stall()
        await controller.wait_for_node("n1", NodeState.UNREACHABLE)
        (lost,) = (await controller.call("GET", "/api/v1/events?types=NODE_UNREACHABLE"))["items"]
        assert (lost["subject"], lost["data"]["from"]) == ("n1", "ONLINE")
        await proxy.cut(refuse=False)
        proxy.heal()
        await controller.wait_for_node("n1", NodeState.ONLINE)
        await daemon.app.stop()


@pytest.mark.trap("T29")
async def test_a_daemon_that_stops_reading_is_cut_off_and_nobody_else_notices(controller, identity, cluster):
    healthy = await cluster.daemon("healthy", controller)
    async with ScriptedDaemon(identity, controller.grpc_address) as stalled:
        await stalled.greet()
        session = session_of(controller)
        frame = ControllerMessage(error_report=ErrorReport(error_message="x" * 10_000))
        sent = 0
        while session.send(frame):
            sent += 1
            await asyncio.sleep(0)
            assert sent < 20_000, "the outbox has no bound"
        assert session.outbox.waiting_bytes == 0, "what waited is dropped with the stream"
        await controller.wait_for_node("raw", NodeState.DISCONNECTED)
    seen = session_of(controller, "healthy").live.last_seen
    await eventually(lambda: session_of(controller, "healthy").live.last_seen > seen)
    assert session_of(controller, "healthy").facts.id == healthy.app.link.session_id


@pytest.mark.trap("T31")
async def test_frames_of_many_concurrent_writers_arrive_whole_and_in_each_writers_order(controller, identity):
    writers, frames = 40, 50
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        session = session_of(controller)

        async def write(writer: int) -> None:
            for index in range(frames):
                report = ErrorReport(error_code=f"w{writer}", error_message=f"{index}:" + "x" * (index * 37))
                session.send(ControllerMessage(error_report=report))
                await asyncio.sleep(0)

        writing = asyncio.gather(*(write(writer) for writer in range(writers)))
        seen: dict[str, list[int]] = {}
        while sum(map(len, seen.values())) < writers * frames:
            frame = await daemon.read()
            batched = frame.WhichOneof("payload") == "batch"
            for message in frame.batch.messages if batched else [frame]:
                if message.WhichOneof("payload") != "error_report":
                    continue
                index, _, padding = message.error_report.error_message.partition(":")
                assert len(padding) == int(index) * 37
                seen.setdefault(message.error_report.error_code, []).append(int(index))
        await writing
    assert all(order == list(range(frames)) for order in seen.values())
    assert len(seen) == writers


SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536)]


@pytest.mark.trap("T55")
async def test_the_controller_reads_on_while_the_daemon_takes_nothing(cluster, scratch):
    """A daemon that answers a flood before it reads its own mail: a reader that waits for its
    writer would wait for ever, and so would the daemon."""
    controller = await cluster.controller(link__missed_pongs=1000)  # it answers no ping before it reads
    token = await controller.join_token("raw")
    identity = await enrolled_identity(scratch / "raw", token=token, node_id="raw")
    async with ScriptedDaemon(identity, controller.grpc_address, options=SMALL_WINDOW) as daemon:
        await daemon.greet()
        session = session_of(controller)
        for _ in range(6000):
            assert session.send(ControllerMessage(error_report=ErrorReport(error_message="x" * 1000)))
        await asyncio.sleep(0)
        status = NodeStatus(used_ports=range(10_000, 10_400))
        for count in range(3000):
            status.instance_count = count
            await asyncio.wait_for(daemon.send(DaemonMessage(node_status=status)), 20)
        await eventually(lambda: session.live.instance_count == 2999)
        received = 0
        while received < 6000:
            frame = await daemon.read()
            batched = frame.WhichOneof("payload") == "batch"
            messages = frame.batch.messages if batched else [frame]
            received += sum(message.WhichOneof("payload") == "error_report" for message in messages)
        assert session_of(controller) is session


@pytest.mark.system
@pytest.mark.trap("T55")
async def test_the_daemon_reads_on_while_the_controller_takes_nothing(cluster, scratch):
    pongs: asyncio.Queue[int] = asyncio.Queue()
    flood = 9000

    async def script(context) -> None:
        await context.read()
        ack = HandshakeAck(session_id="s", protocol_version=1, protocol_compatible=True, epoch=1)
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        for sequence in range(flood):  # plain frames, and not one answer is read before the last is out
            await context.write(
                ControllerMessage(ping=Ping(sequence=sequence), epoch=1, traceparent="x" * 300)
            )
        while isinstance(frame := await context.read(), DaemonMessage):
            if frame.WhichOneof("payload") == "pong":
                pongs.put_nowait(frame.pong.sequence)

    async with ScriptedController(script) as flooding:
        flooding.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[flooding.address])
        answered = [await asyncio.wait_for(pongs.get(), 30) for _ in range(flood)]
        assert answered == list(range(flood))
        assert flooding.streams == 1
        await daemon.app.stop()


@pytest.mark.trap("T15")
async def test_a_deposed_controllers_frames_do_nothing_on_a_node_not_even_after_a_restart(cluster, scratch):
    reports: asyncio.Queue[DaemonMessage] = asyncio.Queue()
    epochs = iter([7, 6, 8])
    greeted = asyncio.Event()

    async def script(context) -> None:
        await context.read()
        epoch = next(epochs)
        ack = HandshakeAck(session_id="s", protocol_version=1, protocol_compatible=True, epoch=epoch)
        await context.write(ControllerMessage(handshake_ack=ack, epoch=epoch))
        await context.write(ControllerMessage(set_log_level=SetLogLevel(level="TRACE"), epoch=6))
        await context.write(ControllerMessage(set_log_level=SetLogLevel(level="ERROR"), epoch=epoch))
        if epoch == 8:
            greeted.set()
        while isinstance(frame := await context.read(), DaemonMessage):
            if frame.WhichOneof("payload") == "error_report":
                reports.put_nowait(frame)

    async with ScriptedController(script) as deposed:
        deposed.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[deposed.address])
        report = await asyncio.wait_for(reports.get(), 10)
        assert report.error_report.error_code == "STALE_EPOCH"
        await eventually(lambda: "ERROR" in daemon.log.levels)
        assert "TRACE" not in daemon.log.levels
        again = await cluster.restart(daemon)
        await asyncio.wait_for(greeted.wait(), 20)  # epoch 6 was refused, epoch 8 is obeyed
        await eventually(lambda: "ERROR" in again.log.levels)
        assert again.app.link._memory.epoch == 8
        await again.app.stop()
    assert deposed.streams == 3


async def test_a_controller_refuses_a_node_that_obeyed_a_higher_epoch_and_names_the_way_out(
    controller, identity
):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet(known_epoch=5))
    assert error.code is Code.STALE_EPOCH
    assert "raise-epoch" in error.message


async def test_raising_the_epoch_makes_such_a_node_welcome_again(controller, identity):
    answer = await controller.call("POST", "/api/v1/cluster/raise-epoch")
    assert answer["epoch"] > 2**32
    # Until the term that was raised has ended, `place.term` is still the old one.
    await eventually(lambda: (term := controller.app.role.term) is not None and term.epoch == answer["epoch"])
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        ack = await daemon.greet(known_epoch=2**31)
        assert ack.handshake_ack.epoch == answer["epoch"]
    raised = await controller.call("GET", "/api/v1/events?types=CLUSTER_EPOCH_RAISED")
    assert len(raised["items"]) == 1


@pytest.mark.trap("T32")
async def test_followers_that_point_at_each_other_are_not_dialled_in_a_loop(cluster, scratch):
    addresses: dict[str, str] = {}

    def follower(name: str, leader: str):
        async def script(context) -> None:
            await context.read()
            ack = HandshakeAck(
                protocol_version=1, protocol_compatible=True, leader_grpc_addr=addresses.get(leader, "")
            )
            await context.write(ControllerMessage(handshake_ack=ack))

        return script

    async with ScriptedController(follower("a", "b")) as a:
        addresses["b"] = a.address  # it names itself
        a.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon(
            "n1", None, controllers=[a.address], connect=False, link__reconnect_max_seconds=60
        )
        await eventually(lambda: a.streams >= 1)
        await eventually(lambda: daemon.app.link._backoff._attempts > 0)
        assert a.streams == 1, "one look, then a pause"
        await daemon.app.stop()


async def test_garbage_on_the_ports_disturbs_nobody(controller, cluster):
    daemon = await cluster.daemon("n1", controller)
    before = number(controller)
    for address in (controller.grpc_address, controller.bootstrap_address):
        host, port = address.rsplit(":", 1)
        for garbage in (b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"A" * 5000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
    assert number(controller) == before
    seen = session_of(controller, "n1").live.last_seen
    await eventually(lambda: session_of(controller, "n1").live.last_seen > seen)
    assert session_of(controller, "n1").facts.id == daemon.app.link.session_id


async def test_a_client_without_a_certificate_of_ours_gets_no_connection(controller):
    host, port = controller.grpc_address.rsplit(":", 1)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            await writer.drain()
            if not await asyncio.wait_for(reader.read(1), 10):
                raise ConnectionError("closed")
        finally:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xff\xff\xff\xff garbage", "cannot be decoded"),
        (b"x" * (5 * 1024 * 1024), "Received message larger than max"),
    ],
    ids=["garbage", "oversized"],
)
async def test_a_frame_that_is_no_message_ends_that_stream_alone(
    controller, identity, cluster, frame, reason
):
    await cluster.daemon("n1", controller)
    before = number(controller)
    unlimited = [("grpc.max_send_message_length", -1)]
    async with ScriptedDaemon(identity, controller.grpc_address, options=unlimited) as daemon:
        await daemon.open(frame)
        assert reason in str(await daemon.ending())
    assert number(controller) == before
    seen = session_of(controller, "n1").live.last_seen
    await eventually(lambda: session_of(controller, "n1").live.last_seen > seen)


async def test_an_error_report_is_recorded_as_an_event_and_does_not_end_the_stream(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        report = ErrorReport(error_code="CACHE_DOWNLOAD_FAILED", error_message="404", context="paper.jar")
        await daemon.send(DaemonMessage(error_report=report))

        async def reported():
            events = await controller.call("GET", "/api/v1/events?types=NODE_ERROR_REPORTED")
            return events["items"]

        (event,) = await eventually(reported)
        assert event["data"]["code"] == "CACHE_DOWNLOAD_FAILED"
        await daemon.read_until("ping")


async def test_hostile_log_records_are_cut_to_size_and_stored(controller, identity):
    record = DaemonLogRecord(
        timestamp_ms=2**62, level="SHOUT", message="m" * 100_000, mdc={"k" * 9000: "v" * 9000}
    )
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        await daemon.send(DaemonMessage(daemon_log_record=record, spool_sequence=1))
        assert (await daemon.read_until("spool_ack")).spool_ack.sequence == 1
    logs = await controller.call("GET", "/api/v1/logs?source=node:raw")
    (stored,) = logs["items"]
    assert stored["level"] == "INFO"
    assert len(stored["message"]) == 16 * 1024


async def test_the_log_level_of_a_node_is_switched_at_run_time_and_remembered(controller, cluster):
    daemon = await cluster.daemon("n1", controller)
    await controller.call("PUT", "/api/v1/logs/level", {"source": "node:n1", "level": "DEBUG"})
    await eventually(lambda: daemon.log.levels[-1] == "DEBUG")
    again = await cluster.restart(daemon)
    await eventually(lambda: again.log.levels[-1:] == ["DEBUG"])
