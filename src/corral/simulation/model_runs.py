"""Runs on a node of the model, and what its daemon reports of them; whether it restarts one is the daemon's own rule."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from corral.daemon.runs.crash_loops import with_restart
from corral.daemon.runs.run_files import RunOutcome
from corral.daemon.workload.start_order import RestartRule, StartOrder
from corral.domain.groups.group import GroupSpec
from corral.domain.ids import Incarnation, InstanceId
from corral.wire.v1 import instance_pb2 as wire

HOST_REBOOTED: Final = "host_rebooted"


class Phase(enum.Enum):
    WAITING = wire.INSTANCE_STATE_SCHEDULED
    """It is started again after a pause."""
    BOOTING = wire.INSTANCE_STATE_STARTING
    READY = wire.INSTANCE_STATE_RUNNING
    STOPPING = wire.INSTANCE_STATE_STOPPING


class ModelRun(msgspec.Struct, kw_only=True, eq=False):
    """One run of an instance."""

    id: str
    group: str
    node: str
    incarnation: Incarnation
    ticket: str = ""
    plan_hash: str = ""
    began: float
    phase: Phase = Phase.BOOTING
    crashes: tuple[float, ...] = ()
    """When runs of this start crashed before it."""

    def listed(self) -> wire.RunningInstance:
        """As its node lists it when it connects."""
        ready = self.phase is Phase.READY
        return wire.RunningInstance(
            instance_id=self.id,
            group=self.group,
            incarnation=self.incarnation,
            state=self.phase.value,
            readiness=wire.READINESS_READY if ready else wire.READINESS_WAITING,
            ticket=self.ticket,
            plan_hash=self.plan_hash,
        )

    def restarted(self, outcome: RunOutcome, at: float) -> ModelRun:
        """The run that its node starts in its place."""
        assert outcome.restarted_as is not None
        return ModelRun(
            id=self.id,
            group=self.group,
            node=self.node,
            incarnation=outcome.restarted_as,
            ticket=self.ticket,
            plan_hash=self.plan_hash,
            began=at,
            phase=Phase.WAITING,
            crashes=outcome.crashes,
        )

    def crash_report(self, outcome: RunOutcome) -> wire.CrashReport:
        return wire.CrashReport(
            instance_id=self.id,
            group=self.group,
            incarnation=self.incarnation,
            exit_code=1,
            exit=exit_status(outcome.outcome, outcome.summary, code=1),
            crash_class=outcome.crash_class,
            restarted_as=outcome.restarted_as or 0,
            restart_in_ms=round(outcome.restart_delay_seconds * 1000),
        )


def with_node_restart(
    run: ModelRun, spec: GroupSpec, outcome: RunOutcome, *, at: float, fraction: float
) -> RunOutcome:
    """The end of a run, with the restart that its daemon makes of it, if any."""
    restart = spec.restart
    order = StartOrder(
        instance_id=InstanceId(run.id),
        group=run.group,
        incarnation=run.incarnation,
        command=("model",),
        restart=RestartRule(
            on=restart.on.value,
            attempts=restart.attempts,
            interval_seconds=float(restart.interval_seconds),
            delay_seconds=restart.delay_ms / 1000,
            max_delay_seconds=restart.max_delay_ms / 1000,
        ),
    )
    return with_restart(
        outcome,
        order=order,
        stop=None,
        crashes=run.crashes,
        now=at,
        age=at - run.began,
        fraction=fraction,
    )


def exit_status(outcome: str, summary: str, *, code: int = 0) -> wire.ExitStatus:
    return wire.ExitStatus(known=True, code=code, outcome=outcome, summary=summary)
