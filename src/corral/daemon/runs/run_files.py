"""Files that the supervision writes into a run's directory.

`commands` (see `command_ids`), allocated space for the outcome and `intent.json` before anything of the run exists,
`ready` when its probes have succeeded, `players` when the workload has counted some, `order.json` before a stop
begins, `outcome.json` before its exit is reported, `reported` once the report is in the spool, `modules.json` when
modules changed its start, `told` once modules were notified of its exit: it is empty, or names the modules whose
notification is pending. The runtime has its own files beside them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Collection
from typing import Final

import msgspec
import structlog

from corral.daemon.hooks.start_changes import Provenance
from corral.daemon.node.durable_files import store
from corral.daemon.runs.command_ids import FILE as COMMANDS
from corral.daemon.runs.command_ids import CommandIds
from corral.daemon.workload.start_order import StartOrder
from corral.domain.ids import RESTARTS_PER_START, Incarnation
from corral.domain.instance_states import INSTANCE_LIFECYCLE, InstanceState
from corral.errors import Code, CorralError, Retryable
from corral.sdk.runtime import RunExit, run_name
from corral.system.files import allocate, read_versioned, replace_versioned, write_allocated

_VERSION: Final = 1
_INTENT_VERSION: Final = 2
"""2: the order holds its plan. What 1 wrote is read as an order without one."""
_INTENT: Final = "corral-run-intent"
_ORDER: Final = "corral-stop-order"
_OUTCOME: Final = "corral-run-outcome"
_PROVENANCE: Final = "corral-run-modules"
_PENDING: Final = "corral-run-told"
_OUTCOME_ROOM: Final = ".outcome.json.room"
_OUTCOME_BYTES: Final = 16 * 1024
BEGINNINGS: Final = (".intent.json", _OUTCOME_ROOM, COMMANDS)
"""Prefixes of files that exist before the intent: alone they are no run."""
_log = structlog.get_logger("corral.daemon.runs")


class RunIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Intent to run: enough to start it, supervise it and restart it without a controller."""

    order: StartOrder
    boot_id: str
    accepted_at_ms: int
    crashes: tuple[float, ...] = ()
    """When the earlier runs of this start crashed, by the clock that counts since `boot_id`."""
    due: float = 0.0
    """Not before this time of that clock: a restart that is delayed."""
    reason: str = ""
    """Why it exists, when it is a restart."""
    anew: bool = False
    """A restart whose directory is as the reboot of the host left it: it is made again."""
    nonce: str = ""
    """Distinguishes this run from another with the same incarnation: a restored node may use one twice. Empty: stored
    before nonces existed."""

    @property
    def name(self) -> str:
        return run_name(self.order.instance_id, self.order.incarnation)

    @property
    def ids(self) -> dict[str, str]:
        """Of the decision and the request behind it, for log records; of a restart by the node none."""
        if self.order.incarnation % RESTARTS_PER_START:
            return {}
        return {"decision": self.order.decision, "request": self.order.request}


class StopOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Order to stop this run. Once on disk it is followed by every daemon that reads it."""

    reason: str
    force: bool = False
    then_restart: bool = False
    """A local `restart`: the next run begins when this one has ended."""
    too_old: bool = False
    """The run reached its maximum lifetime, and is restarted."""
    isolated: bool = False
    """Its node was without a controller for as long as its group allows."""
    decision: str = ""
    request: str = ""
    """The ids of the decision and of the request behind it, for log records."""


class FailedStart(msgspec.Struct, frozen=True, kw_only=True):
    """Why a start failed; a repeated order gets the same answer."""

    stage: str
    code: str
    message: str
    permanent: bool
    retry_after_seconds: int = 0


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a run."""

    state: InstanceState
    """STOPPED or CRASHED."""
    outcome: str
    exit: RunExit | None = None
    """None: its workload was never executed."""
    rung: str = ""
    crash_class: str = ""
    signature: str = ""
    summary: str
    reason: str = ""
    uptime_ms: int = 0
    pid: int = 0
    started_at_ms: int = 0
    ended_at_ms: int
    console_end: int = 0
    tail_offset: int = 0
    failed_start: FailedStart | None = None
    restarted_as: Incarnation | None = None
    restart_delay_seconds: float = 0.0
    crashes: tuple[float, ...] = ()
    """Passed on to the next run of this start."""
    modules_hear: bool = False
    """Modules are notified of it; not of exits before daemons had modules."""

    def __post_init__(self) -> None:
        if self.state not in INSTANCE_LIFECYCLE.terminal:
            raise ValueError(f"{self.state} is not the end of a run")


