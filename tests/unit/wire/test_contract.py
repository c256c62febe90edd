"""The wire as it was published: numbers, names, and generated code that matches its sources."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from corral.version import PROTOCOL_VERSION
from corral.wire.v1 import instance_pb2, link_pb2, module_pb2, node_pb2, plan_pb2

ROOT = pathlib.Path(__file__).resolve().parents[3]

DAEMON_FRAMES = [
    "handshake",
    "node_status",
    "instance_status",
    "console_output",
    "crash_report",
    "pong",
    "template_request",
    "cache_status",
    "error_report",
    "shutdown_node_ack",
    "start_instance_ack",
    "stop_instance_ack",
    "daemon_log_record",
    "module_state_update",
    "event_subscribe",
    "event_unsubscribe",
    "instance_file_tree",
    "instance_file_content",
]
CONTROLLER_FRAMES = [
    "handshake_ack",
    "start_instance",
    "stop_instance",
    "send_command",
    "ping",
    "template_data",
    "template_up_to_date",
    "shutdown_node",
    "pre_warm_cache",
    "request_cache_status",
    "error_report",
    "module_install",
    "module_uninstall",
    "module_event",
    "walk_instance_files",
    "read_instance_file",
]
PUBLISHED_FIELDS = {
    node_pb2.Handshake: "node_id version total_memory_mb available_cpus labels running_instances "
    "advertise_address host_info protocol_version",
    node_pb2.HandshakeAck: "session_id heartbeat_interval_ms controller_api_port protocol_version "
    "protocol_compatible leader_grpc_addr epoch controller_grpc_addrs",
    node_pb2.NodeStatus: "cpu_usage total_memory_mb used_memory_mb free_disk_mb instance_count used_ports "
    "total_disk_mb",
    node_pb2.DaemonLogRecord: "timestamp_ms level logger thread message throwable mdc",
    node_pb2.ErrorReport: "error_code error_message context retry_after_seconds",
    instance_pb2.StartInstanceAck: "instance_id accepted error_message plan_hash stage error_code "
    "failure_disposition retry_after_seconds",
    instance_pb2.CrashReport: "instance_id group exit_code log_tail uptime_ms",
    module_pb2.ModuleInstall: "module_id version sha256 jar_bytes signature_bytes signature_kind "
    "manifest_yaml is_upgrade previous_version",
    plan_pb2.CompositionPlan: "plan_hash runtime templates extensions config_patches isolation",
}


def test_generated_code_and_contract_hash_match_the_sources():
    check = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_wire.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("message", "frames"),
    [(link_pb2.DaemonMessage, DAEMON_FRAMES), (link_pb2.ControllerMessage, CONTROLLER_FRAMES)],
)
def test_frames_have_their_published_numbers(message, frames):
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    assert [numbers[name] for name in frames] == list(range(1, len(frames) + 1))


def test_epoch_and_traceparent_are_plain_fields_of_the_controllers_envelope():
    fields = link_pb2.ControllerMessage.DESCRIPTOR.fields_by_name
    assert (fields["traceparent"].number, fields["epoch"].number) == (17, 18)
    assert fields["epoch"].containing_oneof is None


@pytest.mark.parametrize("message", PUBLISHED_FIELDS, ids=lambda m: m.DESCRIPTOR.name)
def test_published_messages_keep_their_numbers(message):
    names = PUBLISHED_FIELDS[message].split()
    numbers = {field.name: field.number for field in message.DESCRIPTOR.fields}
    assert [numbers[name] for name in names] == list(range(1, len(names) + 1))


def test_start_instance_keeps_its_gaps_reserved():
    descriptor = instance_pb2.StartInstance.DESCRIPTOR
    by_number = descriptor.fields_by_number
    assert 3 not in by_number
    assert 21 not in by_number
    assert (by_number[4].name, by_number[22].name, by_number[26].name) == (
        "port",
        "max_players",
        "resolved_variables",
    )


def test_our_additions_start_at_one_hundred():
    for module in (instance_pb2, link_pb2, node_pb2, plan_pb2):
        for message in module.DESCRIPTOR.message_types_by_name.values():
            numbers = sorted(field.number for field in message.fields)
            assert all(number <= 26 or number >= 100 for number in numbers), message.name


def test_the_protocol_version_is_the_published_one():
    assert PROTOCOL_VERSION == 1
