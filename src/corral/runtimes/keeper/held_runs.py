"""The runs of a keeper: which process supervises each of them, and a rescue for each whose shim was killed.

A shim or rescue that this keeper forked is its child: the kernel reports its end, and the keeper inherits
what it leaves behind. The shim of a run that was handed over is watched by a pidfd. The keeper is no ancestor
of such a run: another pidfd gives the exit status of its main process, where the kernel supports it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any

from corral.runtimes.keeper import exit_file, keeper_protocol, run_files
from corral.runtimes.keeper.forked_process import Fatal, fork, log
from corral.runtimes.keeper.held_run import HeldRun, open_run, taken_over
from corral.runtimes.keeper.keeper_protocol import LOCK, MINDER, TERMINAL, RequestConnection
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.runtimes.keeper.proc_facts import has_ended, open_process, start_time
from corral.runtimes.keeper.rescue import run_rescue
from corral.runtimes.keeper.run_files import try_lock
from corral.runtimes.keeper.shim import run_shim
from corral.runtimes.keeper.spare_shims import SPARE, SpareShims

_REMEMBERED = 1024
_LOOK_SECONDS = 1.0
"""How often a run without a shim or rescue is checked."""


class HeldRuns:
    """The keeper's runs. Registers the pidfds of shims and rescues with the keeper's poller."""

    def __init__(self, poller: select.poll) -> None:
        self._poller = poller
        self.spares = SpareShims()
        self._supervised: dict[int, HeldRun] = {}
        """By the pid of the shim or rescue, which is our child."""
        self._handed: dict[int, HeldRun] = {}
        """Runs whose shim or rescue is not our child, by a pidfd of it."""
        self._unsupervised: dict[str, HeldRun] = {}
        """By directory: runs whose rescue failed, or that another process took first. They are checked again
        and again."""
        self._look_at = 0.0
        self._orphans: dict[tuple[int, int], str] = {}
        """Main processes whose shim is dead, by pid and start time: their run directory."""
        self._statuses: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._supervised) + len(self._handed) + len(self._unsupervised)

    # requests

    def spawn(self, caller: RequestConnection, plan: dict[str, Any]) -> None:
        """Hand the run to the spare shim that the plan names, or to a new one. Raises OSError when the run's
        files cannot be made."""
        run, slave = open_run(plan)
        pid, lock = int(plan.get(SPARE, 0)), caller.peek(LOCK)
        if not self.spares.bind(pid, plan, caller, lock=lock, master=run.master, slave=slave):
            pid = fork()
        if pid == 0:
            with Fatal():
                run_shim(plan, caller.connection, lock=lock, master=run.master, slave=slave)
        if slave >= 0:
            os.close(slave)
        if pid < 0:
            run.release()
            return
        self._supervised[pid] = run

    def hold(self, caller: RequestConnection, directory: str) -> None:
        """Hold a run that another keeper started. Of a run that is held already, the terminal is taken if it
        is missing. The requester gets the terminal, to hand it to our successor."""
        run = self._with_minder(directory) or self._unsupervised.get(directory)
        if run is None:
            run = taken_over(directory, caller)
            minder = caller.take(MINDER)
            if minder >= 0:
                self._watch(run, minder)
            else:
                self._unsupervised[directory] = run
        elif run.master < 0:
            run.master = caller.take(TERMINAL)
        keeper_protocol.send(caller.connection, {"held": True, "terminal": run.master >= 0}, run.master)

    def rescue(self, caller: RequestConnection, directory: str) -> None:
        """Start another rescue, requested by a daemon that has the lock."""
        for minder, handed in list(self._handed.items()):
            if handed.directory == directory and has_ended(minder):
                self._unsupervised[directory] = self._unwatch(minder)
        run = self._unsupervised.pop(directory, None)
        if run is None:
            known = self._with_minder(directory)
            try:
                run = known.shared() if known is not None else taken_over(directory, caller)
            except OSError as error:
                log(f"rescue of {directory}: {error}")
                return
        run.learn(caller)
        self._rescue(run, lock=caller.peek(LOCK), connection=caller.connection)

    # events

    def is_minder(self, pid: int) -> bool:
        return pid in self._supervised

    def minder_reaped(self, pid: int, status: int) -> None:
        self._minder_ended(self._supervised.pop(pid), status)

    def orphan_ended(self, pid: int, status: int) -> None:
        """Note the exit of a process that a dead shim left to us; it is not reaped yet."""
        key = (pid, start_time(pid) or 0)
        directory = self._orphans.pop(key, None)
        if directory is not None:
            _note_exit(directory, status)
            return
        self._statuses[key] = status
        while len(self._statuses) > _REMEMBERED:
            del self._statuses[next(iter(self._statuses))]

    def handed_minder_ready(self, descriptor: int) -> None:
        """Handle the end of a shim or rescue that is not our child. The run's files separate a kill from a
        regular end."""
        if descriptor in self._handed and has_ended(descriptor):
            self._minder_ended(self._unwatch(descriptor), signal.SIGKILL)

    def drop_finished(self) -> None:
        """Drop a run whose supervisor, forked by another keeper, has ended without notice to us."""
        for minder in list(self._handed):
            self.handed_minder_ready(minder)
        for directory in list(self._unsupervised):
            if run_files.is_empty(directory) or not os.path.exists(directory):  # noqa: PTH110 - few imports
                self._unsupervised.pop(directory).release()

    def look_in(self) -> float | None:
        """After how many milliseconds `check_unsupervised` has work; None: not before an event."""
        return max(0.0, self._look_at - time.monotonic()) * 1000 if self._unsupervised else None

    def check_unsupervised(self) -> None:
        """Check the runs without a supervisor: one that has a supervisor by now is watched, any other gets a
        rescue. A daemon, where one runs, is quicker."""
        now = time.monotonic()
        if not self._unsupervised or now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        self.drop_finished()
        for directory in list(self._unsupervised):
            try:
                self._look_at_one(directory)
            except (OSError, ValueError) as error:
                log(f"{directory}: {error}")

    def _look_at_one(self, directory: str) -> None:
        record = run_files.read_record(directory)
        if record is None:
            return
        lock = try_lock(directory)
        if lock is not None:
            self._rescue(self._unsupervised.pop(directory), lock=lock)
            os.close(lock)
            return
        minder = open_process(record.shim, record.shim_start)
        if minder is not None:
            self._watch(self._unsupervised.pop(directory), minder)

    def _with_minder(self, directory: str) -> HeldRun | None:
        for run in (*self._supervised.values(), *self._handed.values()):
            if run.directory == directory:
                return run
        return None

    def _watch(self, run: HeldRun, minder: int) -> None:
        self._handed[minder] = run
        self._poller.register(minder, select.POLLIN)

    def _unwatch(self, minder: int) -> HeldRun:
        self._poller.unregister(minder)
        os.close(minder)
        return self._handed.pop(minder)

    def _rescue(self, run: HeldRun, *, lock: int = -1, connection: socket.socket | None = None) -> None:
        pid = fork()
        if pid == 0:
            with Fatal():
                run_rescue(
                    run.directory,
                    lock=lock,
                    out=run.out,
                    master=run.master,
                    process=run.process,
                    connection=-1 if connection is None else connection.fileno(),
                )
        if pid < 0:
            self._unsupervised[run.directory] = run
        else:
            self._supervised[pid] = run

    def _minder_ended(self, run: HeldRun, status: int) -> None:
        try:
            record = run_files.read_record(run.directory)
            over = record is None or run_files.is_empty(run.directory)
            over = over or run_files.read_failure(run.directory) is not None
        except (OSError, ValueError) as error:
            log(f"{run.directory}: {error}")
            record, over = None, True
        if over and record is not None:
            self._orphans.pop((record.pid, record.start), None)
        if record is None or over or self._with_minder(run.directory) is not None:
            run.release()
            return
        key = (record.pid, record.start)
        if key in self._statuses:
            _note_exit(run.directory, self._statuses.pop(key))
        else:
            self._orphans[key] = run.directory
        earlier = self._unsupervised.pop(run.directory, None)
        if earlier is not None:
            earlier.release()
        if os.WIFSIGNALED(status):
            self._rescue(run)
        else:
            self._unsupervised[run.directory] = run


def _note_exit(directory: str, status: int) -> None:
    try:
        record = run_files.read_record(directory)
        oom = record is not None and oom_kill_counted(record.oom_file)
        exit_file.write_exit(directory, status, at_ns=time.time_ns(), who="keeper", oom=oom)
    except (OSError, ValueError) as error:
        log(f"exit of {directory}: {error}")
