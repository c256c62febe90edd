"""What a node says of itself are claims; what an operator says counts before them."""

from __future__ import annotations

import pytest

from corral.cli.failure import CommandRefused
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.node_pb2 import Ping

NODE = "/api/v1/nodes/raw"
CLAIMED = {
    "labels": {"team": "a", "zone": "eu"},
    "total_memory_mb": 1 << 40,
    "available_cpus": 64,
    "runtimes": ["process", "tmux"],
}


@pytest.fixture
async def controller(cluster):
    return await cluster.controller()


@pytest.fixture
async def identity(controller, scratch):
    return await enrolled_identity(scratch / "raw", token=await controller.join_token("raw"), node_id="raw")


async def events(controller, type: str) -> list[dict]:
    return [each["data"] for each in (await controller.call("GET", f"/api/v1/events?types={type}"))["items"]]


async def test_a_node_without_settings_has_what_it_claims(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**{**CLAIMED, "total_memory_mb": 4096})
        node = await controller.call("GET", NODE)
    assert (node["labels"], node["memory_mb"], node["cpus"]) == ({"team": "a", "zone": "eu"}, 4096, 64)
    assert node["runtimes"] == ["process", "tmux"]
    assert node["settings"] == {}
    assert await events(controller, "NODE_CLAIMS_CHANGED") == []


async def test_what_an_operator_set_counts_before_every_claim_and_over_sessions(controller, identity):
    limits = {"memory_mb": 2048, "cpus": 2, "runtimes": ["process"]}
    await controller.call(
        "PATCH", NODE, {"labels": {"team": "b", "zone": None, "trusted.eu": "yes"}, **limits}
    )
    for _ in range(2):
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.greet(**CLAIMED)
            node = await controller.call("GET", NODE)
        assert node["labels"] == {"team": "b", "trusted.eu": "yes"}
        assert (node["memory_mb"], node["cpus"], node["runtimes"]) == (2048, 2, ["process"])
        assert node["claims"]["labels"] == CLAIMED["labels"]
    assert (await events(controller, "NODE_CONFIGURED"))[0]["labels"] == {"team": "b", "trusted.eu": "yes"}


async def test_settings_that_are_taken_back_leave_it_to_the_node_again(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**{**CLAIMED, "total_memory_mb": 4096})
        await controller.call("PATCH", NODE, {"labels": {"team": "b", "zone": None}, "memory_mb": 1024})
        node = await controller.call("PATCH", NODE, {"as_claimed": ["zone"], "memory_mb": None})
        assert (node["labels"], node["memory_mb"]) == ({"team": "b", "zone": "eu"}, 4096)
        node = await controller.call("PATCH", NODE, {"as_claimed": ["team"]})
        assert (node["labels"], node["settings"]) == (CLAIMED["labels"], {})


async def test_a_claim_of_a_trusted_label_is_dropped_and_told(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(labels={"zone": "eu", "trusted.team": "a"})
        report = (await daemon.read_until("error_report")).error_report
        node = await controller.call("GET", NODE)
    assert (report.error_code, report.context) == ("INVALID_FIELD", "handshake")
    assert "trusted.team" in report.error_message
    assert node["labels"] == node["claims"]["labels"] == {"zone": "eu"}


async def test_a_group_that_asks_for_a_trusted_label_runs_only_where_an_operator_set_it(controller, identity):
    group = {"name": "game", "command": ["serve"], "node_labels": {"trusted.team": "a"}}
    await controller.call("POST", "/api/v1/groups", group)
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**{**CLAIMED, "labels": {"trusted.team": "a"}})
        with pytest.raises(CommandRefused) as refused:
            await controller.call("POST", "/api/v1/instances", {"group": "game"})
        assert refused.value.code == "NO_CAPACITY"
        await controller.call("PATCH", NODE, {"labels": {"trusted.team": "a"}})
        await controller.call("POST", "/api/v1/instances", {"group": "game"})
        assert (await daemon.read_until("start_instance")).start_instance.group == "game"


