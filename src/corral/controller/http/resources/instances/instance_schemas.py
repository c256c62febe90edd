"""Schemas of instances in the API."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

import msgspec

from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.workload.service import Workloads
from corral.controller.workload.vitals import Vital
from corral.domain.groups.drift import Drift
from corral.domain.groups.group import PRIMARY
from corral.domain.groups.instance_records import (
    ExitRecord,
    InstanceRecord,
    StartFailure,
    is_lost,
    is_ready,
    live,
)
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.modules.records import ModuleChange

_SILENT: Final = Vital(incarnation=0)


class ExitShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `known` false: the exit was not seen."""

    code: int | None
    signal: int | None
    crashed: bool
    summary: str
    known: bool
    core_dumped: bool
    outcome: str
    crash_class: str
    rung: str
    ended_at: dt.datetime


class ModulesShape(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the present run by modules on its node. `dropped` is the reason why a change was not applied;
    `missing` are modules that should have run on the node and were not ready."""

    changes: tuple[ModuleChange, ...]
    missing: tuple[str, ...]


class InstanceShape(msgspec.Struct, frozen=True, kw_only=True):
    """An instance and its present or last run. `stage` is the step of its preparation,
    and `reason` the condition it waits for, also while it is not ready yet; `players` and `metrics` are the last
    reports of the run, null for those that never came."""

    id: str
    group: str
    node: str
    state: InstanceState
    wanted: Wanted
    ready: bool
    port: int | None
    ports: dict[str, int]
    pid: int | None
    players: int | None
    max_players: int
    metrics: dict[str, float]
    stage: str
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    exit: ExitShape | None
    plan_hash: str
    reason: str
    incarnation: int
    restarts: int
    runtime: str
    deployment_revision: int
    drift: Drift
    warm: bool
    lost: bool
    lost_at: dt.datetime | None
    replaces: str
    moves: str
    replaced_by: str
    uptime_ms: int
    last_seen: dt.datetime | None
    """Time of the last report about it, by its node, which may be gone since; of an ended one, its end."""
    memory_mb: int
    static: bool
    host_address: str
    variables: dict[str, str]
    created_at: dt.datetime
    decision: str
    start_failure: StartFailure | None
    modules: ModulesShape
    revision: int


@dataclass(frozen=True, kw_only=True)
class InstanceView:
    """The parts that showing an instance takes."""

    state: ClusterState
    nodes: LiveNodes
    workload: Workloads
    setting: ProcessContext
    instances: InstanceControl


def instance_shape(view: InstanceView, stored: StoredRecord[InstanceRecord]) -> InstanceShape:
    record = stored.record
    group = view.state.groups.find(record.group)
    vital = view.workload.vitals.find(record.id) or _SILENT
    ports = {leased.name: leased.port for leased in record.ports}
    return InstanceShape(
        id=record.id,
        group=record.group,
        node=record.node,
        state=record.state,
        wanted=record.wanted,
        ready=is_ready(record),
        port=ports.get(PRIMARY, next(iter(ports.values()), None)),
        ports=ports,
        pid=record.pid or None,
        players=vital.players,
        max_players=vital.max_players or (group.record.spec.max_players if group else 0),
        metrics=vital.metrics,
        stage=vital.stage,
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit=exit_shape(record.exit) if record.exit else None,
        plan_hash=record.plan_hash,
        reason=vital.waits_for or record.reason,
        incarnation=record.incarnation,
        restarts=record.restarts,
        runtime=group.record.spec.runtime if group else "process",
        deployment_revision=record.revision,
        warm=record.warm,
        lost=is_lost(record),
        lost_at=record.lost_at,
        replaces=record.replaces,
        moves=record.moves,
        replaced_by=view.state.instances.replacement_of(record.id) if is_lost(record) else "",
        drift=view.instances.drift.of(record),
        uptime_ms=_uptime_ms(record, view.setting.clock.now()),
        last_seen=_last_seen(view, record),
        memory_mb=record.memory_mb,
        static=group.record.spec.static if group else bool(record.home),
        host_address=record.host_address,
        variables=record.variables,
        created_at=record.created_at,
        decision=record.decision,
        start_failure=record.start_failure,
        modules=ModulesShape(changes=record.module_changes, missing=record.modules_missing),
        revision=stored.revision,
    )


def exit_shape(record: ExitRecord) -> ExitShape:
    return ExitShape(
        code=record.code,
        signal=record.signal,
        crashed=record.crashed,
        summary=record.summary,
        known=record.known,
        core_dumped=record.core_dumped,
        outcome=record.outcome,
        crash_class=record.crash_class,
        rung=record.rung,
        ended_at=record.ended_at,
    )


def _uptime_ms(record: InstanceRecord, now: dt.datetime) -> int:
    if record.started_at is None:
        return 0
    until = record.ended_at if not live(record.state) and record.ended_at else now
    return max(0, int((until - record.started_at) / dt.timedelta(milliseconds=1)))


def _last_seen(view: InstanceView, record: InstanceRecord) -> dt.datetime | None:
    """Time of the last report about it: by its node while it lives, also one that is gone; its end afterwards."""
    if not live(record.state):
        return record.ended_at
    node = view.nodes.live(record.node)
    if node is not None:
        return node.last_seen
    stored = view.state.nodes.find(record.node)
    return stored.record.last_seen if stored else None
