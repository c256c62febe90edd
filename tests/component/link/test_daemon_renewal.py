"""A node renews its certificate once, in time, and is never locked out by a lost answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from corral.daemon.node.identity import load_identity
from corral.domain.ids import NodeId
from corral.pki.keys import key_digest, load_key, read_csr
from corral.pki.names import read_peer
from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.features import RENEW
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import CertificateIssued, HandshakeAck

DAY = 86400
ACK = HandshakeAck(session_id="s", protocol_version=1, protocol_compatible=True, epoch=1, features=[RENEW])


def record(controller):
    return controller.app.role.term.state.nodes.require("n1").record


def newest_serial(controller) -> str:
    return record(controller).renewal.serial


def session_serial(controller) -> str:
    session = controller.app.role.term.sessions.find(NodeId("n1"))
    return session.facts.serial if session else ""


async def renewals(controller) -> int:
    events = await controller.call("GET", "/api/v1/events?types=NODE_CERTIFICATE_RENEWED&limit=500")
    return len(events["items"])


def serial_on_disk(daemon) -> str:
    identity = load_identity(daemon.config.data)
    assert identity is not None
    return read_peer(identity.certificate_pem.encode()).serial


@pytest.mark.trap("T56")
@pytest.mark.parametrize("died", [False, True], ids=["cut", "stopped"])
async def test_when_the_answer_to_a_renewal_is_lost_it_is_asked_for_again(cluster, clock, died):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy, link__heartbeat_seconds=20)
        daemon = await cluster.daemon("n1", controller, clock=clock)
        (first,) = record(controller).serials
        proxy.stall(answers_only=True)
        clock.step(21 * DAY)
        await eventually(lambda: len(record(controller).serials) == 2)
        assert serial_on_disk(daemon) == first, "the answer never arrived"
        if died:
            await daemon.app.stop()
        await proxy.cut(refuse=False)
        proxy.heal()
        if died:
            daemon = await cluster.daemon("n1", controller, clock=clock)
        await eventually(lambda: serial_on_disk(daemon) == record(controller).serials[0] != first)
        await eventually(lambda: session_serial(controller) == serial_on_disk(daemon))
        assert await renewals(controller) == 1, "the second answer is the first certificate again"
        assert not (daemon.config.data / "renewal.json").exists()
        await daemon.app.stop()


async def requested_key(context) -> str:
    """Wait for a request of the daemon; names the key it asks for."""
    while isinstance(frame := await context.read(), DaemonMessage):
        if frame.WhichOneof("payload") == "certificate_request":
            return key_digest(read_csr(frame.certificate_request.csr_pem))
    raise AssertionError("the daemon hung up without asking")


async def test_every_attempt_asks_for_the_same_key_until_one_is_answered(cluster, scratch, clock):
    asked: list[str] = []

    async def script(context):
        await context.read()
        await context.write(ControllerMessage(handshake_ack=ACK, epoch=1))
        asked.append(await requested_key(context))  # and the answer is lost with the stream

    clock.step(20 * 3600)  # the scripted controller's certificates live for a day
    async with ScriptedController(script) as peer:
        before = peer.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, clock=clock, controllers=[peer.address])
        await eventually(lambda: len(asked) >= 2)
        pending = scratch / "n1" / "renewal.json"
        assert pending.stat().st_mode & 0o077 == 0
        await daemon.app.stop()
        seen = len(asked)
        again = await cluster.daemon("n1", None, clock=clock, controllers=[peer.address])
        await eventually(lambda: len(asked) > seen)
        await again.app.stop()
    assert len(set(asked)) == 1
    assert asked[0] != key_digest(load_key(before.key_pem.encode()).public_key())


async def test_an_answer_that_is_refused_is_not_asked_for_again_and_the_stream_goes_on(
    cluster, scratch, clock
):
    answered = asyncio.Event()

    async def script(context):
        await context.read()
        await context.write(ControllerMessage(handshake_ack=ACK, epoch=1))
        await requested_key(context)
        for junk in (b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            issued = CertificateIssued(certificate_pem=junk)
            await context.write(ControllerMessage(certificate_issued=issued, epoch=1))
        answered.set()
        await context.read()
        await asyncio.Event().wait()

    clock.step(20 * 3600)
    async with ScriptedController(script) as peer:
        before = peer.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, clock=clock, controllers=[peer.address])
        await asyncio.wait_for(answered.wait(), 20)
        await eventually(lambda: not (scratch / "n1" / "renewal.json").exists())
        assert load_identity(scratch / "n1") == before
        assert peer.streams == 1
        await daemon.app.stop()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
async def test_a_damaged_file_of_a_pending_renewal_does_not_keep_a_node_from_renewing(
    cluster, scratch, clock, content
):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller, clock=clock)
    await daemon.app.stop()
    (first,) = record(controller).serials
    (daemon.config.data / "renewal.json").write_bytes(content)
    clock.step(21 * DAY)
    again = await cluster.daemon("n1", controller, clock=clock)
    await eventually(lambda: serial_on_disk(again) != first)


async def test_a_key_that_was_meant_for_an_earlier_certificate_is_not_used_again(cluster, clock):
    """The daemon was killed after it stored its new identity and before it removed the pending key."""
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller, clock=clock)
    await daemon.app.stop()
    identity = load_identity(daemon.config.data)
    (first,) = record(controller).serials
    value = {"replaces": "0badcafe", "key_pem": identity.key_pem}
    document = {"format": "corral-renewal", "version": 1, "value": value}
    (daemon.config.data / "renewal.json").write_text(json.dumps(document))
    clock.step(21 * DAY)
    again = await cluster.daemon("n1", controller, clock=clock)
    await eventually(lambda: serial_on_disk(again) != first)
    assert load_identity(again.config.data).key_pem != identity.key_pem


async def test_a_clock_far_ahead_makes_a_node_renew_once_and_not_for_ever(cluster, clock):
    clock.step(25 * DAY)
    controller = await cluster.controller(link__heartbeat_seconds=0.1)
    daemon = await cluster.daemon("n1", controller, clock=clock)
    sessions = controller.app.role.term.sessions
    await eventually(lambda: len(record(controller).serials) == 2)
    # Of the new certificate: until it lies on the disk, session and disk agree about the old one.
    await eventually(
        lambda: session_serial(controller) == serial_on_disk(daemon) == newest_serial(controller)
    )
    renewed = sessions.find(NodeId("n1"))
    await eventually(lambda: renewed.heartbeat.pinged > 10, state=lambda: renewed.heartbeat.pinged)
    assert sessions.find(NodeId("n1")) is renewed
    assert await renewals(controller) == 1
    await daemon.app.stop()
