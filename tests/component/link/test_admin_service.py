"""`AdminService` with a plain gRPC client and an administrator's certificate."""

from __future__ import annotations

import grpc
import pytest

from corral.errors import Code, CorralError
from corral.pki.keys import key_pem, make_csr, new_key
from corral.pki.names import controller_host
from corral.testing.scripted_peers import enrolled_identity
from corral.wire.channels import channel_options
from corral.wire.rpc_errors import from_rpc
from corral.wire.v1.admin_pb2 import (
    CreateJoinTokenRequest,
    ListJoinTokensRequest,
    RevokeJoinTokenRequest,
)
from corral.wire.v1.admin_pb2_grpc import AdminServiceStub


@pytest.fixture
async def controller(cluster):
    return await cluster.controller()


async def calling(controller, credentials, method: str, request):
    cluster_id = controller.app.role.term.state.identity.id
    options = channel_options(controller_host(cluster_id))
    async with grpc.aio.secure_channel(controller.grpc_address, credentials, options=options) as channel:
        try:
            return await getattr(AdminServiceStub(channel), method)(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, peer="controller") from error


@pytest.fixture
async def admin(controller):
    key = new_key()
    answer = await controller.call(
        "POST", "/api/v1/cluster/certificates", {"name": "ops", "csr_pem": make_csr(key, "ops").decode()}
    )
    return grpc.ssl_channel_credentials(
        answer["ca_pem"].encode(), key_pem(key), answer["certificate_pem"].encode()
    )


async def test_join_tokens_are_created_listed_used_and_revoked(controller, admin, scratch):
    created = await calling(
        controller, admin, "CreateJoinToken", CreateJoinTokenRequest(node_id="n1", ttl_seconds=600)
    )
    listed = await calling(controller, admin, "ListJoinTokens", ListJoinTokensRequest())
    assert [(token.token_id, token.node_id, token.expired) for token in listed.tokens] == [
        (created.token_id, "n1", False)
    ]
    identity = await enrolled_identity(scratch / "n1", token=created.join_token, node_id="n1")
    assert identity.node_id == "n1"
    spare = await calling(controller, admin, "CreateJoinToken", CreateJoinTokenRequest())
    await calling(controller, admin, "RevokeJoinToken", RevokeJoinTokenRequest(token_id=spare.token_id))
    listed = await calling(controller, admin, "ListJoinTokens", ListJoinTokensRequest())
    assert not listed.tokens
    audit = await controller.call("GET", "/api/v1/audit")
    assert any(entry["actor"].startswith("certificate:ops (token:") for entry in audit["items"])


async def test_a_nodes_certificate_does_not_administer(controller, scratch):
    identity = await enrolled_identity(scratch / "n1", token=await controller.join_token("n1"), node_id="n1")
    with pytest.raises(CorralError) as caught:
        await calling(controller, identity.channel_credentials(), "ListJoinTokens", ListJoinTokensRequest())
    assert caught.value.code is Code.CERTIFICATE_REFUSED


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (CreateJoinTokenRequest(node_id="../x"), "node"),
        (CreateJoinTokenRequest(ttl_seconds=-1), "ttl"),
        (CreateJoinTokenRequest(node_id="join-tokens"), "reserved"),
    ],
)
async def test_bad_requests_are_refused_and_store_nothing(controller, admin, request_, field):
    before = controller.app.role.term.state.number
    with pytest.raises(CorralError) as caught:
        await calling(controller, admin, "CreateJoinToken", request_)
    assert field in str(caught.value)
    assert controller.app.role.term.state.number == before


async def test_a_token_that_is_not_there_cannot_be_revoked(controller, admin):
    with pytest.raises(CorralError) as caught:
        await calling(controller, admin, "RevokeJoinToken", RevokeJoinTokenRequest(token_id="nope"))
    assert caught.value.code is Code.NOT_FOUND


@pytest.mark.trap("T25")
@pytest.mark.parametrize("how", ["locked", "narrowed"])
async def test_a_certificate_ends_with_the_rights_of_whoever_requested_it(controller, how):
    role = {"name": "keys", "permissions": ["cluster.manage", "nodes.enrol", "self.read"]}
    await controller.call("POST", "/api/v1/roles", role)
    await controller.call("POST", "/api/v1/users", {"name": "ada", "bindings": [{"role": "keys"}]})
    token = await controller.call("POST", "/api/v1/tokens", {"name": "t", "role": "ADMIN", "owner": "ada"})
    key = new_key()
    issued = await controller.call(
        "POST",
        "/api/v1/cluster/certificates",
        {"name": "ada", "csr_pem": make_csr(key, "ada").decode()},
        token=token["token"],
    )
    credentials = grpc.ssl_channel_credentials(
        issued["ca_pem"].encode(), key_pem(key), issued["certificate_pem"].encode()
    )
    await calling(controller, credentials, "ListJoinTokens", ListJoinTokensRequest())
    if how == "locked":
        await controller.call("POST", "/api/v1/users/ada/lock", {"reason": "left"})
    else:
        await controller.call("PATCH", "/api/v1/roles/keys", {"permissions": ["cluster.manage", "self.read"]})
    with pytest.raises(CorralError) as caught:
        await calling(controller, credentials, "ListJoinTokens", ListJoinTokensRequest())
    assert caught.value.code is Code.CERTIFICATE_REFUSED
