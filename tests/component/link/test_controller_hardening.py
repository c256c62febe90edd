"""Peers with a valid certificate that misbehave all the same: bounded, and nobody else notices."""

from __future__ import annotations

import asyncio
import os

import grpc
import pytest
import structlog

from corral.cli.failure import CommandFailure
from corral.controller.sessions.data_service import MAX_TRANSFERS
from corral.controller.sessions.spool_intake import MAX_WAITING_BYTES, REPORTS_PER_MINUTE
from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.errors import Code, CorralError
from corral.pki.keys import key_pem, make_csr, new_key
from corral.pki.names import controller_host
from corral.testing.api_calls import call
from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.channels import channel_options
from corral.wire.frame_table import node_frame
from corral.wire.outbox import FRAME_MESSAGES
from corral.wire.rpc_errors import from_rpc
from corral.wire.transfer import EPOCH_KEY, SESSION_KEY
from corral.wire.v1.admin_pb2 import ListJoinTokensRequest
from corral.wire.v1.admin_pb2_grpc import AdminServiceStub
from corral.wire.v1.data_pb2 import Credit, DataChunk, FetchMessage, FetchOpen
from corral.wire.v1.data_pb2_grpc import DataServiceStub
from corral.wire.v1.instance_pb2 import ConsoleBatch, ConsoleBlock, RunningInstance
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import DaemonLogRecord, ErrorReport, Handshake, NodeStatus, Pong


@pytest.fixture
async def controller(cluster):
    return await cluster.controller()


@pytest.fixture
async def identity(controller, scratch):
    return await enrolled_identity(scratch / "raw", token=await controller.join_token("raw"), node_id="raw")


def session_of(controller):
    return controller.app.role.term.sessions.find(NodeId("raw"))


async def refusal_of(coroutine) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await coroutine
    return caught.value


