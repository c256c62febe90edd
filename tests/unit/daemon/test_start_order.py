"""StartInstance as the node reads it."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from corral.daemon.workload.start_order import Rung, StartOrder, read_start
from corral.domain.groups.group import GroupSpec, PatchOp, PortProtocol
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.plans import PlanJvm
from corral.errors import Code, Rejected
from corral.wire.v1.instance_pb2 import Limits, NamedPort, StartInstance, StopRung
from corral.wire.v1.plan_pb2 import (
    CONFIG_PATCH_OP_REPLACE,
    CompositionPlan,
    ConfigPatch,
    ExtensionArtifact,
    RuntimeArtifact,
    TemplateRef,
)


def message(**fields) -> StartInstance:
    return StartInstance(
        **{"instance_id": "one", "group": "g", "command": ["run"], "incarnation": 1024, **fields}
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"instance_id": ""}, "instance_id"),
        ({"group": ""}, "group"),
        ({"command": []}, "jar_file"),
        ({"command": [], "jar_file": "x.jar"}, "port"),
    ],
)
def test_a_missing_field_is_named(fields, field):
    with pytest.raises(Rejected) as refused:
        read_start(message(**fields))
    assert (refused.value.code, refused.value.field) == (Code.MISSING_FIELD, field)


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "a/b"},
        {"runtime": "x"},
        {"stdin": "tape"},
        {"isolate": "moon"},
        {"port": 70_000},
        {"ports": [NamedPort(name="q", port=0)]},
        {"ports": [NamedPort(name="q", port=5, protocol="ipx")]},
        {"memory_mb": -5},
        {"stop_ladder": [StopRung(signal="SIGWHAT")]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_makes_no_sense_is_refused(fields):
    with pytest.raises(Rejected) as refused:
        read_start(message(**fields))
    assert refused.value.code is Code.INVALID_FIELD


@pytest.mark.parametrize(
    ("said", "read"), [("", "auto"), ("auto", "auto"), ("uid", "uid"), ("shared", "shared")]
)
def test_an_order_that_says_nothing_about_users_leaves_it_to_the_node(said, read):
    assert read_start(message(isolate=said, ticket="ct1.1.x.y")).isolate == read


@pytest.mark.parametrize(
    ("said", "read"), [("", "shared"), ("auto", "auto"), ("uid", "uid"), ("shared", "shared")]
)
def test_to_a_controller_from_before_tickets_nothing_said_about_users_is_shared(said, read):
    """It leaves `shared` out, for that was its default; so does a published one, which knows no other."""
    order = read_start(
        message(isolate=said, composition_plan=CompositionPlan(templates=[TemplateRef(name="t")]))
    )
    assert (order.isolate, order.plan.isolate) == (read, read)


def test_a_published_peer_needs_no_field_of_ours():
    order = read_start(
        StartInstance(
            instance_id="one",
            group="g",
            port=25565,
            jar_file="server.jar",
            jvm_args=["-Xmx1G"],
            memory_mb=1024,
            shutdown_grace_seconds=7,
        )
    )
    assert order.command == ()
    assert order.plan.jvm == PlanJvm(jar="server.jar", args=("-Xmx1G",), heap_mb=1024)
    assert order.primary_port == 25565
    assert order.ports[0].protocol is PortProtocol.BOTH
    assert order.limits.memory_mb == 1024
    assert order.ladder == (Rung(command="stop", wait_seconds=7), Rung(signal="SIGTERM", wait_seconds=10))
    assert order.startup_timeout_seconds == 60
    assert order.restart.attempts == 0


def test_an_order_survives_its_file():
    order = read_start(
        message(
            args=["a"],
            env={"A": "b"},
            ports=[NamedPort(name="primary", port=1, protocol="tcp")],
            limits=Limits(memory_mb=5, cpu_cores=0.5, pids=3, console_mb=9),
            stop_ladder=[StopRung(command="end", wait_ms=1500)],
            plugin_token="t",
        )
    )
    assert msgspec.json.decode(msgspec.json.encode(order), type=StartOrder) == order
    assert order.ladder == (Rung(command="end", wait_seconds=1.5),)


def test_a_port_that_serves_as_the_primary_one_occupies_no_further_transport():
    order = read_start(message(port=9000, ports=[NamedPort(name="voice", port=9000, protocol="udp")]))
    assert order.primary_port == 9000
    assert {(port.port, port.protocol) for port in order.ports} == {(9000, PortProtocol.UDP)}


def test_a_file_of_a_newer_daemon_is_read():
    order = read_start(message())
    later = {**msgspec.to_builtins(order), "invented_later": 1}
    assert msgspec.convert(later, StartOrder) == order


def test_what_a_published_controller_says_of_files_becomes_a_plan():
    order = read_start(
        message(
            static_instance=True,
            protected_paths=["world/"],
            composition_plan=CompositionPlan(
                templates=[TemplateRef(name="base", hash="a" * 64)],
                runtime=RuntimeArtifact(
                    jar_file="server.jar", download_url="https://example.org/server.jar", sha256="b" * 64
                ),
                extensions=[
                    ExtensionArtifact(
                        extension_id="e",
                        file_name="e.jar",
                        install_path="plugins/",
                        download_url="https://example.org/e.jar",
                        sha256="c" * 64,
                    )
                ],
                config_patches=[ConfigPatch(file="a.yml", key="x.y", value="1", op=CONFIG_PATCH_OP_REPLACE)],
            ),
        )
    )
    plan = order.plan
    assert [(template.name, template.hash) for template in plan.templates] == [("base", "a" * 64)]
    assert (plan.artifact.file, plan.artifact.sha256) == ("server.jar", "b" * 64)
    assert plan.extensions[0].artifact.file == "plugins/e.jar"
    assert (plan.patches[0].path, plan.patches[0].op, plan.static) == ("x.y", PatchOp.REPLACE, True)
    assert plan.protected_paths == ("world/",)


def test_a_download_without_its_digest_is_refused():
    with pytest.raises(Rejected) as refused:
        read_start(message(download_url="https://example.org/server.jar"))
    assert refused.value.code is Code.MISSING_FIELD


def test_a_plan_is_taken_as_it_was_hashed_and_in_no_other_form():
    spec = GroupSpec(name="g", command=("run", "%X%"), memory_mb=64, variables={"X": "1"})
    record = resolve_plan(spec, NoSources(), lambda _: 0).record
    composition = CompositionPlan(plan_hash=record.hash, canonical_json=record.body.encode())
    order = read_start(message(composition_plan=composition, plan_hash=record.hash, memory_mb=1))
    assert (order.command, order.limits.memory_mb, order.variables) == (("run", "%X%"), 64, {"X": "1"})
    assert order.plan_hash == record.hash
    for broken in (
        CompositionPlan(plan_hash="0" * 64, canonical_json=record.body.encode()),
        CompositionPlan(plan_hash=hashlib.sha256(b"{}").hexdigest(), canonical_json=b"{}"),
    ):
        with pytest.raises(Rejected) as refused:
            read_start(message(composition_plan=broken))
        assert refused.value.code is Code.PLAN_MISMATCH


class NoSources:
    """A cluster without templates and without a catalog."""

    def template(self, _: str) -> None:
        return None

    def templates_in(self, _: str) -> tuple[()]:
        return ()

    def artifact(self, _: str, __: str) -> None:
        return None

    def packages(self) -> tuple[()]:
        return ()
