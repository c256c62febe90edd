"""The order that a record calls for, and the message that carries it."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Final

import msgspec

from corral.domain.groups import PRIMARY
from corral.domain.ids import RESTARTS_PER_START
from corral.domain.instance_records import InstanceRecord, live
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.plans import Plan
from corral.errors import Code
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage

_MAX_DELAY: Final = 300.0


class OrderKind(enum.Enum):
    START = "start"
    STOP = "stop"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has to be told. Two equal orders are one, sent again."""

    kind: OrderKind
    incarnation: int
    force: bool = False


def order_for(record: InstanceRecord) -> Order | None:
    """None: the run is as wanted, or its node is about to make it so."""
    if not live(record.state) or record.state is InstanceState.OFFLINE:
        return None
    if record.wanted is Wanted.STOP:
        if record.state is InstanceState.STOPPING and not record.force_stop:
            return None
        return Order(kind=OrderKind.STOP, incarnation=record.incarnation, force=record.force_stop)
    ours = record.incarnation % RESTARTS_PER_START == 0
    if record.state is InstanceState.SCHEDULED and ours and not record.adopted:
        return Order(kind=OrderKind.START, incarnation=record.incarnation)
    return None


def first_delay(record: InstanceRecord, resend_seconds: float) -> float:
    """How long to hold a start back because nodes have refused it before."""
    failure = record.start_failure
    if not record.attempts or failure is None or failure.code == Code.PORT_IN_USE.name:
        return 0.0
    doubled = resend_seconds * 2.0 ** min(record.attempts - 1, 16)
    return min(max(doubled, float(failure.retry_after_seconds)), _MAX_DELAY)


def stop_message(
    record_id: str, incarnation: int, *, force: bool, reason: str, decision: str
) -> ControllerMessage:
    return ControllerMessage(
        stop_instance=wire.StopInstance(
            instance_id=record_id, incarnation=incarnation, force=force, reason=reason, decision_id=decision
        )
    )


def start_message(record: InstanceRecord, plan: Plan, *, token: str, api_url: str) -> ControllerMessage:
    """Everything the node needs. The token is in no plan and no log, only here."""
    primary = next((port.port for port in record.ports if port.name == PRIMARY), 0)
    return ControllerMessage(
        start_instance=wire.StartInstance(
            instance_id=record.id,
            group=record.group,
            port=primary or next((port.port for port in record.ports), 0),
            memory_mb=plan.memory_mb,
            env=plan.env,
            plugin_token=token,
            startup_timeout_seconds=plan.startup_timeout_seconds,
            shutdown_grace_seconds=int(sum(rung.wait_seconds for rung in plan.stop)),
            max_lifetime_seconds=plan.max_lifetime_seconds,
            max_players=plan.max_players,
            resolved_variables=plan.variables,
            incarnation=record.incarnation,
            runtime=plan.runtime,
            command=plan.command,
            args=plan.args,
            ports=[
                wire.NamedPort(name=port.name, port=port.port, protocol=port.protocol.value)
                for port in record.ports
            ],
            limits=wire.Limits(
                memory_mb=plan.memory_mb, cpu_cores=plan.cpu, pids=plan.pids, console_mb=plan.console_mb
            ),
            stop_ladder=[
                wire.StopRung(
                    command=rung.command or "",
                    signal=rung.signal or "",
                    wait_ms=int(rung.wait_seconds * 1000),
                )
                for rung in plan.stop
            ],
            restart_policy=wire.RestartPolicy(
                attempts=plan.restart.attempts,
                interval_ms=_milliseconds(plan.restart.interval_seconds),
                delay_ms=plan.restart.delay_ms,
                max_delay_ms=plan.restart.max_delay_ms,
            ),
            run_as=plan.run_as,
            isolate=plan.isolate if plan.isolate != "shared" else "",
            tty=plan.tty,
            stdin=plan.stdin,
            line_buffered=plan.line_buffered,
            plan_hash=record.plan_hash,
            decision_id=record.decision,
            min_alive_ms=plan.min_alive_ms,
            crash_keep_seconds=plan.crash_keep_seconds,
            api_url=api_url,
        )
    )


def _milliseconds(seconds: int) -> int:
    """As the wire carries it: an int32."""
    return min(int(dt.timedelta(seconds=seconds) / dt.timedelta(milliseconds=1)), 2**31 - 1)
