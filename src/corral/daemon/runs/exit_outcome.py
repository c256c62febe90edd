"""Outcome of a run's exit: requested or not, stopped or crashed, with its summary and reason. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from corral.daemon.runs.crash_class import classify, ending, signature
from corral.daemon.runs.run_files import FailedStart, RunOutcome, StopOrder
from corral.daemon.runs.stop_ladder import KILL
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import PROCESS_START
from corral.domain.groups.crash_records import CrashClass
from corral.domain.instance_states import ENDED, ISOLATED, InstanceState
from corral.errors import CorralError, Rejected
from corral.sdk.runtime import RunExit


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of a run when no process of it is left."""

    exit: RunExit
    pid: int
    started_at_ms: int
    uptime_ms: int
    console_end: int
    now_ms: int
    rung: str = ""
    stop: StopOrder | None = None
    ready: bool = True
    """False: it was stopped because it did not become ready."""
    waited_for: str = ""
    clean: bool = False
    """The run exited in a way that its group declares clean."""
    tail: Sequence[str] = ()
    tail_offset: int = 0


def decide_outcome(life: Life) -> RunOutcome:
    """An exit that was not requested, a kill by the kernel, or a run that never became ready is a crash. A reboot of
    the host is none, nor is a clean exit."""
    exit = life.exit
    base = RunOutcome(
        state=InstanceState.STOPPED,
        outcome="stopped",
        exit=exit,
        rung=life.rung,
        summary=ending(exit),
        reason=life.stop.reason if life.stop else "",
        uptime_ms=life.uptime_ms,
        pid=life.pid,
        started_at_ms=life.started_at_ms,
        ended_at_ms=exit.ended_at_ms or life.now_ms,
        console_end=life.console_end,
        tail_offset=life.tail_offset,
        modules_hear=True,
    )
    if exit.host_rebooted:
        return msgspec.structs.replace(base, outcome="host_rebooted", reason="the host was restarted")
    if life.stop is not None and not exit.oom_killed:
        return _stopped(base, life)
    if life.clean:
        after = f"{ending(exit)} after {life.uptime_ms / 1000:.1f} s, by itself"
        return msgspec.structs.replace(base, outcome=ENDED, summary=after, reason=after)
    kind = classify(exit, life.tail, ready=life.ready)
    return msgspec.structs.replace(
        base,
        state=InstanceState.CRASHED,
        outcome=_crash_outcome(exit, kind),
        crash_class=kind.value,
        signature=signature(kind, exit, life.tail),
        summary=_crash_summary(exit, life),
        reason=_crash_summary(exit, life),
    )


def is_clean(exit: RunExit, order: StartOrder, *, uptime_ms: int) -> bool:
    """Exit code 0, or one that the group names, after the minimum time alive; any other exit without a request is a
    crash."""
    return (
        bool(order.restart.on)
        and exit.known
        and not exit.signal
        and not exit.oom_killed
        and (exit.code == 0 or exit.code in order.clean_exit_codes)
        and uptime_ms >= order.min_alive_seconds * 1000
    )


def _stopped(base: RunOutcome, life: Life) -> RunOutcome:
    outcome = "killed" if life.rung == KILL else "stopped"
    if life.stop is not None and life.stop.isolated:
        outcome = ISOLATED
    kind = life.rung.partition(" ")[0]  # without its line, which is not for everybody who reads the sentence
    by = f" ({kind})" if kind else ""
    return msgspec.structs.replace(base, outcome=outcome, summary=f"stopped{by}: {ending(life.exit)}")


def _crash_outcome(exit: RunExit, kind: CrashClass) -> str:
    if not exit.known:
        return "unknown"
    return "clean" if kind is CrashClass.CLEAN_EXIT else "crashed"


def _crash_summary(exit: RunExit, life: Life) -> str:
    if not life.ready:
        what = f" ({life.waited_for})" if life.waited_for else ""
        return f"was not ready in time{what} and {ending(exit)}"
    after = (
        f" after {'' if exit.seen else 'at least '}{life.uptime_ms / 1000:.1f} s" if life.uptime_ms else ""
    )
    return f"{ending(exit)}{after} without being asked to"


def never_started(stop: StopOrder, *, now_ms: int) -> RunOutcome:
    """Outcome of a run that was stopped before its workload was executed."""
    return RunOutcome(
        state=InstanceState.STOPPED,
        outcome="never_started",
        summary="stopped before it was started",
        reason=stop.reason,
        ended_at_ms=now_ms,
    )


def start_failed(stage: str, error: CorralError, *, now_ms: int) -> RunOutcome:
    failure = failed_start(stage, error)
    return RunOutcome(
        state=InstanceState.CRASHED,
        outcome="start_failed",
        summary=f"could not be started ({stage}): {failure.message}",
        reason=f"{failure.code}: {failure.message}",
        ended_at_ms=now_ms,
        failed_start=failure,
    )


def supervision_failed(
    error: CorralError,
    *,
    exit: RunExit | None,
    pid: int,
    started_at_ms: int,
    stop: StopOrder | None,
    now_ms: int,
) -> RunOutcome:
    """Outcome of a run that could not be supervised and is gone: a failed start, with its exit if it was executed.
    With a stop order it has stopped."""
    failed = start_failed(PROCESS_START, error, now_ms=now_ms)
    if exit is None:
        return never_started(stop, now_ms=now_ms) if stop is not None else failed
    return msgspec.structs.replace(
        failed,
        state=InstanceState.STOPPED if stop is not None else InstanceState.CRASHED,
        outcome="stopped" if stop is not None else "crashed" if exit.known else "unknown",
        exit=exit,
        crash_class="" if stop is not None else CrashClass.UNKNOWN.value,
        summary=f"{ending(exit)}; {error.message}",
        pid=pid,
        started_at_ms=started_at_ms,
        ended_at_ms=exit.ended_at_ms or now_ms,
        failed_start=None,
        modules_hear=True,
    )


def without_secrets(outcome: RunOutcome, mask: Callable[[str], str]) -> RunOutcome:
    """The outcome with texts that may be stored and sent."""
    failed = outcome.failed_start
    return msgspec.structs.replace(
        outcome,
        summary=mask(outcome.summary),
        reason=mask(outcome.reason),
        signature=mask(outcome.signature),
        failed_start=msgspec.structs.replace(failed, message=mask(failed.message)) if failed else None,
    )


def failed_start(stage: str, error: CorralError) -> FailedStart:
    return FailedStart(
        stage=stage,
        code=error.code.name,
        message=str(error),
        permanent=isinstance(error, Rejected),
        retry_after_seconds=max(1, round(error.retry_after)) if error.retry_after else 0,
    )