class _PendingModules(msgspec.Struct, frozen=True, kw_only=True):
    modules: tuple[str, ...] = ()


class RunFiles:
    """The files of one run. Reads and writes block: writes belong into a worker thread."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    @property
    def console(self) -> pathlib.Path:
        return self.directory / "console"

    def make(self, intent: RunIntent) -> None:
        """Make the directory with its intent, durably, mode 0700, and with space for its outcome: no full disk may
        keep an outcome from being written. Retryable when the disk refuses."""
        places = (self.directory.parent.parent, self.directory.parent, self.directory)
        try:
            for place in places:  # `parents=True` would leave the upper ones to the umask
                place.mkdir(mode=0o700, exist_ok=True)
            allocate(self.directory / _OUTCOME_ROOM, _OUTCOME_BYTES)
        except OSError as error:
            raise Retryable(
                Code.DISK_FULL,
                f"{self.directory} cannot be made: {error.strerror or error}",
                hint="make room",
            ) from error
        CommandIds(self.directory, boot_id=intent.boot_id).make()
        store(self.directory / "intent.json", intent, name=_INTENT, version=_INTENT_VERSION)

    def has_intent(self) -> bool:
        return (self.directory / "intent.json").exists()

    def holds(self, intent: RunIntent) -> bool:
        """Whether this very intent is on disk."""
        return self.has_intent() and self.intent() == intent

    def intent(self) -> RunIntent | None:
        return read_versioned(
            self.directory / "intent.json", RunIntent, name=_INTENT, version=_INTENT_VERSION
        )

    def write_order(self, order: StopOrder) -> None:
        store(self.directory / "order.json", order, name=_ORDER, version=_VERSION)

    def stop_order(self) -> StopOrder | None:
        return read_versioned(self.directory / "order.json", StopOrder, name=_ORDER, version=_VERSION)

    def write_outcome(self, outcome: RunOutcome) -> None:
        """Write into the allocated space; a run of an earlier version has none. Retryable when the disk refuses."""
        path, room = self.directory / "outcome.json", self.directory / _OUTCOME_ROOM
        try:
            write_allocated(room, path, outcome, name=_OUTCOME, version=_VERSION)
        except OSError:
            store(path, outcome, name=_OUTCOME, version=_VERSION)

    def has_outcome(self) -> bool:
        return (self.directory / "outcome.json").exists()

    def outcome(self) -> RunOutcome | None:
        return read_versioned(self.directory / "outcome.json", RunOutcome, name=_OUTCOME, version=_VERSION)

    def mark_ready(self) -> None:
        """Its probes have succeeded: no later daemon probes again. Not flushed: a crash of the host loses it, and
        ends the run as well."""
        with contextlib.suppress(OSError):  # then they are probed again
            (self.directory / "ready").touch(0o600)

    def was_ready(self) -> bool:
        return (self.directory / "ready").exists()

    def mark_waiting(self, waiting: bool = True) -> None:
        """By the built-in rule it is not ready, long as it has lived: a later daemon does not take it for ready. Not
        flushed, as above."""
        mark = self.directory / "waiting"
        with contextlib.suppress(OSError):
            if not waiting:
                mark.unlink(missing_ok=True)
            elif not mark.exists():
                mark.touch(0o600)

    def is_waiting(self) -> bool:
        return (self.directory / "waiting").exists()

    def mark_withheld(self, withheld: bool) -> None:
        """By its own word it is not ready: a later daemon does not take it for ready either. Not flushed, as above."""
        mark = self.directory / "withheld"
        with contextlib.suppress(OSError):
            if withheld:
                mark.touch(0o600)
            else:
                mark.unlink(missing_ok=True)

    def is_withheld(self) -> bool:
        return (self.directory / "withheld").exists()

    def mark_players(self, online: int, most: int) -> None:
        """The players as the workload counts them. Not flushed, as above."""
        with contextlib.suppress(OSError):  # then a later daemon does not know them until the next report
            (self.directory / "players").write_text(f"{online} {most}\n")

    def players(self) -> tuple[int, int] | None:
        """None: the workload has not reported any."""
        try:
            online, most = (self.directory / "players").read_text().split()
            return int(online), int(most)
        except (OSError, ValueError):
            return None

    def mark_reported(self, spool_number: int) -> None:
        """The report of its exit is in the spool under this number. Not flushed: losing it costs a second report,
        which the controller recognises by the incarnation."""
        with contextlib.suppress(OSError):  # the same cost
            (self.directory / "reported").write_text(f"{spool_number}\n")

    def reported(self) -> int | None:
        """The spool number of the report of its exit; None: it was never spooled."""
        try:
            return int((self.directory / "reported").read_text() or 0)
        except (OSError, ValueError):
            return None

    def write_provenance(self, made: Provenance) -> None:
        """Changes of its start by modules. Not flushed: a crash of the host loses them, and ends the run as well."""
        try:
            replace_versioned(self.directory / "modules.json", made, name=_PROVENANCE, version=_VERSION)
        except OSError as error:
            _log.warning("provenance_write.failed", run=str(self.directory), reason=str(error))

    def provenance(self) -> Provenance | None:
        path = self.directory / "modules.json"
        return read_versioned(path, Provenance, name=_PROVENANCE, version=_VERSION)

    def write_pending_modules(self, pending_modules: Collection[str] = ()) -> None:
        """Modules were notified of its exit, except these, whose notification is pending. With none pending it is not
        flushed: losing it costs a second notification, and so does a disk that refuses."""
        path = self.directory / "told"
        try:
            if pending_modules:
                store(path, _PendingModules(modules=tuple(pending_modules)), name=_PENDING, version=_VERSION)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        except (CorralError, OSError) as error:
            if self.directory.exists():  # else it was cleaned up, and nothing is pending
                _log.warning("pending_modules_write.failed", run=str(self.directory), reason=str(error))

    def pending_modules(self) -> tuple[str, ...] | None:
        """Modules whose notification of its exit is pending; None: no module was notified."""
        path = self.directory / "told"
        try:
            if not path.stat().st_size:
                return ()
            found = read_versioned(path, _PendingModules, name=_PENDING, version=_VERSION)
        except FileNotFoundError:
            return None
        except (CorralError, OSError) as error:
            _log.warning("pending_modules_read.failed", run=str(self.directory), reason=str(error))
            return ()
        return found.modules if found is not None else None

    def modules_notified(self) -> bool:
        """No notification of its exit is pending."""
        return self.pending_modules() == ()


class FoundRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run directory on disk."""

    instance_id: str
    incarnation: Incarnation
    path: pathlib.Path


