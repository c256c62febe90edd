"""Runs as modules are told of them, and the ends that they were not told of yet."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterable

import msgspec
import structlog

from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.supervise.run_files import FoundRun, Intent, Outcome, RunFiles
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.instances import ExitInfo, InstanceHandle

_log = structlog.get_logger("corral.daemon.supervise")


class UntoldEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run that no daemon came round to telling its modules."""

    files: RunFiles
    intent: Intent
    outcome: Outcome


def handle_of(
    order: StartOrder, *, pid: int, started_at_ms: int, state: InstanceState, work_dir: str
) -> InstanceHandle:
    began = dt.datetime.fromtimestamp(started_at_ms / 1000, dt.UTC) if started_at_ms > 0 else None
    return InstanceHandle(
        instance_id=order.instance_id,
        group=order.group,
        port=order.primary_port,
        pid=pid,
        started_at=began,
        state=state.value,
        work_dir=work_dir,
    )


def exit_info(outcome: Outcome) -> ExitInfo:
    """A code only where it exited by itself; where nobody knows how, the summary says so."""
    exit = outcome.exit
    known = exit is not None and exit.known and not exit.host_rebooted
    crashed = outcome.state is InstanceState.CRASHED
    return ExitInfo(
        exit_code=exit.code if exit is not None and known and not exit.signal else None,
        signal=signal_name(exit.signal) if exit is not None and known and exit.signal else "",
        duration_ms=outcome.uptime_ms,
        crashed=crashed,
        crash_summary=outcome.summary if crashed or not known else "",
    )


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        real_time = number - signal.SIGRTMIN
        return f"SIGRTMIN+{real_time}" if real_time > 0 else f"signal {number}"


def find_untold(runs: Iterable[FoundRun]) -> list[UntoldEnd]:
    """Those of one instance in the order of their runs. Blocks; what cannot be read is not told."""
    found = []
    for run in runs:
        files = RunFiles(run.path)
        if files.was_told() or not files.has_outcome():
            continue
        try:
            outcome, intent = files.outcome(), files.intent()
        except (CorralError, OSError) as error:
            _log.warning("instance.end_not_told", directory=str(run.path), reason=str(error))
            continue
        if outcome is not None and intent is not None and outcome.exit is not None and outcome.modules_hear:
            found.append(UntoldEnd(files=files, intent=intent, outcome=outcome))
    return found
