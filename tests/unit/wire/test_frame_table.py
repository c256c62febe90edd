"""Every kind of frame has one rule, and whoever that names deals with it."""

from __future__ import annotations

import pathlib

import pytest

import corral
from corral.controller.sessions.node_frames import HANDLERS
from corral.errors import Code, Rejected
from corral.wire.frame_table import (
    FROM_CONTROLLERS,
    FROM_NODES,
    FrameDelivery,
    kind_of,
    messages_of,
    node_frame,
    require,
)
from corral.wire.v1.instance_pb2 import InstanceStatusUpdate, StopInstance
from corral.wire.v1.link_pb2 import ControllerBatch, ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import ModuleStateUpdate
from corral.wire.v1.node_pb2 import Ping, Pong

SOURCES = pathlib.Path(corral.__file__).parent
OTHER_STREAMS = {
    "daemon/link/data_channel.py",
    "controller/sessions/fetches.py",
    "controller/sessions/uploads.py",
}
"""They read frames of DataService, each of which has two kinds."""
TABLES = [(DaemonMessage, FROM_NODES), (ControllerMessage, FROM_CONTROLLERS)]


@pytest.mark.parametrize(("message", "table"), TABLES, ids=["nodes", "controllers"])
def test_the_table_has_every_kind_of_the_protocol_and_no_other(message, table):
    fields = message.DESCRIPTOR.oneofs_by_name["payload"].fields
    assert set(table) == {field.name for field in fields}


@pytest.mark.parametrize(("message", "table"), TABLES, ids=["nodes", "controllers"])
def test_the_fields_that_rules_name_exist(message, table):
    for kind, rule in table.items():
        known = message.DESCRIPTOR.fields_by_name[kind].message_type.fields_by_name
        named = {*rule.required, *filter(None, [rule.momentary])}
        assert named <= set(known), kind


def test_the_controller_has_a_handler_for_every_kind_that_is_dealt_with_at_once_and_for_no_other():
    at_once = (FrameDelivery.STREAM, FrameDelivery.NOW, FrameDelivery.BOTH)
    assert set(HANDLERS) == {kind for kind, rule in FROM_NODES.items() if rule.delivery in at_once}


def test_what_a_controller_sends_is_never_stored():
    assert not [kind for kind, rule in FROM_CONTROLLERS.items() if rule.stored]


def test_the_kind_of_a_frame_is_asked_in_one_place():
    asking = {
        str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if "WhichOneof" in path.read_text()
    }
    assert asking - OTHER_STREAMS == {"wire/frame_table.py"}


def test_a_frame_without_a_kind_we_know_is_ignored_but_kept_when_it_has_a_number():
    for number, kept in ((0, False), (7, True)):
        frame = node_frame(DaemonMessage(spool_sequence=number))
        assert (frame.kind, frame.at_once, frame.kept) == ("", False, kept)
        assert frame.rule.delivery is FrameDelivery.IGNORED


@pytest.mark.parametrize(
    ("message", "at_once", "kept"),
    [
        (DaemonMessage(pong=Pong()), True, False),
        (DaemonMessage(pong=Pong(), spool_sequence=1), False, True),
        (DaemonMessage(instance_status=InstanceStatusUpdate()), True, True),
        (DaemonMessage(instance_status=InstanceStatusUpdate(stage=1)), True, False),
        (DaemonMessage(instance_status=InstanceStatusUpdate(stage=1), spool_sequence=1), True, True),
        (DaemonMessage(module_state_update=ModuleStateUpdate(size_bytes=5)), True, False),
        (DaemonMessage(module_state_update=ModuleStateUpdate(size_bytes=5), spool_sequence=1), True, True),
        (DaemonMessage(module_state_update=ModuleStateUpdate(size_bytes=-5)), True, True),
    ],
)
def test_what_holds_for_the_moment_alone_is_not_kept_unless_it_has_a_number(message, at_once, kept):
    frame = node_frame(message)
    assert (frame.at_once, frame.kept) == (at_once, kept)


def test_the_first_required_field_that_is_missing_is_named():
    complaint = node_frame(DaemonMessage(instance_status=InstanceStatusUpdate(state=1))).complaint()
    assert complaint is not None
    assert (complaint.code, str(complaint)) == (Code.MISSING_FIELD, "instance_status.instance_id is empty")
    whole = InstanceStatusUpdate(instance_id="one", state=1)
    assert node_frame(DaemonMessage(instance_status=whole)).complaint() is None
    with pytest.raises(Rejected, match="StopInstance lacks 'instance_id'"):
        require(StopInstance())
    require(StopInstance(instance_id="one"))


def test_a_batch_is_its_messages_and_any_other_frame_is_itself():
    single = ControllerMessage(ping=Ping(sequence=1))
    assert list(messages_of(single)) == [single]
    batch = ControllerMessage(batch=ControllerBatch(messages=[single, single]))
    assert [kind_of(message) for message in messages_of(batch)] == ["ping", "ping"]
