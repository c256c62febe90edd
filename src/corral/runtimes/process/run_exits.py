"""From what the run's files say to what the interface says."""

from __future__ import annotations

import os
import signal

from corral.runtimes.keeper.exit_file import Ending
from corral.runtimes.keeper.run_files import Record
from corral.sdk.runtime import RunExit, RunHandle

RUNTIME = "process"


def exit_of(ending: Ending, *, oom: bool = False) -> RunExit:
    """`oom`: what the control group says beside the file."""
    at_ms = ending.at_ns // 1_000_000
    if ending.status is None:
        return RunExit(
            known=False,
            ended_at_ms=at_ms,
            seen=ending.seen,
            reason="shim and keeper were both killed, and the kernel does not tell"
            if ending.seen
            else "daemon, keeper and shim had all been killed",
        )
    if not os.WIFSIGNALED(ending.status):
        return RunExit(known=True, code=os.WEXITSTATUS(ending.status), ended_at_ms=at_ms)
    number = os.WTERMSIG(ending.status)
    return RunExit(
        known=True,
        signal=number,
        core_dumped=os.WCOREDUMP(ending.status),
        ended_at_ms=at_ms,
        oom_killed=number == signal.SIGKILL and (oom or ending.oom),
    )


def lost_with_the_host() -> RunExit:
    return RunExit(known=False, host_rebooted=True, reason="the machine was restarted while it ran")


def handle_of(record: Record, directory: str, *, runtime: str = RUNTIME) -> RunHandle:
    return RunHandle(
        runtime=runtime,
        run_name=record.run,
        run_directory=directory,
        pid=record.pid,
        started_at_ms=record.started_ns // 1_000_000,
        state={
            "start": record.start,
            "boot": record.boot,
            "shim": record.shim,
            "shim_start": record.shim_start,
        },
    )
