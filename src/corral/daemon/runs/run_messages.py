"""Link messages about runs. Pure: values in, messages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

from corral.daemon.hooks.start_changes import Provenance
from corral.daemon.probes.minecraft_ping import PlayerCount
from corral.daemon.runs.run_files import FailedStart, RunOutcome
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import stage_number
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.runtime import RunExit
from corral.wire.v1.instance_pb2 import (
    CrashReport,
    ExitStatus,
    InstanceStatusUpdate,
    ModuleChange,
    ModuleOverride,
    NamedPort,
    Readiness,
    RunningInstance,
    StartFailureDisposition,
    StartInstanceAck,
    StopInstanceAck,
)
from corral.wire.v1.instance_pb2 import InstanceState as WireState
from corral.wire.v1.link_pb2 import DaemonMessage

MAX_MESSAGE: Final = 4096
_MOST_KEPT: Final = 20
_LONGEST_KEPT: Final = 500
_PERMANENT: Final = StartFailureDisposition.START_FAILURE_DISPOSITION_PERMANENT
_TRANSIENT: Final = StartFailureDisposition.START_FAILURE_DISPOSITION_TRANSIENT


class ReadinessView(Protocol):
    ready: bool
    players: PlayerCount | None
    reported_players: PlayerCount | None


class RunView(Protocol):
    """The parts of a run that messages report."""

    order: StartOrder
    nonce: str
    reason: str
    pid: int
    started_at_ms: int
    outcome: RunOutcome | None
    files_kept: tuple[str, ...]

    @property
    def state(self) -> InstanceState: ...

    @property
    def readiness(self) -> ReadinessView: ...

    @property
    def made_by_modules(self) -> Provenance: ...

    @property
    def uptime_ms(self) -> int: ...

    @property
    def console_end(self) -> int: ...


def wire_state(state: InstanceState) -> WireState:
    return cast(WireState, WireState.Value(f"INSTANCE_STATE_{state}"))


def files_kept(files: Mapping[str, str]) -> tuple[str, ...]:
    """Some of these files, each with the reason, and how many more there are."""
    lines = [cut(f"{path}: {why}")[:_LONGEST_KEPT] for path, why in sorted(files.items())[:_MOST_KEPT]]
    more = len(files) - len(lines)
    return (*lines, f"and {more} more") if more else tuple(lines)


def status_update(run: RunView) -> DaemonMessage:
    message = metrics_update(run)
    message.instance_status.module_changes.extend(module_changes(run.made_by_modules))
    message.instance_status.modules_missing.extend(run.made_by_modules.missing)
    message.instance_status.files_kept.extend(run.files_kept)
    return message


def exit_update(run: RunView, outcome: RunOutcome, *, reason: str) -> DaemonMessage:
    """The exit of a run that has not stored its outcome yet."""
    message = status_update(run)
    status = message.instance_status
    status.state = wire_state(outcome.state)
    status.readiness = Readiness.READINESS_WAITING
    status.uptime_ms = outcome.uptime_ms
    status.pid = outcome.pid
    status.started_at_ms = outcome.started_at_ms
    status.console_offset = outcome.console_end
    status.reason = cut(reason)
    if (exit := exit_status(outcome)) is not None:
        status.exit.CopyFrom(exit)
    return message


def first_status(run: RunView, before: RunOutcome) -> DaemonMessage:
    """First status of a restart. A crash report has reported the exit before; any other exit is reported with
    this."""
    message = status_update(run)
    ended = exit_status(before)
    if before.state is InstanceState.STOPPED and ended is not None:
        message.instance_status.former_exit.CopyFrom(ended)
    return message


def metrics_update(run: RunView) -> DaemonMessage:
    """Its present state and usage, without what does not change any more."""
    players = run.readiness.players
    return DaemonMessage(
        instance_status=InstanceStatusUpdate(
            instance_id=run.order.instance_id,
            state=wire_state(run.state),
            port=run.order.primary_port,
            uptime_ms=run.uptime_ms,
            incarnation=run.order.incarnation,
            pid=run.pid,
            started_at_ms=run.started_at_ms,
            console_offset=_final_console_end(run),
            exit=exit_status(run.outcome),
            readiness=_readiness(run),
            reason=cut(run.reason),
            players_known=players is not None,
            player_count=players.online if players else 0,
            max_players=players.maximum if players else 0,
            nonce=run.nonce,
        )
    )


def reported_players_update(run: RunView) -> DaemonMessage:
    """Its players as it reported them itself, for a controller that may not know them."""
    message, players = metrics_update(run), run.readiness.reported_players
    if players is not None:
        status = message.instance_status
        status.players_known = status.players_reported = True
        status.player_count, status.max_players = players.online, players.maximum
    return message


def _final_console_end(run: RunView) -> int:
    """Where the console of an exited run ends. The end of a growing one is sent with its bytes, and with the handshake:
    to look it up for each message would cost more than the rest of the message."""
    return run.outcome.console_end if run.outcome is not None else 0


def stage_update(run: RunView, stage: str) -> DaemonMessage:
    """The stage of its preparation: for watchers, and not stored."""
    message = metrics_update(run)
    message.instance_status.stage = stage_number(stage)
    return message


def crash_report(run: RunView, outcome: RunOutcome, tail: Sequence[str]) -> DaemonMessage:
    exit = outcome.exit
    return DaemonMessage(
        crash_report=CrashReport(
            instance_id=run.order.instance_id,
            group=run.order.group,
            exit_code=_published_code(exit),
            log_tail=tail,
            uptime_ms=outcome.uptime_ms,
            incarnation=run.order.incarnation,
            exit=exit_status(outcome),
            crash_class=outcome.crash_class,
            signature=outcome.signature,
            log_tail_offset=outcome.tail_offset,
            restarted_as=outcome.restarted_as or 0,
            restart_in_ms=int(outcome.restart_delay_seconds * 1000),
            pid=outcome.pid,
            started_at_ms=outcome.started_at_ms,
            ticket=run.order.ticket,
            nonce=run.nonce,
        )
    )


def _published_code(exit: RunExit | None) -> int:
    """Exit code as shells report it: the code, or 128 and the signal."""
    if exit is None:
        return 0
    return 128 + exit.signal if exit.signal else exit.code


def exit_status(outcome: RunOutcome | None) -> ExitStatus | None:
    if outcome is None:
        return None
    exit = outcome.exit
    return ExitStatus(
        known=exit.known if exit else False,
        code=exit.code if exit else 0,
        signal=exit.signal if exit else 0,
        core_dumped=exit.core_dumped if exit else False,
        outcome=outcome.outcome,
        summary=cut(outcome.summary),
        ended_at_ms=outcome.ended_at_ms,
        rung=outcome.rung,
        crash_class=outcome.crash_class,
    )


def running_instance(run: RunView) -> RunningInstance:
    return RunningInstance(
        instance_id=run.order.instance_id,
        group=run.order.group,
        port=run.order.primary_port,
        state=wire_state(run.state),
        incarnation=run.order.incarnation,
        pid=run.pid,
        started_at_ms=run.started_at_ms,
        console_offset=run.console_end,
        exit=exit_status(run.outcome),
        readiness=_readiness(run),
        plan_hash=run.order.plan_hash,
        ports=[
            NamedPort(name=port.name, port=port.port, protocol=port.protocol.value)
            for port in run.order.ports
        ],
        memory_mb=run.order.limits.memory_mb,
        reason=cut(run.reason),
        module_changes=module_changes(run.made_by_modules),
        modules_missing=run.made_by_modules.missing,
        ticket=run.order.ticket,
        nonce=run.nonce,
    )


def module_changes(made: Provenance) -> list[ModuleChange]:
    return [
        ModuleChange(
            module_id=change.module,
            version=change.version,
            jvm_args_added=change.jvm_args_added,
            jvm_args_removed=change.jvm_args_removed,
            args_added=change.args_added,
            args_removed=change.args_removed,
            env_set=change.env_set,
            env_removed=change.env_removed,
            dropped=change.dropped,
            overridden=[
                ModuleOverride(kind=each.kind, name=each.name, by=each.by) for each in change.overridden
            ],
        )
        for change in made.changes
    ]


def start_accepted(run: RunView) -> DaemonMessage:
    """The answer to a start that succeeded, or to one that is repeated: the state as it is."""
    return DaemonMessage(
        start_instance_ack=StartInstanceAck(
            instance_id=run.order.instance_id,
            accepted=True,
            plan_hash=run.order.plan_hash,
            incarnation=run.order.incarnation,
            pid=run.pid,
            started_at_ms=run.started_at_ms,
            console_offset=_final_console_end(run),
            exit=exit_status(run.outcome),
            readiness=_readiness(run),
            state=wire_state(run.state),
            nonce=run.nonce,
        )
    )


def start_refused(
    instance_id: str, incarnation: int, failure: FailedStart, *, plan_hash: str = "", state: InstanceState
) -> DaemonMessage:
    return DaemonMessage(
        start_instance_ack=StartInstanceAck(
            instance_id=instance_id,
            accepted=False,
            error_message=cut(failure.message),
            plan_hash=plan_hash,
            stage=stage_number(failure.stage),
            error_code=failure.code,
            failure_disposition=_PERMANENT if failure.permanent else _TRANSIENT,
            retry_after_seconds=failure.retry_after_seconds,
            incarnation=incarnation,
            state=wire_state(state),
        )
    )


def stop_ack(
    instance_id: str, incarnation: int, *, state: InstanceState, error: CorralError | None = None
) -> DaemonMessage:
    return DaemonMessage(
        stop_instance_ack=StopInstanceAck(
            instance_id=instance_id,
            accepted=error is None,
            error_message=cut(str(error)) if error else "",
            incarnation=incarnation,
            state=wire_state(state),
            error_code=error.code.name if error else "",
        )
    )


def cut(text: str) -> str:
    """At most 4 KiB of UTF-8: neither a long text nor a name in it that is no UTF-8 is ever the reason to drop
    a message."""
    raw = text.encode(errors="replace")
    if len(raw) <= MAX_MESSAGE:
        return raw.decode()
    return raw[: MAX_MESSAGE - 3].decode(errors="ignore") + "…"


def _readiness(run: RunView) -> Readiness:
    if run.readiness.ready and run.state in (InstanceState.RUNNING, InstanceState.DRAINING):
        return Readiness.READINESS_READY
    return Readiness.READINESS_WAITING
