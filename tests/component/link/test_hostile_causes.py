"""The `cause` of a frame is a text of the other end: what is no request's id is ignored, and the session goes on."""

from __future__ import annotations

import pathlib

import pytest

from corral.daemon.node.identity import Identity
from corral.domain.node_states import NodeState
from corral.system.logs import Logs
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage
from corral.wire.v1.module_pb2 import CapabilityResult
from corral.wire.v1.node_pb2 import DaemonLogRecord

HOSTILE = {
    "too long": "request:" + "x" * 129,
    "very long": "request:" + "x" * 500_000,
    "charset": "request:a b",
    "quotes": 'request:a" level="ERROR',
    "not ascii": "request:\u00e9\u202e",
    "newline": "request:a\nb",
    "newline at the end": "request:req-1\n",
    "terminal": "request:\x1b[2J",
    "nul": "request:a\x00b",
    "no id": "request:",
    "wrong kind": "decision:dec-1",
    "no kind": "req-1",
}


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller()


@pytest.fixture
async def identity(controller: LocalController, scratch: pathlib.Path) -> Identity:
    return await enrolled_identity(scratch / "raw", token=await controller.join_token("raw"), node_id="raw")


async def fields_of(logs: Logs, message: str) -> dict[str, str]:
    """The first record with this message."""

    def found() -> list[dict[str, str]]:
        return [record.fields for _, record in logs.ring.tail(10_000) if record.message == message]

    return (await eventually(found))[0]


def ignored(cause: str) -> DaemonMessage:
    """A frame that a controller logs and does nothing about."""
    return DaemonMessage(capability_result=CapabilityResult(), cause=cause)


async def test_the_cause_that_a_node_names_is_in_the_records_of_its_frame(
    logs: Logs, controller: LocalController, identity: Identity
) -> None:
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        await daemon.send(ignored("request:req-1"))
        fields = await fields_of(logs, "session_frames.skipped")
    assert fields == {"node": "raw", "kind": "capability_result", "request": "req-1"}


@pytest.mark.parametrize("cause", HOSTILE.values(), ids=HOSTILE)
async def test_a_cause_that_names_no_request_is_ignored_and_the_session_lives(
    logs: Logs, controller: LocalController, identity: Identity, cause: str
) -> None:
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        await daemon.send(ignored(cause))
        assert await fields_of(logs, "session_frames.skipped") == {"node": "raw", "kind": "capability_result"}
        record = DaemonLogRecord(level="INFO", message="still here")
        await daemon.send(DaemonMessage(daemon_log_record=record, spool_sequence=1, cause=cause))
        acked = await daemon.read_until("spool_ack")
        assert (acked.spool_ack.sequence, acked.cause) == (1, "")
        assert (await daemon.read_until("ping")).cause == ""
        assert controller.node_state("raw") is NodeState.ONLINE
    kept = await controller.call("GET", "/api/v1/logs?source=node:raw")
    assert [(item["message"], item["fields"]) for item in kept["items"]] == [("still here", {})]


async def test_a_cause_lasts_for_its_frame_alone(
    logs: Logs, controller: LocalController, identity: Identity
) -> None:
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        await daemon.greet()
        record = DaemonLogRecord(level="INFO", message="of a request")
        first = DaemonMessage(daemon_log_record=record, spool_sequence=1, cause="request:req-1")
        await daemon.send(DaemonMessage(batch=DaemonBatch(messages=[first, ignored("")])))
        assert "request" not in await fields_of(logs, "session_frames.skipped")