async def test_a_changed_claim_is_an_event(controller, identity):
    for claimed in (CLAIMED, {**CLAIMED, "labels": {"team": "b"}, "available_cpus": 8}):
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.greet(**claimed)
    (changed,) = await events(controller, "NODE_CLAIMS_CHANGED")
    assert changed == {"labels": [{"team": "a", "zone": "eu"}, {"team": "b"}], "cpus": [64, 8]}


async def test_labels_of_a_join_token_are_an_operators(controller, scratch):
    token = await controller.join_token("raw", labels={"trusted.team": "a", "zone": "us"})
    identity = await enrolled_identity(scratch / "raw", token=token, node_id="raw")
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**CLAIMED)
        node = await controller.call("GET", NODE)
    assert node["labels"] == {"team": "a", "zone": "us", "trusted.team": "a"}


@pytest.mark.parametrize(
    "body",
    [
        {"labels": {"no space": "x"}},
        {"labels": {"a": "x" * 256}},
        {"memory_mb": 0},
        {"cpus": -1},
        {"as_claimed": [""]},
    ],
)
async def test_settings_that_cannot_be_are_refused(controller, identity, body):
    with pytest.raises(CommandRefused) as refused:
        await controller.call("PATCH", NODE, body)
    assert refused.value.code == "INVALID_FIELD"


async def test_what_is_promised_counts_against_the_limit_of_operators(controller, identity):
    await controller.call("POST", "/api/v1/groups", {"name": "game", "command": ["serve"], "memory_mb": 48})
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**{**CLAIMED, "total_memory_mb": 4096})
        await controller.call("PATCH", NODE, {"memory_mb": 256})
        await controller.call("POST", "/api/v1/instances", {"group": "game"})
        node = await controller.call("GET", NODE)
    assert (node["reserved_memory_mb"], node["memory_mb"], node["claims"]["memory_mb"]) == (48, 256, 4096)


async def test_a_runtime_that_no_node_has_is_refused_with_the_nearest_one(controller, identity):
    with pytest.raises(CommandRefused) as refused:
        await controller.call("PATCH", NODE, {"runtimes": ["process", "proces"]})
    assert (refused.value.code, refused.value.message) == ("INVALID_FIELD", "unknown runtime 'proces'")
    assert refused.value.hint == "did you mean 'process'? known: process, screen, tmux"
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**{**CLAIMED, "runtimes": ["process", "firecracker"]})
    node = await controller.call("PATCH", NODE, {"runtimes": ["firecracker", "tmux"]})
    assert node["runtimes"] == ["firecracker"]


@pytest.mark.parametrize(
    ("told", "stored"),
    [({}, 15.0), ({"reconnect_max_ms": 200}, 0.2), ({"reconnect_max_ms": 2**32 - 1}, 300.0)],
    ids=["not told", "told", "absurd"],
)
async def test_the_longest_pause_of_a_node_is_stored_within_bounds(controller, identity, told, stored):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet(**told)
    assert controller.app.role.term.state.nodes.find("raw").record.reconnect_max_seconds == stored


async def test_a_daemon_tells_the_longest_pause_of_its_configuration(cluster, controller):
    await cluster.daemon("n1", controller, link__reconnect_max_seconds=7.5)
    record = controller.app.role.term.state.nodes.find("n1").record
    assert record.reconnect_max_seconds == 7.5


async def test_a_node_that_asks_is_answered_and_a_flood_of_questions_gets_few_answers(controller, identity):
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        await daemon.send(DaemonMessage(ping=Ping(sequence=7)))
        assert (await daemon.read_until("pong")).pong.sequence == 7
        for start in range(0, 20_000, 200):
            pings = [DaemonMessage(ping=Ping(sequence=start + number)) for number in range(200)]
            await daemon.send(DaemonMessage(batch=DaemonBatch(messages=pings)))
        answers = 0
        while (await daemon.read_until("pong")).pong.sequence != 19_999:
            answers += 1
        assert answers < 200