async def test_a_batch_of_too_many_messages_ends_the_stream(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        messages = [DaemonMessage(pong=Pong()) for _ in range(FRAME_MESSAGES + 1)]
        await daemon.send(DaemonMessage(batch=DaemonBatch(messages=messages)))
        error = await refusal_of(daemon.read_until("handshake_ack"))
    assert error.code is Code.BAD_REQUEST


FULL = {
    "handshake": lambda: DaemonMessage(handshake=Handshake(running_instances=[RunningInstance()] * 500_000)),
    "console_batch": lambda: DaemonMessage(console_batch=ConsoleBatch(blocks=[ConsoleBlock()] * 500_000)),
    "daemon_log_record": lambda: DaemonMessage(
        daemon_log_record=DaemonLogRecord(mdc={str(n): "" for n in range(50_000)})
    ),
}


@pytest.mark.trap("T65")
@pytest.mark.parametrize("kind", FULL)
async def test_a_frame_of_too_many_parts_ends_the_stream_before_it_is_decoded(controller, identity, kind):
    """Decoded, the handshake would lack fields, and the others would be dealt with."""
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        if kind != "handshake":
            await daemon.greet()
            await daemon.send(FULL[kind]())
        else:
            await daemon.open(FULL[kind]())
        error = await refusal_of(daemon.read_until("console_ack"))
    assert error.code is Code.BAD_REQUEST
    assert kind in str(error)


@pytest.mark.trap("T65")
@pytest.mark.parametrize("kind", ["open", "chunk"])
async def test_a_transfer_of_too_many_parts_ends_before_it_is_decoded(controller, identity, kind):
    many = FetchMessage(open=FetchOpen(kind="bundle", digests=[""] * 500_000))
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        session_id = (await daemon.greet()).handshake_ack.session_id
        fetching = fetch_call(daemon, session_id)
        if kind == "chunk":
            digest = await controller.put_blob(os.urandom(200_000), node="raw")
            await fetching.write(FetchMessage(open=FetchOpen(kind="blob", digest=digest, credit=1)))
            await fetching.read()
        await fetching.write(many)
        error = await reason_of(fetching)
        assert error.code is Code.BAD_REQUEST
        assert "fields" in error.message


@pytest.mark.trap("T65")
async def test_a_certificate_that_is_no_longer_good_is_refused_before_anything_is_read(controller, identity):
    """Also one that says nothing at all."""
    await controller.call("POST", "/api/v1/nodes/raw/revoke", {})
    for first in (None, b"\xff" * 50):
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.open(first)
            error = await refusal_of(daemon.read())
        assert error.code is Code.CERTIFICATE_REFUSED


async def test_what_waits_to_be_stored_is_bounded_by_bytes(controller, identity):
    record = DaemonLogRecord(level="INFO", message="x" * 1_000_000)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        intake = session_of(controller)._intake
        with pytest.raises(CorralError) as caught:
            for number in range(1, 1 + 2 * MAX_WAITING_BYTES // 1_000_000):
                intake.offer(node_frame(DaemonMessage(daemon_log_record=record, spool_sequence=number)))
        assert caught.value.code is Code.PEER_TOO_SLOW
        assert intake._waiting_bytes <= MAX_WAITING_BYTES
        await eventually(lambda: intake._waiting_bytes == 0)


@pytest.mark.parametrize(
    "field",
    [{"spool_id": "x" * 300}, {"machine_id": "x" * 300}, {"runtimes": ["r"] * 65}, {"runtimes": ["r" * 65]}],
)
async def test_a_handshake_that_is_too_large_to_keep_is_refused(controller, identity, field):
    before = controller.app.role.term.state.number
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet(**field))
    assert error.code is Code.INVALID_FIELD
    assert controller.app.role.term.state.number == before


async def test_figures_that_cannot_be_are_not_believed(controller, identity):
    status = NodeStatus(
        cpu_usage=float("nan"),
        used_memory_mb=-5,
        free_disk_mb=-1,
        instance_count=-3,
        used_ports=[-1, 80, 80, 99_999, *range(100, 20_000)],
    )
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        await daemon.send(DaemonMessage(node_status=status))
        live = await eventually(
            lambda: session_of(controller).live if session_of(controller).live.used_ports else None
        )
        assert (live.cpu_usage, live.used_memory_mb, live.free_disk_mb, live.instance_count) == (0.0, 0, 0, 0)
        assert live.used_ports == (80, *range(100, 100 + 4095))
        assert (await controller.call("GET", "/api/v1/nodes/raw"))["cpu_usage"] == 0.0


async def test_error_reports_cannot_push_everybodys_history_out(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        for number in range(1, 3 * REPORTS_PER_MINUTE + 1):
            report = ErrorReport(error_code="X", error_message=str(number))
            await daemon.send(DaemonMessage(error_report=report, spool_sequence=number))
        while (await daemon.read_until("spool_ack")).spool_ack.sequence < 3 * REPORTS_PER_MINUTE:
            pass
    events = await controller.call("GET", "/api/v1/events?types=NODE_ERROR_REPORTED&limit=500")
    assert REPORTS_PER_MINUTE <= len(events["items"]) < 2 * REPORTS_PER_MINUTE


@pytest.mark.system
async def test_pongs_that_are_late_but_come_keep_a_slow_node_online(cluster):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(link__heartbeat_seconds=0.3, link__missed_pongs=3, via=proxy)
        await cluster.daemon("n1", controller)
        proxy.delay(0.2)  # each way, so a pong is always later than the next ping
        session = controller.app.role.term.sessions.find(NodeId("n1"))
        await eventually(lambda: session.heartbeat.ponged >= 12)
        proxy.heal()
        lost = await controller.call("GET", "/api/v1/events?types=NODE_UNREACHABLE")
        assert lost["items"] == []


def fetch_call(daemon, session_id: str, epoch: int = 1):
    metadata = ((SESSION_KEY, session_id), (EPOCH_KEY, str(epoch)))
    return DataServiceStub(daemon.streams).Fetch(metadata=metadata)


async def reason_of(fetching) -> CorralError:
    error = await asyncio.wait_for(fetching.ending(peer="controller"), 10)
    assert error is not None
    return error


async def test_revoking_a_node_ends_its_transfers(controller, identity):
    digest = await controller.put_blob(os.urandom(2_000_000), node="raw")
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        session_id = (await daemon.greet()).handshake_ack.session_id
        fetching = fetch_call(daemon, session_id)
        await fetching.write(FetchMessage(open=FetchOpen(kind="blob", digest=digest, credit=65_536)))
        assert isinstance(await fetching.read(), DataChunk)
        await controller.call("POST", "/api/v1/nodes/raw/revoke", {})
        assert (await reason_of(fetching)).code is Code.TRANSFER_INTERRUPTED


async def test_a_node_has_only_so_many_transfers_at_once(controller, identity):
    digest = await controller.put_blob(os.urandom(200_000), node="raw")
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        session_id = (await daemon.greet()).handshake_ack.session_id
        held = [fetch_call(daemon, session_id) for _ in range(MAX_TRANSFERS)]
        for fetching in held:
            await fetching.write(FetchMessage(open=FetchOpen(kind="blob", digest=digest, credit=1)))
            assert len((await fetching.read()).data) == 1
        surplus = fetch_call(daemon, session_id)
        await surplus.write(FetchMessage(open=FetchOpen(kind="blob", digest=digest, credit=1)))
        assert (await reason_of(surplus)).code is Code.RATE_LIMITED
        for fetching in held:
            fetching.cancel()


async def test_a_grant_out_of_bounds_is_named(controller, identity):
    digest = await controller.put_blob(os.urandom(200_000), node="raw")
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        session_id = (await daemon.greet()).handshake_ack.session_id
        fetching = fetch_call(daemon, session_id)
        await fetching.write(FetchMessage(open=FetchOpen(kind="blob", digest=digest, credit=1)))
        await fetching.read()
        await fetching.write(FetchMessage(credit=Credit(bytes=1 << 60)))
        assert (await reason_of(fetching)).code is Code.INVALID_FIELD


async def test_an_administrators_certificate_ends_with_the_token_that_asked_for_it(controller):
    made = await controller.call("POST", "/api/v1/tokens", {"name": "mallory", "role": "ADMIN"})
    key = new_key()
    body = {"name": "alice", "csr_pem": make_csr(key, "alice").decode()}
    issued = await call(controller.url, made["token"], "POST", "/api/v1/cluster/certificates", body)
    credentials = grpc.ssl_channel_credentials(
        issued["ca_pem"].encode(), key_pem(key), issued["certificate_pem"].encode()
    )
    options = channel_options(controller_host(controller.app.role.term.state.identity.id))
    async with grpc.aio.secure_channel(controller.grpc_address, credentials, options=options) as channel:
        stub = AdminServiceStub(channel)
        await stub.ListJoinTokens(ListJoinTokensRequest(), timeout=10)
        await controller.call("DELETE", f"/api/v1/tokens/{made['id']}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ListJoinTokens(ListJoinTokensRequest(), timeout=10)
    assert from_rpc(caught.value, peer="c").code is Code.CERTIFICATE_REFUSED


async def test_raising_the_epoch_under_load_is_recorded_and_keeps_leading(controller):
    ending = asyncio.Event()

    async def keep_writing() -> None:
        while not ending.is_set():
            try:
                await controller.call("POST", "/api/v1/tokens", {"name": "x", "role": "VIEWER"})
            except CommandFailure:
                await asyncio.sleep(0.01)

    writers = [asyncio.create_task(keep_writing()) for _ in range(6)]
    for _ in range(5):
        answer = await controller.call("POST", "/api/v1/cluster/raise-epoch")
        raised = answer["epoch"]
        await eventually(lambda e=raised: getattr(controller.app.role.term, "epoch", 0) == e)
    ending.set()
    await asyncio.gather(*writers)
    events = await controller.call("GET", "/api/v1/events?types=CLUSTER_EPOCH_RAISED&limit=500")
    assert len(events["items"]) == 5
    audit = await controller.call("GET", "/api/v1/audit?limit=500")
    raised = [entry for entry in audit["items"] if entry["action"] == "cluster.raise_epoch"]
    assert [entry["outcome"] for entry in raised].count("ok") == 5


async def test_a_new_term_forgets_all_its_predecessors_sessions_at_once(cluster):
    controller = await cluster.controller()
    for number in range(5):
        await cluster.daemon(f"n{number}", controller, link__reconnect_max_seconds=60)
    commits = controller.app.role.term.state.number
    await controller.app.stop()
    again = await cluster.controller()
    state = again.app.role.term.state
    assert {stored.record.state for stored in state.nodes} == {NodeState.DISCONNECTED}
    assert state.number - commits <= 4, "the announcement, and two commits for all nodes: last seen, gone"


def bad_utf_8() -> bytes:
    return (
        DaemonMessage(error_report=ErrorReport(error_message="~~"))
        .SerializeToString()
        .replace(b"~~", b"\xff\xfe")
    )


@pytest.mark.trap("T93")
@pytest.mark.parametrize("greeted", [False, True])
@pytest.mark.parametrize("frame", [b"\xff\xff\xff\xff", bad_utf_8()], ids=["no-message", "bad-utf-8"])
async def test_a_frame_that_cannot_be_decoded_ends_its_stream_with_a_code_and_no_traceback(
    controller, identity, frame, greeted
):
    with structlog.testing.capture_logs() as logged:
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            if greeted:
                await daemon.greet()
            else:
                await daemon.open()
            await daemon.send(frame)
            error = await refusal_of(daemon.read_until("handshake_ack"))
        assert error.code is Code.BAD_REQUEST
        assert "cannot be decoded" in str(error)
        async with ScriptedDaemon(identity, controller.grpc_address) as again:
            assert (await again.greet()).handshake_ack.session_id
    assert "grpc.failed" not in [line["event"] for line in logged]
    assert not [line for line in logged if line.get("exc_info")]


async def test_a_burst_of_a_published_daemon_is_read_more_slowly_and_all_of_it_stored(controller, identity):
    """It cannot know the window that ours keep to."""
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(features=[])
        session = session_of(controller)
        for number in range(40):
            record = DaemonLogRecord(message=f"record {number}", throwable="x" * 1_000_000)
            await daemon.send(DaemonMessage(daemon_log_record=record))

        async def stored() -> list[str]:
            page = await controller.call("GET", "/api/v1/logs?source=node:raw&limit=500")
            return [each["message"] for each in page["items"]]

        async def all_stored() -> bool:
            return await stored() == [f"record {number}" for number in range(40)]

        await eventually(all_stored, state=lambda: session_of(controller))
        assert session_of(controller) is session


@pytest.mark.parametrize(
    "address", ["a\nb", "\x1b[31mred", "a\0b", "two words", "x" * 254, "10.0.0", "fe80::1%\x1b", "host:25565"]
)
async def test_an_address_that_is_no_host_is_refused_by_name(controller, identity, address):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet(advertise_address=address))
    assert error.code is Code.INVALID_FIELD
    assert "address" in error.message


@pytest.mark.parametrize("address", ["", "web-1.example.org", "10.0.0.1", "2001:db8::1", "[2001:db8::1]"])
async def test_an_address_that_others_can_use_is_taken(controller, identity, address):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(advertise_address=address)
        node = controller.app.role.term.state.nodes.require("raw").record
    assert node.address == address
