"""The plan of a run: what exactly is started, in a form whose hash two sides compute alike.

A plan holds nothing of a single run (id, ports, token): runs of one group share theirs.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from corral.domain.groups import GroupSpec, RestartSpec, StopRungSpec
from corral.domain.instance_records import PlanRecord

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is started with."""

    version: int = 1
    group: str
    runtime: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]
    variables: dict[str, str]
    memory_mb: int
    cpu: float
    pids: int
    console_mb: int
    max_players: int
    run_as: str
    isolate: str
    stdin: str
    tty: bool
    line_buffered: bool
    stop: tuple[StopRungSpec, ...]
    startup_timeout_seconds: int
    min_alive_ms: int
    max_lifetime_seconds: int
    crash_keep_seconds: int
    restart: RestartSpec


def plan_of(spec: GroupSpec) -> PlanRecord:
    """The group's plan as canonical JSON (sorted keys, no white space) with its SHA-256."""
    plan = Plan(
        group=spec.name,
        runtime=spec.runtime,
        command=spec.command,
        args=spec.args,
        env=spec.env,
        variables={**spec.properties, **spec.variables},
        memory_mb=spec.memory_mb,
        cpu=spec.cpu,
        pids=spec.pids,
        console_mb=spec.console_mb,
        max_players=spec.max_players,
        run_as=spec.run_as,
        isolate=spec.isolate.value,
        stdin=spec.stdin.value,
        tty=spec.tty,
        line_buffered=spec.line_buffered,
        stop=spec.stop,
        startup_timeout_seconds=spec.startup_timeout_seconds,
        min_alive_ms=spec.min_alive_ms,
        max_lifetime_seconds=spec.max_lifetime_seconds,
        crash_keep_seconds=spec.crash_keep_seconds,
        restart=spec.restart,
    )
    body = _ENCODER.encode(plan)
    return PlanRecord(hash=hashlib.sha256(body).hexdigest(), body=body.decode())


def read_plan(record: PlanRecord) -> Plan:
    """Blind to fields a newer version may add."""
    return msgspec.json.decode(record.body, type=Plan)
