"""Counting the parts of a frame before it is decoded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError

from corral.wire.frames import MOST_FIELDS, MOST_MESSAGES, check_parts, counted
from corral.wire.handshake_lists import MOST_RUNNING
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import module_pb2 as modules
from corral.wire.v1 import node_pb2 as nodes
from corral.wire.v1.link_pb2 import DaemonBatch, DaemonMessage

MANY = 1_000_000


def check(message: DaemonMessage | bytes) -> None:
    body = message if isinstance(message, bytes) else message.SerializeToString()
    check_parts(body, DaemonMessage.DESCRIPTOR)


HOSTILE: dict[str, Callable[[], DaemonMessage]] = {
    "handshake": lambda: DaemonMessage(
        handshake=nodes.Handshake(running_instances=[wire.RunningInstance()] * MANY)
    ),
    "handshake_portion": lambda: DaemonMessage(
        handshake_portion=nodes.HandshakePortion(
            running_instances=[wire.RunningInstance(module_changes=[wire.ModuleChange()] * 300)] * 5000
        )
    ),
    "console_batch": lambda: DaemonMessage(
        console_batch=wire.ConsoleBatch(blocks=[wire.ConsoleBlock(times=[wire.ConsoleTime()] * MANY)])
    ),
    "daemon_log_record": lambda: DaemonMessage(
        daemon_log_record=nodes.DaemonLogRecord(mdc={str(n): "" for n in range(40_000)})
    ),
    "instance_file_tree": lambda: DaemonMessage(
        instance_file_tree=wire.InstanceFileTree(entries=[wire.FileEntry()] * MANY)
    ),
    "instance_status": lambda: DaemonMessage(
        instance_status=wire.InstanceStatusUpdate(modules_missing=[""] * MANY)
    ),
    "event_subscribe": lambda: DaemonMessage(event_subscribe=modules.EventSubscribe(event_types=[""] * MANY)),
    "batch": lambda: DaemonMessage(batch=DaemonBatch(messages=[DaemonMessage()] * MANY)),
}
"""Made when they are needed: together they take most of a gigabyte."""


@pytest.mark.trap("T65")
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_frame_of_too_many_parts_is_named_and_not_decoded(kind):
    decoded = []

    class Kind:
        DESCRIPTOR = DaemonMessage.DESCRIPTOR

        @classmethod
        def FromString(cls, body):  # noqa: N802 - as protobuf calls it
            decoded.append(body)

    with pytest.raises(DecodeError, match=f"'{kind}' has more than"):
        counted(Kind.FromString)(HOSTILE[kind]().SerializeToString())
    assert not decoded


def test_what_an_honest_node_sends_at_most_is_decoded():
    run = wire.RunningInstance(
        instance_id="lobby-1",
        group="lobby",
        state=wire.INSTANCE_STATE_RUNNING,
        incarnation=2**40,
        pid=2**22,
        started_at_ms=2**41,
        console_offset=2**40,
        exit=wire.ExitStatus(known=True, outcome="clean"),
        readiness=wire.READINESS_READY,
        plan_hash="a" * 64,
        ports=[wire.NamedPort(name=f"p{n}", port=25565, protocol="tcp") for n in range(12)],
        memory_mb=4096,
        reason="x",
        module_changes=[
            wire.ModuleChange(module_id=f"m{n}", version="1", env_set=["A", "B"], jvm_args_added=["-Xa"])
            for n in range(3)
        ],
        ticket="t" * 120,
    )
    entry = wire.FileEntry(path="world/region/r.0.0.mca", size_bytes=1, modified_at_ms=2**41, kind="file")
    for message in (
        DaemonMessage(handshake=nodes.Handshake(running_instances=[run] * MOST_RUNNING)),
        DaemonMessage(instance_file_tree=wire.InstanceFileTree(entries=[entry] * 10_000)),
        DaemonMessage(instance_file_content=wire.InstanceFileContent(request_id="x" * (3 << 20))),
        DaemonMessage(node_status=nodes.NodeStatus(used_ports=range(1, 65_536))),
    ):
        check(message)


def test_the_limits_are_reached_and_not_passed():
    runs = [wire.RunningInstance()]
    fits = DaemonMessage(handshake=nodes.Handshake(running_instances=runs * (MOST_MESSAGES - 1)))
    check(fits)
    fits.handshake.running_instances.append(runs[0])
    with pytest.raises(DecodeError, match="messages"):
        check(fits)
    tail = DaemonMessage(crash_report=wire.CrashReport(log_tail=[""] * (MOST_FIELDS - 1)))
    check(tail)
    tail.crash_report.log_tail.append("")
    with pytest.raises(DecodeError, match="fields"):
        check(tail)


@pytest.mark.parametrize("cut", [1, 100, 70_000])
def test_bytes_that_are_cut_off_are_no_message(cut):
    runs = [wire.RunningInstance(instance_id="lobby-1", incarnation=2**62)] * 20_000
    body = DaemonMessage(handshake=nodes.Handshake(running_instances=runs)).SerializeToString()
    with pytest.raises(DecodeError, match="cut off"):
        check(body[:-cut])


def test_a_message_that_reaches_out_of_the_one_around_it_is_none():
    inner = b"\x32\x7f" + b"\x0a\x01x" * 3  # says 127 bytes, and has nine
    handshake = inner + b"\x0a\x01n" * 50_000
    body = b"\x0a" + bytes([len(inner)]) + handshake
    with pytest.raises(DecodeError):
        check(body)
