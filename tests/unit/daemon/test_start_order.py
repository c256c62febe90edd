"""StartInstance as the node reads it."""

from __future__ import annotations

import msgspec
import pytest

from corral.daemon.prepare.start_order import Rung, StartOrder, read_start
from corral.domain.groups import PortProtocol
from corral.domain.plans import PlanJvm
from corral.errors import Code, Rejected
from corral.wire.v1.instance_pb2 import Limits, NamedPort, StartInstance, StopRung


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


def test_a_file_of_a_newer_daemon_is_read():
    order = read_start(message())
    later = {**msgspec.to_builtins(order), "invented_later": 1}
    assert msgspec.convert(later, StartOrder) == order