class RunDirectories:
    """`DATA/runs/<id>/<incarnation>`."""

    def __init__(self, data: pathlib.Path) -> None:
        self.root = data / "runs"

    def files(self, instance_id: str, incarnation: int) -> RunFiles:
        return RunFiles(self.root / instance_id / str(incarnation))

    def all(self) -> list[FoundRun]:
        """Every run there is, those of one instance in the order of their incarnations."""
        found = [run for entry in _subdirectories(self.root) for run in self.of(entry.name)]
        return sorted(found, key=lambda run: (run.instance_id, run.incarnation))

    def of(self, instance_id: str) -> list[FoundRun]:
        """The runs of one instance, in the order of their incarnations."""
        if instance_id in ("", ".", "..") or "/" in instance_id or "\0" in instance_id:
            return []
        found = [
            FoundRun(
                instance_id=instance_id, incarnation=Incarnation(int(run.name)), path=pathlib.Path(run.path)
            )
            for run in _subdirectories(self.root / instance_id)
            if run.name.isdecimal()
        ]
        return sorted(found, key=lambda run: run.incarnation)


def _subdirectories(path: pathlib.Path | str) -> list[os.DirEntry[str]]:
    """An unreadable directory is logged, and must not hide the others."""
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        _log.error("run_files_read.failed", directory=str(path), reason=str(error))
        return []
