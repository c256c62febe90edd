"""Records as frames."""

from __future__ import annotations

import json

from package_records import ONE, package

from corral.controller.modules_on_nodes.distributor import desired_on_nodes
from corral.controller.modules_on_nodes.module_sync import SyncProgress
from corral.controller.modules_on_nodes.order_frames import PackageContent, control_frame, install_frame
from corral.domain.ids import NodeId
from corral.domain.modules.convergence import ControlOrder, InstallOrder
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import SignatureFacts
from corral.modules.manifest.settings import settings_digest, settings_json
from corral.wire.v1 import module_pb2 as wire


def test_equal_settings_are_equal_bytes_whatever_their_order():
    one, two = {"b": 1, "a": {"d": 2.0, "c": None}}, {"a": {"c": None, "d": 2.0}, "b": 1}
    assert settings_json(one) == settings_json(two) == b'{"a":{"c":null,"d":2.0},"b":1}'
    assert settings_digest(json.loads(settings_json(one))) == settings_digest(two)


def test_an_archive_travels_inside_the_frame_or_is_offered():
    record = package(settings={"word": "x"}, signature=SignatureFacts(kind="sig", blob=ONE), size=5)
    frame = install_frame(
        record, InstallOrder(id="small"), PackageContent(archive=b"bytes", signature=b"sig")
    )
    sent = frame.module_install
    assert (sent.jar_bytes, sent.signature_bytes, sent.signature_kind) == (b"bytes", b"sig", "sig")
    assert (sent.intent, sent.settings_json) == (wire.MODULE_INTENT_ACTIVE, b'{"word":"x"}')
    assert not sent.HasField("offer")
    assert json.loads(sent.manifest_yaml)["hosts"] == ["daemon"]

    order = InstallOrder(id="small", previous_version="0.9.0", again=True)
    offered = install_frame(record, order, PackageContent()).module_install
    assert (offered.offer.digest, offered.offer.size_bytes, offered.offer.kind) == (ONE, 5, "blob")
    assert (offered.jar_bytes, offered.signature_kind) == (b"", "")
    assert (offered.is_upgrade, offered.previous_version, offered.again) == (True, "0.9.0", True)


def test_a_published_daemon_gets_the_published_fields_alone():
    plain = install_frame(
        package(), InstallOrder(id="small"), PackageContent(archive=b"x"), plain=True
    ).module_install
    assert {field.number for field, _ in plain.ListFields()} <= set(range(100))


def test_the_reason_of_a_pause_is_told_while_it_lasts_and_settings_only_to_whom_they_fit():
    paused = package(intent=ModuleIntent.PAUSED, paused_reason="later", settings={"a": 1})
    frame = control_frame(paused, ControlOrder(id="small", recover=True), recover_ms=5).module_control
    assert (frame.recover_ms, frame.reload_ms) == (5, 0)
    assert (frame.intent, frame.reason) == (wire.MODULE_INTENT_PAUSED, "later")
    assert (frame.recover, frame.reload, frame.settings_json) == (True, False, b'{"a":1}')
    resumed = package(paused_reason="later")
    frame = control_frame(resumed, ControlOrder(id="small", settings=False)).module_control
    assert (frame.reason, frame.settings_json) == ("", b"")


def test_only_packages_with_a_part_for_nodes_are_desired_there():
    assert desired_on_nodes(package(hosts=(ModuleHost.CONTROLLER,))) is None
    both = desired_on_nodes(package(hosts=(ModuleHost.CONTROLLER, ModuleHost.DAEMON)))
    assert both is not None
    assert (both.id, both.settings_sha256) == ("small", settings_digest({}))


def test_the_way_of_an_archive_is_told_until_it_has_arrived():
    progress, node = SyncProgress(), NodeId("n1")
    progress.fetched(node, "small", fetched=1, size=2)
    assert progress.text(node, "small") == ""
    progress.begun(node, "small", offered=True)
    assert progress.text(node, "small") == "offered"
    progress.fetched(node, "small", fetched=12_000_000, size=40_000_000)
    assert progress.text(node, "small") == "fetching 12 of 40 MB"
    progress.fetched(node, "small", fetched=-5, size=1_500_000)
    assert progress.text(node, "small") == "fetching 0.0 of 1.5 MB"
    progress.arrived(node, "small")
    assert progress.text(node, "small") == ""
    progress.begun(node, "small", offered=False)
    progress.left(node)
    assert progress.text(node, "small") == ""
