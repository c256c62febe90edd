"""How a host becomes a node, and how it does not."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from corral.daemon.node.enrolment import enrol
from corral.daemon.node.identity import load_identity
from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.errors import Code, CorralError, Rejected
from corral.pki.join_token import JoinToken
from corral.pki.keys import make_csr, new_key
from corral.pki.names import controller_host, read_peer
from corral.testing.fault_proxy import FaultProxy
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.channels import channel_options
from corral.wire.rpc_errors import from_rpc
from corral.wire.v1.bootstrap_pb2 import ExchangeJoinTokenRequest
from corral.wire.v1.bootstrap_pb2_grpc import BootstrapServiceStub


async def refusal_of(coroutine) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await coroutine
    return caught.value


async def exchange(controller, token: str, **fields):
    """A plain gRPC client of the bootstrap port."""
    parsed = JoinToken.parse(token)
    credentials = grpc.ssl_channel_credentials(root_certificates=parsed.authority_pem)
    options = channel_options(controller_host(parsed.cluster))
    async with grpc.aio.secure_channel(controller.bootstrap_address, credentials, options=options) as channel:
        request = ExchangeJoinTokenRequest(join_token=token, **fields)
        try:
            return await BootstrapServiceStub(channel).ExchangeJoinToken(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, peer="controller") from error


def stored_numbers(controller):
    state = controller.app.role.term.state
    return len(state.nodes), state.number


async def test_a_host_with_a_join_token_becomes_an_online_node(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    await controller.wait_for_node("n1", NodeState.ONLINE)
    node = await controller.call("GET", "/api/v1/nodes/n1")
    assert node["session"] == daemon.app.link.session_id
    assert node["memory_mb"] > 0


async def test_the_daemons_key_and_certificate_are_for_its_owner_alone(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    data = daemon.config.data
    assert (data / "identity.json").stat().st_mode & 0o077 == 0
    assert not (data / "enrolment.json").exists()
    assert (controller.data / "ca" / "cluster.key").stat().st_mode & 0o077 == 0


async def test_secrets_lie_in_the_store_only_as_digests(cluster):
    controller = await cluster.controller()
    token = await controller.join_token("n1")
    secret = JoinToken.parse(token).secret
    await cluster.daemon("n1", controller)
    files = [
        path.read_bytes()
        for path in controller.data.rglob("*")
        if path.is_file() and path.name != "admin.token"
    ]
    admin = controller.admin_token.rsplit("_", 1)[1].encode()
    assert not any(secret in content or admin in content or b"PRIVATE KEY" in content for content in files)


@pytest.mark.system
@pytest.mark.trap("T56")
@pytest.mark.parametrize("died", [False, True], ids=["cut", "killed"])
async def test_when_the_answer_is_lost_the_same_token_and_key_succeed_again(cluster, scratch, died):
    """The answer is on its way when the line is cut, and perhaps the daemon is killed, too."""
    controller = await cluster.controller()
    parsed = JoinToken.parse(await controller.join_token("n1"))
    (scratch / "n1").mkdir()
    async with FaultProxy(controller.bootstrap_address) as proxy:
        token = msgspec.structs.replace(parsed, bootstrap=(proxy.address,)).encode()

        def joining():
            return asyncio.create_task(
                enrol(scratch / "n1", token_text=token, node_id=NodeId("n1"), machine_id="m")
            )

        proxy.delay(0.5)  # long enough to lose the answer on its way
        attempt = joining()
        await controller.wait_for_node("n1", NodeState.ENROLLED)
        await proxy.cut(refuse=False)
        assert load_identity(scratch / "n1") is None, "the answer never arrived"
        if died:
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
            attempt = joining()
        proxy.heal()
        enrolled = await asyncio.wait_for(attempt, 30)
    assert enrolled is not None
    serials = controller.app.role.term.state.nodes.require("n1").record.serials
    assert len(serials) == 1, "the second answer is the first certificate again"
    async with ScriptedDaemon(enrolled.identity, controller.grpc_address) as daemon:
        assert (await daemon.greet()).handshake_ack.session_id


async def test_a_used_token_is_refused_for_any_other_key(cluster, scratch):
    controller = await cluster.controller()
    token = await controller.join_token("n1")
    await enrolled_identity(scratch / "a", token=token, node_id="n1")
    before = stored_numbers(controller)
    error = await refusal_of(enrolled_identity(scratch / "b", token=token, node_id="n1"))
    assert error.code is Code.JOIN_TOKEN_USED
    assert stored_numbers(controller) == before


async def test_a_token_that_was_never_issued_is_refused(cluster, scratch):
    controller = await cluster.controller()
    token = JoinToken.parse(await controller.join_token("n1"))
    forged = msgspec.structs.replace(token, secret=b"x" * 24).encode()
    error = await refusal_of(exchange(controller, forged, node_id="n1", csr_pem=make_csr(new_key(), "n1")))
    assert error.code is Code.JOIN_TOKEN_INVALID


async def test_a_revoked_token_is_refused(cluster):
    controller = await cluster.controller()
    answer = await controller.call("POST", "/api/v1/nodes/join-tokens", {"node_id": "n1"})
    await controller.call("DELETE", f"/api/v1/nodes/join-tokens/{answer['id']}")
    error = await refusal_of(exchange(controller, answer["token"], csr_pem=make_csr(new_key(), "n1")))
    assert error.code is Code.JOIN_TOKEN_INVALID


async def test_an_expired_token_is_refused_and_says_when_it_expired(cluster, clock):
    controller = await cluster.controller(clock=clock)
    token = await controller.join_token("n1", ttl_seconds=60)
    clock.step(61)
    error = await refusal_of(exchange(controller, token, node_id="n1", csr_pem=make_csr(new_key(), "n1")))
    assert error.code is Code.JOIN_TOKEN_EXPIRED
    assert "UTC" in error.message


@pytest.mark.parametrize(
    "text", ["", "x", "corral-join-1.", "corral-join-1.AAAA", "corral-join-1." + "A" * 500]
)
def test_a_mistyped_token_is_refused_before_anything_is_sent(text):
    with pytest.raises(Rejected) as caught:
        JoinToken.parse(text)
    assert caught.value.code is Code.JOIN_TOKEN_INVALID


async def test_a_token_for_one_id_enrols_no_other(cluster, scratch):
    controller = await cluster.controller()
    token = await controller.join_token("n1")
    error = await refusal_of(enrolled_identity(scratch / "x", token=token, node_id="n2"))
    assert error.code is Code.JOIN_TOKEN_INVALID
    assert "n1" in error.message


async def test_an_enrolled_id_is_taken_over_only_with_replace(cluster, scratch):
    controller = await cluster.controller()
    first = await enrolled_identity(scratch / "a", token=await controller.join_token("n1"), node_id="n1")
    open_token = await controller.join_token()
    error = await refusal_of(enrolled_identity(scratch / "b", token=open_token, node_id="n1"))
    assert error.code is Code.NODE_ID_IN_USE
    replacing = await controller.join_token("n1", replace=True)
    async with ScriptedDaemon(first, controller.grpc_address) as old:
        await old.greet()
        second = await enrolled_identity(scratch / "c", token=replacing, node_id="n1")
        with pytest.raises(CorralError) as caught:
            await old.read_until("handshake_ack")
        assert caught.value.code is Code.CERTIFICATE_REFUSED
    async with ScriptedDaemon(second, controller.grpc_address) as new:
        assert (await new.greet()).handshake_ack.session_id


async def test_names_in_the_request_are_ignored(cluster, scratch):
    controller = await cluster.controller()
    key = new_key()
    token = await controller.join_token("n1")
    answer = await exchange(controller, token, csr_pem=make_csr(key, "controller"), node_id="n1")
    assert answer.node_id == "n1"
    assert read_peer(answer.certificate_pem).name == "n1"


@pytest.mark.parametrize("csr", [b"garbage", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", b"x" * 20_000])
async def test_a_broken_request_is_refused_and_leaves_the_token_usable(cluster, csr):
    controller = await cluster.controller()
    token = await controller.join_token("n1")
    error = await refusal_of(exchange(controller, token, node_id="n1", csr_pem=csr))
    assert error.code is Code.INVALID_FIELD
    answer = await exchange(controller, token, node_id="n1", csr_pem=make_csr(new_key(), "n1"))
    assert answer.certificate_pem


async def test_a_peer_of_the_published_protocol_gets_a_pkcs12_archive(cluster):
    controller = await cluster.controller()
    answer = await exchange(controller, await controller.join_token("n1"), node_id="n1")
    key, certificate, _ = pkcs12.load_key_and_certificates(answer.pkcs12, answer.pkcs12_password.encode())
    assert key is not None
    assert certificate is not None


async def test_one_address_cannot_try_tokens_without_end(cluster):
    controller = await cluster.controller(bootstrap__rate_per_minute=3)
    token = await controller.join_token("n1")
    codes = []
    for _ in range(5):
        with contextlib.suppress(CorralError):
            await exchange(controller, token, node_id="n1", csr_pem=b"garbage")
        codes.append((await refusal_of(exchange(controller, token, csr_pem=b"garbage"))).code)
    assert codes[-1] is Code.RATE_LIMITED


@pytest.mark.system
async def test_certificates_are_renewed_and_the_new_connection_replaces_the_old(cluster):
    controller = await cluster.controller(pki__node_certificate_days=6 / 86400)
    daemon = await cluster.daemon("n1", controller)
    first = daemon.app.link.session_id
    state = controller.app.role.term.state
    await eventually(lambda: len(state.nodes.require("n1").record.serials) == 2, deadline=30)
    await eventually(lambda: daemon.app.link.session_id not in ("", first), deadline=30)
    kept = load_identity(daemon.config.data)
    assert kept is not None
    events = await controller.call("GET", "/api/v1/events?types=NODE_DISCONNECTED,NODE_UNREACHABLE")
    assert events["items"] == [], "the node was never offline while its certificate changed"
    told = await controller.call(
        "GET", "/api/v1/events?types=CLUSTER_CREATED,NODE_ENROLLED,NODE_CERTIFICATE_RENEWED"
    )
    types = [event["type"] for event in told["items"]]
    assert types[:3] == ["CLUSTER_CREATED", "NODE_ENROLLED", "NODE_CERTIFICATE_RENEWED"]


def identity_serial(identity) -> str:
    return read_peer(identity.certificate_pem.encode()).serial


async def test_a_renewal_that_is_asked_for_again_is_answered_with_the_same_certificate(cluster, scratch):
    controller = await cluster.controller()
    identity = await enrolled_identity(scratch / "a", token=await controller.join_token("n1"), node_id="n1")
    enrolment = controller.app.role.term.link.enrolment
    csr = make_csr(new_key(), "n1")
    proven = identity_serial(identity)
    first = await enrolment.renew(NodeId("n1"), proven=proven, csr_pem=csr)
    before = controller.app.role.term.state.number
    assert await enrolment.renew(NodeId("n1"), proven=proven, csr_pem=csr) == first
    assert controller.app.role.term.state.number == before


async def test_only_the_newest_two_certificates_are_accepted(cluster, scratch):
    controller = await cluster.controller()
    identity = await enrolled_identity(scratch / "a", token=await controller.join_token("n1"), node_id="n1")
    enrolment = controller.app.role.term.link.enrolment
    proven = identity_serial(identity)
    for _ in range(3):  # answers that never arrive
        await enrolment.renew(NodeId("n1"), proven=proven, csr_pem=make_csr(new_key(), "n1"))
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        assert (await daemon.greet()).handshake_ack.session_id, "what it proved to have stays good"
    newest = controller.app.role.term.state.nodes.require("n1").record.serials[0]
    await enrolment.renew(NodeId("n1"), proven=newest, csr_pem=make_csr(new_key(), "n1"))
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        error = await refusal_of(daemon.greet())
    assert error.code is Code.CERTIFICATE_REFUSED
    assert "superseded" in error.message


async def test_revocation_ends_the_session_at_once_and_for_good(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    await controller.call("POST", "/api/v1/nodes/n1/revoke", {"reason": "stolen"})
    await controller.wait_for_node("n1", NodeState.REVOKED)
    async with ScriptedDaemon(daemon.app.identity, controller.grpc_address) as again:
        error = await refusal_of(again.greet())
    assert error.code is Code.CERTIFICATE_REFUSED
    assert "stolen" in error.message
    assert controller.app.role.term.sessions.find(NodeId("n1")) is None


async def test_a_revoked_node_may_enrol_again_in_place(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    await controller.call("POST", "/api/v1/nodes/n1/revoke", {})
    token = await controller.join_token("n1")
    again = await cluster.restart(daemon, join=token)
    await asyncio.wait_for(again.app.ready.wait(), 20)
    assert controller.node_state("n1") is NodeState.ONLINE
