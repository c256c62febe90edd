"""The order to start: the plan as it was hashed, and the fields a published daemon knows."""

from __future__ import annotations

import hashlib
import json

import pytest
from world import TICKETS, World

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.orders import ApiAddress, start_message
from corral.controller.instances.plans import decoded
from corral.controller.sessions.published_start import add_published_fields
from corral.domain.groups.group_documents import parse_group
from corral.wire.v1 import plan_pb2 as parts


@pytest.fixture
def world() -> World:
    world = World()
    world.add_template("base", "b" * 64)
    world.add_artifact("paper", "1.20", file="paper.jar", category="server", config_format="paper")
    return world


def ordered(world, document, *, labels=None, variables=None):
    world.do(create_group, parse_group({"name": "lobby", **document}))
    record = world.do(start_instance, "lobby", variables=variables)
    stored = world.state.plans.require(record.plan_hash).record
    message = start_message(
        record,
        stored,
        decoded(stored),
        labels=labels or {},
        token="secret",
        ticket=TICKETS.of(record),
        api=ApiAddress(url="https://c", cluster_tls=True),
    )
    return message.start_instance


def published(order):
    add_published_fields(order)
    return order


SERVER = {
    "jvm": {"args": ["-Dx=1"], "heap_mb": 300},
    "args": ["nogui"],
    "artifact": {"platform": "paper", "version": "1.20"},
    "extensions": [
        {
            "id": "chat",
            "artifact": {"url": "https://example.org/chat.jar", "sha256": "c" * 64},
            "install_path": "plugins",
        }
    ],
    "patches": [
        {"file": "server.properties", "path": "motd", "value": "hi"},
        {"file": "paper.yml", "path": "a.b", "value": 7, "op": "replace"},
    ],
    "templates": ["base"],
    "memory_mb": 400,
    "disk_mb": 50,
    "cpu": 1.5,
    "static": True,
    "protected_paths": ["world/**"],
    "ports": {"primary": {"range": [30000, 30010]}},
    "probes": [{"kind": "log", "pattern": "Done"}, {"kind": "http", "path": "/up", "statuses": [200]}],
}


def test_the_order_says_which_revision_it_is_made_by(world):
    assert ordered(world, SERVER).deployment_revision == 1


def test_the_plan_travels_as_the_bytes_that_were_hashed(world):
    order = ordered(world, SERVER)
    plan = order.composition_plan
    assert plan.plan_hash == order.plan_hash == hashlib.sha256(plan.canonical_json).hexdigest()
    assert json.loads(plan.canonical_json)["templates"][0]["hash"] == "b" * 64
    assert b"secret" not in plan.canonical_json


def test_a_daemon_that_executes_from_the_plan_is_told_nothing_twice(world):
    order = ordered(world, SERVER)
    told = {field.name for field, _ in order.composition_plan.ListFields()}
    assert told == {"plan_hash", "canonical_json"}
    assert not order.jar_file
    assert not order.templates
    assert not order.HasField("limits")


def test_a_published_daemon_finds_its_fields(world):
    order = published(ordered(world, SERVER))
    plan = order.composition_plan
    assert plan.plan_hash == order.plan_hash == hashlib.sha256(plan.canonical_json).hexdigest()
    assert order.instance_id == "lobby-1"
    assert [port.name for port in order.ports] == ["primary"]
    assert (order.jar_file, order.platform, order.platform_version) == ("paper.jar", "paper", "1.20")
    assert order.download_url == "https://example.org/a.jar"
    assert (order.memory_mb, order.limits.memory_mb) == (300, 400)
    assert list(order.jvm_args) == ["-Dx=1"]
    assert order.category == parts.INSTANCE_CATEGORY_SERVER
    assert order.config_format == parts.CONFIG_FORMAT_PAPER
    assert [(ref.name, ref.hash) for ref in order.templates] == [("base", "b" * 64)]
    assert order.static_instance
    assert list(order.protected_paths) == ["world/**"]
    assert order.isolation == parts.RuntimeIsolation(cpu_reservation=1.5, disk_reservation_mb=50)
    runtime = order.composition_plan.runtime
    assert (runtime.jar_file, runtime.sha256) == ("paper.jar", "a" * 64)
    extension = order.composition_plan.extensions[0]
    assert (extension.file_name, extension.install_path) == ("chat.jar", "plugins")
    patches = [(p.file, p.key, p.value, p.op) for p in order.composition_plan.config_patches]
    assert patches == [
        ("server.properties", "motd", "hi", parts.CONFIG_PATCH_OP_SET),
        ("paper.yml", "a.b", "7", parts.CONFIG_PATCH_OP_REPLACE),
    ]
    probes = [(probe.kind, dict(probe.settings)) for probe in order.probes]
    assert probes[0] == ("log", {"pattern": "Done"})
    assert probes[1] == ("http", {"port": "primary", "path": "/up", "statuses": "[200]"})


def test_variables_are_layered_group_then_labels_then_instance(world):
    document = {"command": ["serve"], "variables": {"A": "group", "LABEL_ZONE": "group", "B": "group"}}
    order = ordered(world, document, labels={"zone": "west"}, variables={"B": "own"})
    assert dict(order.resolved_variables) == {"A": "group", "LABEL_ZONE": "west", "B": "own"}
    assert order.plugin_token == "secret"
    assert (order.api_url, order.api_cluster_tls) == ("https://c", True)


@pytest.mark.parametrize(
    ("written", "sent"), [({}, ""), ({"isolate": "shared"}, "shared"), ({"isolate": "uid"}, "uid")]
)
def test_auto_is_said_by_silence_which_a_daemon_of_an_earlier_version_takes_as_well(world, written, sent):
    order = published(ordered(world, {"command": ["serve"], **written}))
    assert order.isolate == sent
    assert json.loads(order.composition_plan.canonical_json)["isolate"] == (sent or "auto")
