"""A daemon keeps its link, whatever its disk, its host or its controller does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib

import pytest
import structlog

from corral.daemon.link.link import DaemonLink
from corral.daemon.link.spool import Spool
from corral.daemon.node.identity import load_identity
from corral.daemon.node.known_controllers import KnownControllers
from corral.domain.ids import ClusterId
from corral.errors import Code, CorralError, Retryable
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey
from corral.system import log_context
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.system.logger import level_number
from corral.testing.cluster import daemon_config
from corral.testing.ports import free_addresses
from corral.testing.scripted_peers import ScriptedController
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport, Handshake, HandshakeAck, NodeStatus, Ping, SetLogLevel
from corral.wire.v1.plan_pb2 import PreWarmCache


def accepted(**fields) -> ControllerMessage:
    ack = HandshakeAck(
        session_id="s", protocol_version=PROTOCOL_VERSION, protocol_compatible=True, epoch=1, **fields
    )
    return ControllerMessage(handshake_ack=ack, epoch=1)


async def hold(context) -> None:
    """Read and say nothing until the daemon hangs up."""
    while isinstance(await context.read(), DaemonMessage):
        pass


def fill(disk: pathlib.Path) -> pathlib.Path:
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)
    return ballast


async def test_a_daemon_without_room_for_a_new_epoch_waits_with_it_and_goes_on_when_there_is_room(
    cluster, scratch
):
    controller = await cluster.controller()
    with small_disk(scratch / "n1", size="2m") as disk, structlog.testing.capture_logs() as logged:
        daemon = await cluster.daemon("n1", controller)
        (disk / ".link.room").unlink()
        ballast = fill(disk)
        for number in range(2000):
            daemon.log.write(f"record {number} " + "x" * 500)
        await controller.call("POST", "/api/v1/cluster/raise-epoch")

        def refusals() -> int:
            return sum(
                line["event"] == "link.refused" and line["code"] == Code.STORE_UNAVAILABLE.name
                for line in logged
            )

        await eventually(lambda: refusals() >= 3)
        assert not daemon.app.ready.is_set(), "a controller is not obeyed that cannot be remembered"
        ballast.unlink()
        await asyncio.wait_for(daemon.app.ready.wait(), 20)
        assert KnownControllers(disk, []).epoch == controller.app.role.term.epoch > 1
        daemon.log.write("there is room again")
        await eventually(lambda: any(line["event"] == "spool.recovered" for line in logged))

        async def arrived():
            after, found = 0, True
            while found:
                page = await controller.call("GET", f"/api/v1/logs?source=node:n1&limit=500&after={after}")
                found = page["items"]
                if found and found[-1]["message"] == "there is room again":
                    return True
                after = found[-1]["number"] if found else after
            return False

        await eventually(arrived, deadline=60)
        await daemon.app.stop()


class StubbornHost:
    """A host that cannot say who it is for the first few times, and knows few log levels."""

    def __init__(self, *, failures: int = 0, unmeasured: int = 0) -> None:
        self.failures = failures
        self.unmeasured = unmeasured
        self.levels: list[str] = []

    def handshake(self) -> Handshake:
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
        return Handshake(version=VERSION, protocol_version=PROTOCOL_VERSION)

    def status(self) -> NodeStatus:
        if self.unmeasured:
            self.unmeasured -= 1
            raise OSError(5, "Input/output error")
        return NodeStatus()

    def set_log_level(self, level: str) -> None:
        if level:
            level_number(level)
        self.levels.append(level)


@contextlib.asynccontextmanager
async def running_link(data: pathlib.Path, peer: ScriptedController, host: StubbornHost, **options):
    """A link of its own, once it is connected."""
    entropy = SystemEntropy()
    identity = peer.enrol(data, "n1")
    spool = Spool.open(data / "spool", entropy=entropy, log_bytes=10**6, max_bytes=10**6)
    link = DaemonLink(
        data=data,
        identity=identity,
        memory=KnownControllers(data, [peer.address, *free_addresses(1)]),
        spool=spool,
        host=host,
        settings=daemon_config(data).link,
        clock=SystemClock(),
        entropy=entropy,
        **options,
    )
    running = asyncio.create_task(link.run())
    try:
        await eventually(lambda: link.connected.is_set() or running.done())
        assert not running.done(), running.exception()
        yield link
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await spool.close()


async def test_a_frame_that_cannot_be_dealt_with_is_told_and_passed_and_so_is_a_listener_that_fails(scratch):
    heard: list[DaemonMessage] = []

    async def script(context):
        await context.read()
        await context.write(accepted())
        for number in range(50):
            await context.write(ControllerMessage(pre_warm_cache=PreWarmCache(), epoch=1))
            await context.write(ControllerMessage(ping=Ping(sequence=number), epoch=1))
        while isinstance(frame := await context.read(), DaemonMessage):
            heard.append(frame)

    class Failing:
        def on_connected(self, _):
            raise ZeroDivisionError("connected")

        def on_disconnected(self):
            raise ZeroDivisionError("disconnected")

    def order(reply, message):
        raise ZeroDivisionError("order \ud800")

    async with ScriptedController(script) as peer:
        with structlog.testing.capture_logs() as logged:
            options = {"orders": {"pre_warm_cache": order}, "listeners": [Failing()]}
            async with running_link(scratch / "n1", peer, StubbornHost(), **options):
                await eventually(lambda: any(m.pong.sequence == 49 for m in heard), state=lambda: heard)
        assert peer.streams == 1, "the link stayed"
    reports = [m.error_report for m in heard if m.WhichOneof("payload") == "error_report"]
    assert (reports[0].error_code, reports[0].context) == ("INTERNAL", "frame:pre_warm_cache")
    assert len(reports) < 10, "not one for each frame"
    assert [line["event"] for line in logged].count("link_listener.failed") == 2


async def test_a_cause_that_names_no_request_is_ignored_and_the_link_stays(scratch):
    causes = {
        "request:req-1": "req-1",
        "request:a b": "",
        "request:a\nb": "",
        f"request:{'x' * 129}": "",
        f"request:{'x' * 500_000}": "",
        "request:\u202e": "",
        "decision:dec-1": "",
        "req-1": "",
        "": "",
        "request:req-2": "req-2",
    }
    ponged = asyncio.Event()

    async def script(context):
        await context.read()
        await context.write(accepted())
        for cause in causes:
            await context.write(ControllerMessage(pre_warm_cache=PreWarmCache(), epoch=1, cause=cause))
        await context.write(ControllerMessage(ping=Ping(sequence=7), epoch=1, cause="request:\n"))
        while isinstance(frame := await context.read(), DaemonMessage):
            if frame.pong.sequence == 7:
                ponged.set()

    seen: list[str] = []

    def order(reply, message):
        seen.append(log_context.bound_request())

    async with ScriptedController(script) as peer:
        async with running_link(scratch / "n1", peer, StubbornHost(), orders={"pre_warm_cache": order}):
            await eventually(ponged.is_set)
        assert peer.streams == 1, "the link stayed"
    assert seen == list(causes.values())


async def test_whatever_goes_wrong_while_dialling_the_link_tries_again(scratch):
    async def script(context):
        await context.read()
        await context.write(accepted())
        await hold(context)

    host = StubbornHost(failures=5)
    with structlog.testing.capture_logs() as logged:
        async with ScriptedController(script) as peer, running_link(scratch / "n1", peer, host):
            assert host.failures == 0
    events = [line["event"] for line in logged]
    assert events.count("dial.failed") == 5
    assert "dial_round.failed" not in events, "one that fails does not stop the others of its round"


async def test_a_host_that_cannot_be_measured_is_no_reason_to_part(scratch):
    heard: list[str] = []

    async def script(context):
        await context.read()
        await context.write(accepted())
        while isinstance(frame := await context.read(), DaemonMessage):
            heard.append(frame.WhichOneof("payload") or "")

    host = StubbornHost(unmeasured=1)
    with structlog.testing.capture_logs() as logged:
        async with ScriptedController(script) as peer, running_link(scratch / "n1", peer, host):
            await eventually(lambda: "node_status" in heard)
            assert peer.streams == 1
    assert [line["event"] for line in logged].count("link_status.refused") == 1


async def test_a_log_level_that_only_a_newer_controller_knows_is_no_reason_to_part(scratch):
    async def script(context):
        await context.read()
        await context.write(accepted(log_level="WHISPER"))
        for level in ("SHOUT", "DEBUG"):
            await context.write(ControllerMessage(set_log_level=SetLogLevel(level=level), epoch=1))
        await hold(context)

    host = StubbornHost()
    async with ScriptedController(script) as peer, running_link(scratch / "n1", peer, host):
        await eventually(lambda: host.levels == ["DEBUG"])
        assert peer.streams == 1


async def stuck(connection, report: DaemonMessage) -> None:
    """Send until the line takes no more and the writer sits in a write that does not end."""
    with contextlib.suppress(AssertionError):
        while True:
            assert connection.send(report)
            await eventually(lambda: len(connection.outbox) == 0, deadline=1)


@pytest.mark.parametrize("writer", ["stuck", "idle"])
async def test_a_controller_that_pings_and_never_reads_is_parted_from(cluster, scratch, writer):
    async def script(context):
        await context.read()
        await context.write(accepted(heartbeat_interval_ms=1000))
        while True:
            await context.write(ControllerMessage(ping=Ping(sequence=1), epoch=1))
            await asyncio.sleep(0.2)

    async with ScriptedController(script) as peer:
        peer.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[peer.address], link__status_seconds=600)
        connection = daemon.app.link._current.connection
        report = DaemonMessage(error_report=ErrorReport(error_message="x" * 1_000_000))
        await eventually(lambda: len(connection.outbox) == 0)
        if writer == "stuck":
            await stuck(connection, report)
        with structlog.testing.capture_logs() as logged:
            while connection.send(report):
                pass
            await eventually(lambda: peer.streams > 1)
        (lost,) = (line for line in logged if line["event"] == "link.lost")
        assert "does not read its stream" in lost["reason"]
        await daemon.app.stop()


async def test_an_enrolment_that_could_not_store_the_addresses_begins_again(cluster, scratch):
    """Whoever knows who he is does not ask again: so he must know by then where to go."""
    controller = await cluster.controller()
    token = await controller.join_token("n1")
    in_the_way = scratch / "n1" / f".link.json.{os.getpid()}.tmp"
    in_the_way.mkdir(parents=True)
    (scratch / "n1" / ".link.room").mkdir()
    (scratch / "n1" / "daemon.lock").touch()  # a daemon has used the directory before
    with pytest.raises((CorralError, OSError)) as caught:
        await cluster.daemon("n1", None, join=token)
    in_the_way.rmdir()
    (scratch / "n1" / ".link.room").rmdir()
    daemon = await cluster.daemon("n1", None, join=token)
    assert daemon.app.ready.is_set()
    assert isinstance(caught.value, Retryable)
    assert caught.value.code is Code.STORE_UNAVAILABLE


def another_authority() -> bytes:
    clock, entropy, cluster = SystemClock(), SystemEntropy(), ClusterId("scripted")
    key = ClusterKey(entropy.secret(32))
    sealed = Authority.create(cluster=cluster, cluster_key=key, clock=clock, entropy=entropy)
    return Authority.open(sealed, cluster=cluster, cluster_key=key, clock=clock).certificate_pem


async def connected_with(cluster, scratch, bundle_of) -> tuple[str, str]:
    """The trust on disk before and after a controller named these authorities."""

    async def script(context):
        await context.read()
        await context.write(accepted(trusted_ca_pem=bundle_of(peer._authority.certificate_pem)))
        await hold(context)

    async with ScriptedController(script) as peer:
        before = peer.enrol(scratch / "n1", "n1").trusted_ca_pem
        daemon = await cluster.daemon("n1", None, controllers=[peer.address])
        for_workloads = (scratch / "n1" / "authority.pem").read_text()
        assert for_workloads == load_identity(scratch / "n1").trusted_ca_pem
        again = await cluster.restart(daemon)
        await asyncio.wait_for(again.app.ready.wait(), 20)
        after = load_identity(scratch / "n1").trusted_ca_pem
        await again.app.stop()
    return before, after


async def test_authorities_that_the_controller_names_are_trusted_from_then_on(cluster, scratch):
    newer = another_authority()
    before, after = await connected_with(cluster, scratch, lambda own: own + newer)
    assert after == before + newer.decode()


@pytest.mark.parametrize(
    "bundle",
    [b"", b"\xff\xff", b"no certificate", another_authority()],
    ids=["empty", "binary", "text", "foreign"],
)
async def test_authorities_that_would_lock_us_out_are_not_taken_over(cluster, scratch, bundle):
    with structlog.testing.capture_logs() as logged:
        before, after = await connected_with(cluster, scratch, lambda _: bundle)
    assert after == before
    assert any(line["event"] == "link_trust.kept" for line in logged)


BAD_FRAMES = {
    "no-message": b"\xff\xff\xff\xff",
    "bad-utf-8": ControllerMessage(error_report=ErrorReport(error_message="~~"))
    .SerializeToString()
    .replace(b"~~", b"\xff\xfe"),
}


@pytest.mark.trap("T93")
@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
async def test_a_frame_that_cannot_be_decoded_ends_the_stream_at_once_and_the_daemon_is_back(
    scratch, frame, caplog
):
    async def script(context):
        await context.read()
        await context.write(accepted(heartbeat_interval_ms=600_000))
        if peer.streams == 1:
            await context.write(frame)
        await hold(context)

    with structlog.testing.capture_logs() as logged:
        async with (
            ScriptedController(script) as peer,
            running_link(scratch / "n1", peer, StubbornHost()) as link,
        ):
            await eventually(lambda: peer.streams == 2 and link.connected.is_set())
    (lost,) = (line for line in logged if line["event"] == "link.lost")
    assert "cannot be decoded" in lost["reason"]
    assert not [record for record in caplog.records if record.exc_info], "no traceback"


@pytest.mark.trap("T93")
async def test_a_greeting_that_cannot_be_decoded_is_a_refusal_with_a_reason(scratch):
    async def script(context):
        await context.read()
        await context.write(BAD_FRAMES["no-message"] if peer.streams == 1 else accepted())
        await hold(context)

    with structlog.testing.capture_logs() as logged:
        async with ScriptedController(script) as peer, running_link(scratch / "n1", peer, StubbornHost()):
            assert peer.streams == 2
    refused = [line["reason"] for line in logged if line["event"] == "link.refused"]
    assert any("cannot be decoded" in reason for reason in refused), refused
