"""The shim: one process for each run, between the daemon that ordered it and its workload.

It starts the workload, moves its console, records how it ended, stays until no descendant is left, records
that and exits. The end of the daemon or the keeper does not affect it. Forked from the keeper, it imports
nothing by itself.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any, NoReturn

from corral.runtimes.keeper import exit_file, forked_process, keeper_protocol, linux_calls, run_files
from corral.runtimes.keeper.companion_sweep import clear_lost
from corral.runtimes.keeper.console_relay import ConsoleRelay
from corral.runtimes.keeper.held_run import make_fifo
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.runtimes.keeper.proc_facts import boot_id, raw_status, start_time
from corral.runtimes.keeper.run_files import ExecFailure, RunRecord
from corral.runtimes.keeper.workload_fork import WorkloadFork

STAGE_PREPARE = "prepare"
STAGE_CGROUP = "cgroup"
STAGE_RECORD = "record"


class NotExecuted(Exception):
    """The workload was not executed, and never will be."""

    def __init__(self, failure: ExecFailure) -> None:
        super().__init__(failure.stage)
        self.failure = failure


def run_shim(
    plan: dict[str, Any], connection: socket.socket, *, lock: int, master: int, slave: int
) -> NoReturn:
    """The main function of a shim that is forked for its run. `master` and `slave` are -1 without a terminal."""
    forked_process.begin(b"corral-shim", {connection.fileno(), lock, master, slave})
    linux_calls.become_subreaper()
    wake = forked_process.child_signals()
    supervise_run(plan, connection, lock=lock, master=master, slave=slave, wake=wake)


def supervise_run(
    plan: dict[str, Any],
    connection: socket.socket,
    *,
    lock: int,
    master: int,
    slave: int,
    wake: int,
    spare: WorkloadFork | None = None,
) -> NoReturn:
    """Start the workload, and stay until no process of the run is left. `spare` is a fork that was made ahead.
    Whatever needs no control group is done before `go`, while the daemon prepares the groups."""
    own = os.getpid()
    directory = plan["run_directory"]
    if not keeper_protocol.send(connection, {"shim": own, "start": start_time(own)}):
        os._exit(0)
    refused: NotExecuted | None = None
    try:
        relay = _open_relay(plan, master)
        workload = _waiting_workload(plan, spare, lock=lock, slave=slave)
    except NotExecuted as error:
        refused = error
    go = keeper_protocol.receive(connection)
    if go is None or not go.get("go"):
        os._exit(0)
    try:
        if refused is not None:
            raise refused
        record = _execute(plan, go, workload)
    except NotExecuted as error:
        failure = error.failure
        answer = {"error": failure.stage, "errno": failure.errno, "path": failure.path}
        keeper_protocol.send(connection, answer)
        os._exit(0)
    keeper_protocol.send(connection, {"pid": record.pid, "start": record.start, "record": record.text()})
    connection.close()
    while _reap(directory, workload.pid, go.get("oom_file", "")):
        if wake in relay.wait((wake,)):
            forked_process.empty_pipe(wake)
    relay.finish()
    clear_lost(directory, wait=True)
    run_files.mark_empty(directory)
    os._exit(0)


def _open_relay(plan: dict[str, Any], master: int) -> ConsoleRelay:
    """Open the relay before the workload exists: the daemon may send input as soon as it has the answer to
    the start."""
    directory = plan["run_directory"]
    try:
        return ConsoleRelay(
            directory,
            master=master,
            segment_bytes=plan["segment_bytes"],
            quota_bytes=plan["quota_bytes"],
        )
    except OSError as error:
        raise NotExecuted(ExecFailure(STAGE_PREPARE, error.errno or 0, directory)) from error


def _waiting_workload(
    plan: dict[str, Any], spare: WorkloadFork | None, *, lock: int, slave: int
) -> WorkloadFork:
    """Make the run's files, and give the fork that will be the workload everything but its release."""
    directory = plan["run_directory"]
    try:
        input_fd, output_fd, failed = _make_files(plan, directory, slave)
        given = {"failed": failed, "input_fd": input_fd, "output_fd": output_fd, "lock": lock}
        workload = spare if spare is not None and not spare.has_ended() else WorkloadFork()
        if not workload.give(plan, **given):
            workload = WorkloadFork()
            if not workload.give(plan, **given):
                raise OSError(errno.ECHILD, "the fork for the workload was killed twice")
    except OSError as error:
        raise NotExecuted(
            ExecFailure(STAGE_PREPARE, error.errno or 0, str(error.filename or directory))
        ) from error
    for descriptor in {input_fd, output_fd, failed}:
        os.close(descriptor)
    return workload


def _execute(plan: dict[str, Any], go: dict[str, Any], workload: WorkloadFork) -> RunRecord:
    """Record the run and release its workload."""
    directory = plan["run_directory"]
    try:
        record = _put_on_record(plan, go, workload.pid)
    except NotExecuted:
        workload.cancel()
        raise
    workload.execute()
    failure = run_files.read_failure(directory)
    if failure is not None:
        os.waitpid(workload.pid, 0)
        raise NotExecuted(failure)
    run_files.mark_executed(directory)
    return record


def _make_files(plan: dict[str, Any], directory: str, slave: int) -> tuple[int, int, int]:
    """Make the run's files, and open the workload's input, output and `failed`."""
    exit_file.allocate_exit(directory)
    failed = run_files.open_failed(directory)
    if slave >= 0:
        return slave, slave, failed
    flags = os.O_RDWR | os.O_CLOEXEC
    output_fd = os.open(f"{directory}/{run_files.OUTPUT}", flags)
    if plan["stdin"] == "none":
        input_fd = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    else:
        make_fifo(directory, run_files.INPUT, plan)
        input_fd = os.open(f"{directory}/{run_files.INPUT}", flags)
    return input_fd, output_fd, failed


def _put_on_record(plan: dict[str, Any], go: dict[str, Any], pid: int) -> RunRecord:
    stage, path = STAGE_CGROUP, ""
    cgroup_files = tuple(go.get("cgroup_files", ()))
    try:
        for path in () if go.get("placed") == pid else cgroup_files:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"%d" % pid)
            finally:
                os.close(descriptor)
        stage, path = STAGE_RECORD, plan["run_directory"]
        own = os.getpid()
        record = RunRecord(
            run=plan["run"],
            pid=pid,
            start=start_time(pid) or 0,
            shim=own,
            shim_start=start_time(own) or 0,
            boot=boot_id(),
            started_ns=time.time_ns(),
            started_boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            segment_bytes=plan["segment_bytes"],
            quota_bytes=plan["quota_bytes"],
            tty=plan["tty"],
            procs=cgroup_files,
            marks=tuple(plan["marks"]),
            oom_file=go.get("oom_file", ""),
        )
        run_files.write_record(path, record)
        return record
    except OSError as error:
        raise NotExecuted(ExecFailure(stage, error.errno or 0, path)) from error


def _reap(directory: str, main: int, oom_file: str) -> bool:
    """Reap every process that ended; False when no descendant is left. The main process is reaped only after
    `exit` is written: a process that sees it gone finds the file."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if ended is None:
            return True
        if ended.si_pid == main:
            status = raw_status(ended.si_code, ended.si_status)
            exit_file.write_exit(
                directory, status, at_ns=time.time_ns(), who="shim", oom=oom_kill_counted(oom_file)
            )
        os.waitpid(ended.si_pid, 0)
